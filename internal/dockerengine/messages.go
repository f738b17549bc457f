package dockerengine

import (
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/providers"
)

// reported is an error that the engine reports inside a stream: it stopped, and says so.
type reported struct{ text string }

func (r *reported) Error() string { return r.text }

// readMessages reads what an engine streams while it builds or pulls: JSON objects, under HTTP 200 whatever becomes of it. The
// text of all goes to log; progress, which may be nil, gets each line that says something new. It returns the last image id.
func readMessages(in io.Reader, log io.Writer, progress func(string)) (id string, err error) {
	type message struct {
		Stream, Status, ID, Error string
		ErrorDetail               struct{ Message string }
		Aux                       json.RawMessage
	}
	say := func(text string) error {
		if progress != nil && strings.TrimSpace(text) != "" {
			progress(strings.TrimSpace(text))
		}
		_, err := io.WriteString(log, text)
		return err
	}
	last := ""
	d := json.NewDecoder(in)
	for {
		var m message
		if err := d.Decode(&m); errors.Is(err, io.EOF) {
			return id, nil
		} else if err != nil {
			return id, err
		}
		text := m.Stream
		if m.Status != "" {
			text = strings.TrimPrefix(m.ID+": ", ": ") + m.Status + "\n"
		}
		if failed := m.Error + m.ErrorDetail.Message; failed != "" {
			failed = m.ErrorDetail.Message
			if failed == "" {
				failed = m.Error
			}
			_, _ = io.WriteString(log, failed+"\n")
			return id, &reported{failed}
		}
		if text != "" && text != last { // progress bars repeat their line
			if err := say(text); err != nil {
				return id, err
			}
			last = text
		}
		var aux struct{ ID string }
		if len(m.Aux) > 0 && json.Unmarshal(m.Aux, &aux) == nil && aux.ID != "" {
			id = aux.ID
		}
	}
}

// streamed ends a call whose result came in a stream.
func (e *Engine) streamed(c *call, err error, format string, args ...any) (providers.Done, error) {
	if err == nil {
		return providers.Yes, nil
	}
	var r *reported
	if errors.As(err, &r) {
		return providers.No, e.explain(c, err, failure.Failed, format, args...)
	}
	return providers.Unknown, e.explain(c, err, failure.OutcomeUnknown, format, args...)
}
