package runs

import (
	"context"
	"encoding/json"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/sha256hex"
	"github.com/laufwerk/laufwerk/internal/store"
)

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
		WithField("run", k.Run).WithHint("laufwerk runs show %s; or use another key", k.Run)
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
		return failure.New(failure.AlreadyExists, "run %s has the key %q since this moment", k.Run, q.Key).
			WithField("run", k.Run).WithHint("laufwerk runs show %s", k.Run)
	}
	return tx.Put(store.Keys, name, keyRecord{Run: run, Workflow: q.Workflow.Name, Input: inputDigest(q.input())})
}

// dropKeys frees the keys of a run that is removed.
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
