package runs

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"time"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/journal"
	"github.com/laufwerk/laufwerk/internal/protocol"
	"github.com/laufwerk/laufwerk/internal/schema"
	"github.com/laufwerk/laufwerk/internal/system/files"
	"github.com/laufwerk/laufwerk/internal/workflow"
)

// Events reads a run's event log, also after the run's end. With follow it goes on until nobody works on the run any more.
func (s *Service) Events(ctx context.Context, id string, follow bool, fn func(journal.Event) error) error {
	r, err := s.Get(ctx, id)
	if err != nil {
		return err
	}
	path := s.Journal(r.ID).EventsPath()
	f, err := files.Open(path)
	for errors.Is(err, fs.ErrNotExist) {
		if _, live := s.Worker(r.ID); !follow || !live { // a worker makes it when it begins
			if f, err = files.Open(path); errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			break
		}
		if !waitForEvents(ctx) {
			return nil
		}
		f, err = files.Open(path)
	}
	if err != nil {
		return failure.Wrap(err, failure.Failed, "read the event log")
	}
	defer f.Close()
	for {
		_, live := s.Worker(r.ID) // asked before reading: what its last moments wrote is not missed
		if err := readEvents(f, fn); err != nil {
			return err
		}
		if !follow || !live {
			return nil
		}
		if !waitForEvents(ctx) {
			return nil
		}
	}
}

// waitForEvents waits until there may be more events; false where nobody waits for them any more.
func waitForEvents(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(100 * time.Millisecond):
		return true
	}
}

// readEvents hands on the whole lines up to the end of the file. The file is left where the last of them ended.
func readEvents(f *files.File, fn func(journal.Event) error) error {
	var rest []byte
	buf := make([]byte, 64<<10)
	for {
		n, err := f.Read(buf)
		var events []journal.Event
		events, rest = journal.ParseEvents(append(rest, buf[:n]...))
		for _, ev := range events {
			if err := fn(ev); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF) || n == 0:
			_, err = f.Seek(-int64(len(rest)), io.SeekCurrent)
			return err
		case err != nil:
			return failure.Wrap(err, failure.Failed, "read the event log")
		}
	}
}

// checkOutput holds a workflow to the schema of its result: one that does not fit it is the workflow's failure.
func checkOutput(p workflow.Program, output json.RawMessage) (workflow.Program, error) {
	if len(output) == 0 {
		return p, nil
	}
	sc, err := schema.Parse(output)
	if err != nil {
		return nil, failure.New(failure.ProjectInvalid, "the output schema of the workflow: %v", err)
	}
	return outputCheckedProgram{p, sc}, nil
}

type outputCheckedProgram struct {
	workflow.Program
	schema *schema.Schema
}

func (o outputCheckedProgram) Step(ctx context.Context, m *protocol.Message) ([]protocol.Message, error) {
	out, err := o.Program.Step(ctx, m)
	for i := range out {
		if out[i].Type != protocol.TypeDone {
			continue
		}
		value := out[i].Value
		if len(value) == 0 {
			value = json.RawMessage("null")
		}
		if misfit := o.schema.Check(value); misfit != nil {
			e := failure.New(failure.OutputInvalid, "the workflow's result does not match its output schema: %v", misfit)
			out[i] = protocol.Message{Type: protocol.TypeError, Error: workflow.WireError(e)}
		}
	}
	return out, err
}
