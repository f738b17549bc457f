package app

import (
	"encoding/json"
	"strings"

	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/agent/codex"
	"github.com/laufwerk/laufwerk/internal/agent/command"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/guest/carried"
	"github.com/laufwerk/laufwerk/internal/imagecache"
	"github.com/laufwerk/laufwerk/internal/project"
	"github.com/laufwerk/laufwerk/internal/providers"
	"github.com/laufwerk/laufwerk/internal/providers/docker"
	"github.com/laufwerk/laufwerk/internal/providers/local"
	"github.com/laufwerk/laufwerk/internal/providers/openshell"
	"github.com/laufwerk/laufwerk/internal/script"
	"github.com/laufwerk/laufwerk/internal/session"
	"github.com/laufwerk/laufwerk/internal/system"
)

// programs are the agent programs of this build, in the order in which people are told of them.
func programs(env *system.Env) agent.Programs {
	list := agent.Programs{
		codex.New(),
	}
	return append(list, command.New(env.Vars, list.APIKeys()...))
}

func imageKinds() []imagecache.Kind { return []imagecache.Kind{docker.Images(), openshell.Images()} }

type parts struct {
	providers map[string]providers.Provider
	programs  agent.Programs
}

// newParts makes them; home is $LAUFWERK_HOME, "" where only rules are asked for, as is nil for engines.
func newParts(env *system.Env, home string, e *engines) parts {
	programs := programs(env)
	return parts{
		programs: programs,
		providers: map[string]providers.Provider{
			local.Kind: local.New(system.Executable(), env.Vars, env.Now).WithPrograms(programs, home),
			docker.Kind: docker.New(docker.Config{
				Executable: system.Program(), Carried: carried.Files(), Vars: env.Vars, Home: env.Home(), State: home, Now: env.Now, UID: system.UID(), GID: system.GID(),
				Connect: e.at, Host: e.host, Programs: programs,
			}),
			openshell.Kind: openshell.New(openshell.Config{
				Executable: system.Program(), Vars: env.Vars, Home: env.Home(), State: home, Now: env.Now, UID: system.UID(), GID: system.GID(),
				Gateway: newGateways(env).at, Connect: e.at, Host: e.host, Programs: programs,
			}),
		},
	}
}

func (p parts) provider(kind string) (providers.Provider, bool) {
	one, ok := p.providers[kind]
	return one, ok
}

func isolate(_ []string, env *system.Env) int {
	return script.Main(env, env.In, env.Out, newParts(env, "", nil))
}

// Validate is script.Validator: the rules of every constructor, inside the child.
func (p parts) Validate(subject string, value json.RawMessage) (json.RawMessage, error) {
	what, name, _ := strings.Cut(subject, "/")
	switch what {
	case "target":
		if one, ok := p.providers[name]; ok {
			def, err := one.Validate(value)
			if err != nil {
				return nil, err
			}
			return json.Marshal(def)
		}
	case "harness":
		if one, ok := p.programs.Find(name); ok {
			return one.Validate(value)
		}
	case "agent":
		a, err := session.NormalizeAgent(value, p.provider, p.programs)
		if err != nil {
			return nil, err
		}
		return json.Marshal(a)
	case "project":
		return project.Validate(value)
	}
	return nil, failure.New(failure.Unsupported, "%s is not part of this build", subject)
}
