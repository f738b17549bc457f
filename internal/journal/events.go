package journal

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"sync"
	"time"

	"github.com/laufwerk/laufwerk/internal/system/files"
)

// Event is one line of a run's event log: what people follow, kept after the end. The log tells nothing that the journal
// needs, so it is not fsynced, and a torn line is passed over by readers.
type Event struct {
	At   time.Time       `json:"at"`
	Kind string          `json:"kind"` // "operation", "attempt", "attached", "progress", "agent", "output", "stderr", "question", "message", "notice", "console"
	Op   string          `json:"op,omitempty"`
	Text string          `json:"text,omitempty"`
	Data json.RawMessage `json:"data,omitempty"`
	Upto int64           `json:"upto,omitempty"` // "agent", "output": bytes of the operation's stdout that this and earlier lines tell
}

// EventsPath is the event log, newline-delimited JSON.
func (j *Journal) EventsPath() string { return filepath.Join(j.dir, "events.ndjson") }

// Events appends to the event log. A log that cannot be written is no reason to stop a run.
type Events struct {
	mu sync.Mutex
	f  *files.File
}

// OpenEvents opens the event log for its one writer. A line that a killed one left torn is ended, so that it takes no other
// with it.
func (j *Journal) OpenEvents() (*Events, error) {
	f, err := files.Append(j.EventsPath())
	if err != nil {
		return nil, err
	}
	last := make([]byte, 1)
	if st, err := f.Stat(); err == nil && st.Size() > 0 {
		if _, err := f.ReadAt(last, st.Size()-1); err == nil && last[0] != '\n' {
			_, _ = f.Write([]byte{'\n'})
		}
	}
	return &Events{f: f}, nil
}

// Append writes one line.
func (e *Events) Append(ev Event) {
	b, err := json.Marshal(ev)
	if err != nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	_, _ = e.f.Write(append(b, '\n'))
}

// Close closes the log.
func (e *Events) Close() error { return e.f.Close() }

// ParseEvents returns the whole lines of a chunk and what is left over.
func ParseEvents(chunk []byte) (events []Event, rest []byte) {
	for {
		i := bytes.IndexByte(chunk, '\n')
		if i < 0 {
			return events, chunk
		}
		var ev Event
		if json.Unmarshal(chunk[:i], &ev) == nil {
			events = append(events, ev)
		}
		chunk = chunk[i+1:]
	}
}
