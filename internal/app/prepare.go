package app

import (
	"context"
	"strings"

	"github.com/laufwerk/laufwerk/internal/cli"
	"github.com/laufwerk/laufwerk/internal/dockerengine"
	"github.com/laufwerk/laufwerk/internal/guest/carried"
	"github.com/laufwerk/laufwerk/internal/prepare"
	"github.com/laufwerk/laufwerk/internal/redact"
	"github.com/laufwerk/laufwerk/internal/runs"
	"github.com/laufwerk/laufwerk/internal/system"
)

func preparations(d *cli.Deps) *prepare.Service {
	open := opens(d)
	return &prepare.Service{
		Vars: d.Env.Vars, UserHome: d.Env.Home(), Now: d.Env.Now, Command: "laufwerk " + redact.Line(strings.Join(d.Env.Args, " ")),
		Say:   func(format string, args ...any) { d.UI.Talkf(format, args...) },
		Kinds: imageKinds(), Programs: programs(d.Env),
		Home: func() (string, error) {
			set, err := d.Settings()
			if err != nil {
				return "", err
			}
			return set.Home()
		},
		Open: func(ctx context.Context, create bool) (prepare.Opened, error) {
			get := open.OpenToRead
			if create {
				get = func(ctx context.Context) (*runs.Service, error) { return open(ctx, true) }
			}
			s, err := get(ctx)
			if err != nil {
				return prepare.Opened{}, err
			}
			return prepare.Opened{
				Home: s.Home, Claims: s.Driver, Provider: s.Provider,
				Binary: carried.New(system.Program(), s.Home.Dir(), carried.Files()).Path,
			}, nil
		},
		Project: projects{d}.LoadToPrepare,
		Engine: func(ctx context.Context) (*dockerengine.Engine, error) {
			set, err := d.Settings()
			if err != nil {
				return nil, err
			}
			return newEngines(d.Env, set).at(ctx, "")
		},
	}
}
