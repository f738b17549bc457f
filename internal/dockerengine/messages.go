package dockerengine

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/laufwerk/laufwerk/internal/resource"
)

// streamError is an error that the engine reports inside a stream: it stopped, and says so.
type streamError struct{ text string }

func (r *streamError) Error() string { return r.text }

// readMessages reads what an engine streams while it builds or pulls: JSON objects, under HTTP 200 whatever becomes of it. The
// text of all goes to log; progress, which may be nil, gets each line that says something new. It returns the last image id.
func readMessages(in io.Reader, log io.Writer, progress func(string)) (id string, err error) {
	type message struct {
		Stream, Status, ID, Error string
		ErrorDetail               struct{ Message string }
		Aux                       json.RawMessage
	}
	say := func(text string) error {
		for line := range strings.Lines(text) {
			if line = strings.TrimSpace(line); progress != nil && line != "" {
				progress(line)
			}
		}
		_, err := io.WriteString(log, text)
		return err
	}
	status := ""
	d := json.NewDecoder(in)
	for {
		var m message
		if err := d.Decode(&m); errors.Is(err, io.EOF) {
			return id, nil
		} else if err != nil {
			return id, err
		}
		if failed := cmp.Or(m.ErrorDetail.Message, m.Error); failed != "" {
			_, _ = io.WriteString(log, failed+"\n")
			return id, &streamError{failed}
		}
		text := m.Stream
		if m.Status != "" {
			text = strings.TrimPrefix(m.ID+": ", ": ") + m.Status + "\n"
			if text == status { // the bar alone moved
				continue
			}
			status = text
		}
		if err := say(text); err != nil {
			return id, err
		}
		var aux struct{ ID string }
		if len(m.Aux) > 0 && json.Unmarshal(m.Aux, &aux) == nil && aux.ID != "" {
			id = aux.ID
		}
	}
}

// streamOutcome is the outcome of what came in a stream: with a reported error the engine has stopped.
func streamOutcome(err error) resource.Outcome {
	var r *streamError
	switch {
	case err == nil:
		return resource.Done
	case errors.As(err, &r):
		return resource.NotDone
	default:
		return resource.Unknown
	}
}
