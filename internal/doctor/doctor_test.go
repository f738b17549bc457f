package doctor

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/internal/providers"
	"github.com/laufwerk/laufwerk/internal/runs"
	"github.com/laufwerk/laufwerk/internal/script"
	"github.com/laufwerk/laufwerk/internal/system/files"
)

// A check that hangs is a failure by itself, and holds no other up.
func TestAHungCheckFailsAlone(t *testing.T) {
	never := make(chan struct{})
	defer close(never)
	d := &doctor{Options: Options{Bound: 20 * time.Millisecond}}
	got := d.runChecks(context.Background(), []check{
		{"first", func(context.Context) []Check { return oneCheck(Pass, "fine") }},
		{"hung", func(context.Context) []Check { <-never; return nil }},
		{"last", func(context.Context) []Check { return []Check{{ID: "last.part", Status: Warn}} }},
	})
	if len(got) != 3 || got[0].ID != "first" || got[0].Status != Pass || got[1].ID != "hung" || got[1].Status != Fail ||
		!strings.Contains(got[1].Message, "no answer within") || got[2].ID != "last.part" {
		t.Errorf("%+v", got)
	}
}

// Whatever cannot be had is said, and the rest is looked at all the same.
func TestNothingWorks(t *testing.T) {
	no := errors.New("no")
	rep, err := Examine(context.Background(), Options{
		Settings: func() (string, error) { return "", no },
		Open:     func(context.Context) (*runs.Service, error) { return nil, no },
		Runner:   func() (*script.Runner, error) { return nil, no },
		Provider: func(string) (providers.Provider, bool) { return nil, false },
		Dir:      t.TempDir(), Now: time.Now,
	})
	if err != nil {
		t.Fatal(err)
	}
	status := map[string]Status{}
	for _, c := range rep.Checks {
		if c.Message == "" || status[c.ID] != "" {
			t.Errorf("%+v", c)
		}
		status[c.ID] = c.Status
	}
	for id, want := range map[string]Status{"settings": Fail, "home": Skip, "store": Skip, "claims": Skip, "project": Skip, "fence": Pass} {
		if status[id] != want {
			t.Errorf("%s is %q, want %q", id, status[id], want)
		}
	}
	if rep.Worst() != Fail {
		t.Errorf("worst is %s", rep.Worst())
	}
}

// A disk that is filling up is said in time, by its bytes and by its inodes; some file systems count none of these.
func TestRoom(t *testing.T) {
	for name, c := range map[string]struct {
		free files.FreeSpace
		want Status
	}{
		"plenty":                 {files.FreeSpace{Bytes: 100 << 30, Inodes: 1_000_000, AllInodes: 2_000_000}, Pass},
		"few bytes":              {files.FreeSpace{Bytes: 1 << 30, Inodes: 1_000_000, AllInodes: 2_000_000}, Warn},
		"hardly any byte":        {files.FreeSpace{Bytes: 100 << 20, Inodes: 1_000_000, AllInodes: 2_000_000}, Fail},
		"few inodes":             {files.FreeSpace{Bytes: 100 << 30, Inodes: 10_000, AllInodes: 2_000_000}, Warn},
		"no inode":               {files.FreeSpace{Bytes: 100 << 30, AllInodes: 2_000_000}, Fail},
		"inodes are not counted": {files.FreeSpace{Bytes: 100 << 30}, Pass},
	} {
		got := spaceCheck(t.TempDir(), c.free)
		if got.Status != c.want || (got.Hint == "") != (c.want == Pass) || len(got.Evidence) != 1 {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestMask(t *testing.T) {
	m := NewMask("/home/ann", "ann", map[string]string{"GH_TOKEN": "s3cr3t-value", "EDITOR": "vim-is-kept"}, []string{"the-login-token"})
	for in, want := range map[string]string{
		"/home/ann/x and /home/anna": "~/x and /home/anna",
		"user ann, annual":           "user <user>, annual",
		"s3cr3t-value vim-is-kept":   "<secret> vim-is-kept",
		"a the-login-token.":         "a <secret>.",
		"sk-abcdefgh12345678":        "<secret>",
		"Bearer abc.def.ghi":         "<secret>",
		"eyJhbGciOi.eyJzdWIi.c2ln":   "<secret>",
		"https://u:pw@host/x":        "https://u:<secret>@host/x",
		"ghp_0123456789abcdefghij":   "<secret>",
		"sha256:0123456789abcdef":    "sha256:0123456789abcdef",
	} {
		if got := m.Text(in); got != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
	}
}
