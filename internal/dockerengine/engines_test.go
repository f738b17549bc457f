package dockerengine

import (
	"context"
	"errors"
	"slices"
	"testing"
)

// An engine is known again by its identity: at the socket where it was, or where the settings lead to.
func TestKnown(t *testing.T) {
	const there, settings = "unix:///there", "unix:///settings"
	silent, replaced := errors.New("nobody answers"), errors.New("another one answers")
	one, two := &Engine{facts: Facts{ID: "ONE"}}, &Engine{facts: Facts{ID: "TWO"}}
	for name, c := range map[string]struct {
		at    map[string]*Engine // by the socket that is asked for
		host  string             // that the settings lead to, "" for one that is not known
		want  *Engine
		fails error
		asked []string
	}{
		"where it was":                 {at: map[string]*Engine{there: one, "": two}, host: settings, want: one, asked: []string{there}},
		"moved, another in its place":  {at: map[string]*Engine{there: two, "": one}, host: settings, want: one, asked: []string{there, ""}},
		"moved, nobody in its place":   {at: map[string]*Engine{"": one}, host: settings, want: one, asked: []string{there, ""}},
		"moved to who knows where":     {at: map[string]*Engine{"": one}, want: one, asked: []string{there, ""}},
		"gone, another in its place":   {at: map[string]*Engine{there: two}, host: settings, fails: replaced, asked: []string{there, ""}},
		"gone, others everywhere":      {at: map[string]*Engine{there: two, "": two}, host: settings, fails: replaced, asked: []string{there, ""}},
		"gone, another elsewhere":      {at: map[string]*Engine{"": two}, host: settings, fails: silent, asked: []string{there, ""}},
		"gone from the same socket":    {host: there, fails: silent, asked: []string{there}}, // asked once
		"replaced at the same socket":  {at: map[string]*Engine{there: two, "": two}, host: there, fails: replaced, asked: []string{there, ""}},
		"gone, and nobody says whence": {fails: silent, asked: []string{there, ""}},
	} {
		t.Run(name, func(t *testing.T) {
			var asked []string
			s := Engines{
				Connect: func(_ context.Context, host string) (*Engine, error) {
					asked = append(asked, host)
					if e := c.at[host]; e != nil {
						return e, nil
					}
					return nil, silent
				},
				Host: func() (string, error) { return c.host, nil },
			}
			if c.host == "" {
				s.Host = nil
			}
			got, err := s.FindByIdentity(t.Context(), there, one.Facts().Identity(), func(e *Engine) error {
				if e != two {
					t.Errorf("another one is %v", e)
				}
				return replaced
			})
			if got != c.want || !errors.Is(err, c.fails) || (err == nil) != (c.fails == nil) || !slices.Equal(asked, c.asked) {
				t.Errorf("%v, %v, asked %q", got, err, asked)
			}
		})
	}
}
