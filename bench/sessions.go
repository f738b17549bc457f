package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/laufwerk/laufwerk/internal/claims"
	"github.com/laufwerk/laufwerk/internal/providers"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/store"
	"github.com/laufwerk/laufwerk/internal/supervise"
	"github.com/laufwerk/laufwerk/internal/targets"
)

// sessions are opened as runs do it: with claims, in a store of their own.
type sessions struct {
	b         *bench
	p         providers.Provider
	def       targets.Definition
	name      func(claim string) string // of what the provider makes
	driver    *claims.Driver
	workspace string
	dir       string
	n         int

	now opened
}

// opened is a session.
type opened struct {
	claim, dir string
	sandbox    providers.Sandbox
}

func newSessions(b *bench, dir, home string, def targets.Definition, p providers.Provider, name func(claim string) string) (*sessions, error) {
	s := &sessions{b: b, p: p, def: def, name: name, dir: dir, workspace: filepath.Join(dir, "workspace")}
	if err := os.MkdirAll(s.workspace, 0o777); err != nil {
		return nil, err
	}
	h, err := store.OpenHome(home, true)
	if err != nil {
		return nil, err
	}
	st := store.Open(h, time.Now, "bench")
	s.driver = claims.NewDriver(claims.Options{
		Store: st, Now: time.Now, Owner: st.ID,
		Resources: func(claims.Kind, string) (resource.Manager, bool) { return p, true },
	})
	return s, nil
}

func (s *sessions) whole() (cost, error) {
	return within(func() error {
		err := s.open()
		if err == nil {
			err = s.exec()
		}
		return errors.Join(err, s.close())
	})
}

func (s *sessions) open() error {
	s.n++
	operation := fmt.Sprintf("session:%d", s.n)
	id := claims.ID("bench", operation)
	dir := filepath.Join(s.dir, "sessions", id)
	plan, missing, err := s.p.Plan(s.b, s.def, providers.Need{Workspace: true}, providers.SessionSpec{Key: "k", Dir: dir, Workspace: s.workspace, Mark: id})
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		return targets.NotReady(s.def, missing)
	}
	endpoint, err := s.p.Endpoint(s.b, s.def)
	if err != nil {
		return err
	}
	s.now = opened{claim: id, dir: dir}
	c, err := s.driver.Allocate(s.b, claims.Request{
		ID: id, Kind: claims.KindSession, Provider: s.def.Kind, Target: s.def.ID, Run: "bench", Operation: operation, Image: plan.Image,
		Intent: resource.Intent{Name: s.name(id), Endpoint: endpoint, Spec: plan.Spec},
	})
	if err != nil {
		return err
	}
	s.now.sandbox, err = s.p.Enter(s.b, c.Intent, s.def)
	return err
}

func (s *sessions) exec() error {
	sb, mark := s.now.sandbox, s.now.claim
	p, err := supervise.Start(s.b, sb.Launcher(), filepath.Join(s.now.dir, "ops", "1"), supervise.Spec{
		Argv: []string{"true"}, Env: sb.BaseEnv(), Dir: sb.Workdir(), Mark: supervise.Mark(mark, "1"), MaxOutput: 1 << 20,
	})
	if err != nil {
		return err
	}
	exit, err := p.Wait(s.b)
	if err == nil && exit.Code != 0 {
		err = fmt.Errorf("the command ended with %d %s", exit.Code, exit.Error)
	}
	return err
}

// close closes the session that is open, if one is.
func (s *sessions) close() error {
	id := s.now.claim
	s.now = opened{}
	if id == "" {
		return nil
	}
	_, err := s.driver.Release(s.b, id)
	return err
}
