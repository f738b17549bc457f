package runs

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/laufwerk/laufwerk/internal/environment"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/journal"
	"github.com/laufwerk/laufwerk/internal/project"
	"github.com/laufwerk/laufwerk/internal/schema"
	"github.com/laufwerk/laufwerk/internal/sha256hex"
	"github.com/laufwerk/laufwerk/internal/store"
	"github.com/laufwerk/laufwerk/internal/system/crash"
	"github.com/laufwerk/laufwerk/internal/system/files"
	"github.com/laufwerk/laufwerk/internal/system/lock"
	"github.com/laufwerk/laufwerk/internal/targets"
)

// Request is a run to start.
type Request struct {
	Project  *project.Project
	Workflow *project.Workflow
	Input    json.RawMessage // JSON; nil is null
	Key      string          // the caller's own name for the run; "" has none
}

func (q Request) input() json.RawMessage {
	if len(q.Input) == 0 {
		return json.RawMessage("null")
	}
	return q.Input
}

// StartedRun is a run with its lease: the caller works on it, or releases the lease.
type StartedRun struct {
	Run     Run
	Targets []targets.Definition // as the config defines them now, with the values that the record does not hold
	Lease   *lock.Lock
	Drift   string // what has become of the workflow's code since the run started, "" where it is the same
}

// Start makes a run. It exists whole or not at all: its folder is complete before the store names it.
func (s *Service) Start(ctx context.Context, q Request) (StartedRun, error) {
	input := q.input()
	if err := checkInput(q.Workflow, input); err != nil {
		return StartedRun{}, err
	}
	if _, err := checkOutput(nil, q.Workflow.Bundle.Output); err != nil {
		return StartedRun{}, err
	}
	targets, err := withoutValues(q.Project.Targets)
	if err != nil {
		return StartedRun{}, err
	}
	id, err := newID(s.now())
	if err != nil {
		return StartedRun{}, err
	}
	r := Run{
		ID: id, Project: q.Project.ID, Scope: q.Project.Scope, Root: q.Project.Root, Workflow: q.Workflow.Name,
		State: Running, Targets: targets, Bundle: q.Workflow.Bundle.Digest, Build: s.Build, Key: q.Key, CreatedAt: s.now(),
	}
	l, err := s.Lease(ctx, id)
	if err != nil {
		return StartedRun{}, err
	}
	if err := s.create(ctx, r, q, input); err != nil {
		l.Release()
		return StartedRun{}, err
	}
	return StartedRun{Run: r, Targets: q.Project.Targets, Lease: l}, nil
}

// withoutValues are definitions without the literal values of variables.
func withoutValues(list []targets.Definition) ([]targets.Definition, error) {
	out := slices.Clone(list)
	for i := range out {
		var err error
		if out[i].Options, err = environment.Redact(out[i].Options); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (s *Service) create(ctx context.Context, r Run, q Request, input json.RawMessage) error {
	if _, _, err := s.findRun(ctx, r.ID); err != nil {
		return err // a store that is refused is refused before anything is made
	}
	dir := s.Dir(r.ID)
	crash.Point("runs/before-folder")
	if err := files.Mkdir(dir); err != nil { // never one that is there: it would be another run's
		return failure.Wrap(err, failure.HomeInvalid, "make the run's folder")
	}
	if err := s.writeRun(dir, r, q, input); err != nil {
		_ = files.RemoveAll(dir)
		return err
	}
	crash.Point("runs/before-commit")
	err := s.Store.Update(ctx, func(tx store.Tx) error {
		if err := s.admit(tx, r, q.Project.Concurrency); err != nil {
			return err
		}
		if err := takeKey(tx, q, r.ID); err != nil {
			return err
		}
		r.UpdatedAt = s.now()
		return tx.Put(store.Runs, r.ID, r)
	})
	if err != nil {
		// Where it is not certain that nothing was committed, the folder stays: clean-up knows.
		if _, named, e := s.findRun(context.WithoutCancel(ctx), r.ID); e == nil && !named {
			_ = files.RemoveAll(dir)
		}
		return err
	}
	crash.Point("runs/after-commit")
	return nil
}

// writeRun writes what a run consists of before its first step.
func (s *Service) writeRun(dir string, r Run, q Request, input json.RawMessage) error {
	bundle, err := json.Marshal(q.Workflow.Bundle)
	if err != nil {
		return err
	}
	if err := files.Write(runFile(dir, "bundle.json"), bundle); err != nil {
		return failure.Wrap(err, failure.HomeInvalid, "keep the workflow's code")
	}
	if err := files.Write(runFile(dir, "input.json"), input); err != nil {
		return failure.Wrap(err, failure.HomeInvalid, "keep the input")
	}
	w, _, err := s.Journal(r.ID).Open()
	if err != nil {
		return err
	}
	defer w.Close()
	return w.Append(journal.Record{Type: journal.Begin, At: r.CreatedAt, Version: journal.Version, Run: r.ID, Build: s.Build})
}

// admit bounds the live runs of a project. A run counts until it is over and nothing of it is outstanding.
func (s *Service) admit(tx store.Tx, r Run, limit int) error {
	if limit <= 0 {
		return nil
	}
	live, err := s.liveRuns(tx, r.Scope)
	if err != nil {
		return err
	}
	if len(live) >= limit {
		return failure.New(failure.AdmissionFull, "the project %s allows %d live runs, and these are: %s. Finish, cancel or clean up one of them",
			r.Project, limit, strings.Join(live, ", ")).WithHint("laufwerk runs show %s", live[0]).WithField("runs", live)
	}
	return nil
}

func (s *Service) liveRuns(tx store.Tx, scope string) ([]string, error) {
	outstanding := map[string]bool{}
	err := tx.Each(store.Claims, "", func(_ string, raw json.RawMessage) error {
		var c claimLine
		if err := json.Unmarshal(raw, &c); err != nil {
			return err
		}
		if c.isOutstanding() && c.Keep == "" {
			outstanding[c.Run] = true
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var live []string
	err = tx.Each(store.Runs, "", func(_ string, raw json.RawMessage) error {
		var r Run
		if err := json.Unmarshal(raw, &r); err != nil {
			return err
		}
		if r.Scope != scope {
			return nil
		}
		pending, err := s.HalfApplied(r.ID)
		if err != nil {
			return err
		}
		if !r.Terminal() || outstanding[r.ID] || pending != "" {
			live = append(live, r.ID)
		}
		return nil
	})
	return live, err
}

func checkInput(w *project.Workflow, input json.RawMessage) error {
	if bad := (*json.SyntaxError)(nil); errors.As(json.Unmarshal(input, new(json.RawMessage)), &bad) {
		return failure.New(failure.InputInvalid, "the input is not JSON: %v (byte %d)", bad, bad.Offset).
			WithHint("laufwerk run %s --input @file.json", w.Name)
	}
	if len(w.Input) == 0 {
		return nil
	}
	sc, err := schema.Parse(w.Input)
	if err != nil {
		return failure.New(failure.ProjectInvalid, "the input schema of the workflow %q: %v", w.Name, err)
	}
	switch err := sc.Check(input); {
	case err != nil && string(bytes.TrimSpace(input)) == "null":
		return failure.New(failure.InputInvalid, "the workflow %q needs an input, whose schema is in %s", w.Name, w.File).
			WithHint("laufwerk run %s --input %s", w.Name, inputSketch(w.Input))
	case err != nil:
		return failure.New(failure.InputInvalid, "the input does not match the workflow %q, whose schema is in %s: %v", w.Name, w.File, err).
			WithHint("laufwerk run %s --input @file.json", w.Name)
	}
	return nil
}

// inputSketch is an argument with the texts that an input must have, to be filled in; a file where it must have more than texts.
func inputSketch(input json.RawMessage) string {
	var s struct {
		Required   []string
		Properties map[string]struct{ Type any }
	}
	if json.Unmarshal(input, &s) != nil || len(s.Required) == 0 {
		return "@file.json"
	}
	fields := make([]string, 0, len(s.Required))
	for _, name := range s.Required {
		key, err := json.Marshal(name)
		if err != nil || s.Properties[name].Type != "string" {
			return "@file.json"
		}
		fields = append(fields, string(key)+`: "…"`)
	}
	return failure.Quote("{" + strings.Join(fields, ", ") + "}")
}

// newID is a day and 40 random bits: short to type, and in order of days.
func newID(now time.Time) (string, error) {
	const alphabet = "0123456789abcdefghjkmnpqrstvwxyz"
	b := make([]byte, 8)
	if _, err := rand.Read(b); err != nil {
		return "", err
	}
	for i := range b {
		b[i] = alphabet[b[i]&31]
	}
	return fmt.Sprintf("%s-%s", now.Format("060102"), b), nil
}

// keyRecord is who has a key of a project: the caller's own name for a run, so that asking twice starts one run.
type keyRecord struct {
	Run      string `json:"run"`
	Workflow string `json:"workflow"`
	Input    string `json:"input"` // sha256 of the input, as compact JSON
}

func keyName(scope, key string) string { return scope + "/" + key }

func inputDigest(input json.RawMessage) string {
	var v any
	if json.Unmarshal(input, &v) == nil {
		if b, err := json.Marshal(v); err == nil { // keys are sorted: spaces and order do not make another input
			input = b
		}
	}
	return sha256hex.Of(input)
}

// ByKey is the run of the project that has the request's key; ok is false where there is none. Another workflow or input
// under the same key is a conflict.
func (s *Service) ByKey(ctx context.Context, q Request) (r Run, ok bool, err error) {
	if q.Key == "" {
		return r, false, nil
	}
	var k keyRecord
	err = s.Store.View(ctx, func(tx store.Tx) error {
		ok, err = tx.Get(store.Keys, keyName(q.Project.Scope, q.Key), &k)
		return err
	})
	if err != nil || !ok {
		return r, false, err
	}
	if err := k.checkInput(q); err != nil {
		return r, false, err
	}
	r, err = s.Get(ctx, k.Run)
	return r, err == nil, err
}

func (k keyRecord) checkInput(q Request) error {
	if k.Workflow == q.Workflow.Name && k.Input == inputDigest(q.input()) {
		return nil
	}
	what := "another input"
	if k.Workflow != q.Workflow.Name {
		what = "another workflow (" + k.Workflow + ")"
	}
	return failure.New(failure.AlreadyExists, "the key %q belongs to run %s with %s", q.Key, k.Run, what).
		WithField("run", k.Run).WithHint("laufwerk runs show %s   # or use another key", k.Run)
}

// takeKey gives the key to a run that is being made. It fails where another process was faster.
func takeKey(tx store.Tx, q Request, run string) error {
	if q.Key == "" {
		return nil
	}
	name := keyName(q.Project.Scope, q.Key)
	var k keyRecord
	ok, err := tx.Get(store.Keys, name, &k)
	if err != nil {
		return err
	}
	if ok {
		if err := k.checkInput(q); err != nil {
			return err
		}
		return failure.New(failure.AlreadyExists, "another command has just started run %s with the key %q", k.Run, q.Key).
			WithField("run", k.Run).WithHint("laufwerk runs show %s", k.Run)
	}
	return tx.Put(store.Keys, name, keyRecord{Run: run, Workflow: q.Workflow.Name, Input: inputDigest(q.input())})
}

func dropKeys(tx store.Tx, run string) error {
	return tx.Each(store.Keys, "", func(name string, raw json.RawMessage) error {
		var k keyRecord
		if err := json.Unmarshal(raw, &k); err != nil {
			return failure.Wrap(err, failure.StoreInvalid, "read a key")
		}
		if k.Run != run {
			return nil
		}
		return tx.Delete(store.Keys, name)
	})
}
