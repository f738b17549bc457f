package runs

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"time"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/journal"
	"github.com/laufwerk/laufwerk/internal/system/files"
)

// Events reads a run's event log, also after the run's end. With follow it goes on until nobody works on the run any more.
func (s *Service) Events(ctx context.Context, id string, follow bool, fn func(journal.Event) error) error {
	r, err := s.Get(ctx, id)
	if err != nil {
		return err
	}
	f, err := files.Open(s.Journal(r.ID).EventsPath())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return failure.Wrap(err, failure.Failed, "read the event log")
	}
	defer f.Close()
	var rest []byte
	buf := make([]byte, 64<<10)
	for {
		_, live := s.Worker(r.ID) // asked before reading: what its last moments wrote is not missed
		for {
			n, err := f.Read(buf)
			var events []journal.Event
			events, rest = journal.ParseEvents(append(rest, buf[:n]...))
			for _, ev := range events {
				if err := fn(ev); err != nil {
					return err
				}
			}
			if errors.Is(err, io.EOF) || n == 0 {
				break
			}
			if err != nil {
				return failure.Wrap(err, failure.Failed, "read the event log")
			}
		}
		if !follow || !live {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(100 * time.Millisecond):
		}
	}
}
