package docker

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/checks"
	"github.com/laufwerk/laufwerk/internal/dockerengine"
	"github.com/laufwerk/laufwerk/internal/dockerengine/owned"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/guest"
	"github.com/laufwerk/laufwerk/internal/providers"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/system/process"
	"github.com/laufwerk/laufwerk/internal/targets"
)

// Examine looks at the engine, in one call where it was not met yet, and at the image, in another one.
func (p *Provider) Examine(ctx context.Context, def targets.Definition) []checks.Check {
	c, err := decode(def)
	if err != nil {
		return []checks.Check{checks.Failed("options", err)}
	}
	var out []checks.Check
	e, err := p.c.Connect(ctx, "")
	if err != nil {
		failed := checks.Failed("engine", err)
		if failed.Hint == "" {
			failed.Hint = "docker info"
		}
		out = append(out, failed)
		for _, id := range []string{"supervisor", "limits", "user", "image"} {
			out = append(out, checks.New(id, checks.Skip, "not checked: the engine cannot be reached"))
		}
		out = append(out, p.examinePrograms(c, selectedImage{}, err)...)
	} else {
		f := e.Facts()
		out = append(out, checks.New("engine", checks.Pass, "Docker %s answers at %s", f.Version, e.Endpoint()).
			WithEvidence(f.Identity(), "API "+f.API, "control groups: version "+f.CgroupVersion))
		out = append(out, p.examineSupervisor(f), examineLimits(c, f), p.examineUser(f))
		i, err := p.image(ctx, e, def, c)
		out = append(out, p.examineImage(def, c, i, err))
		out = append(out, p.examinePrograms(c, i, err)...)
	}
	for _, name := range c.Env.Missing(p.c.Vars) {
		out = append(out, checks.New("env", checks.Fail, "the variable %s, which the target %q takes from the worker's environment, is not set", name, def.ID))
	}
	return append(out, p.examineHelpers())
}

func (p *Provider) examineSupervisor(f dockerengine.Facts) checks.Check {
	if err := p.checkEngine(f); err != nil {
		return checks.Failed("supervisor", err)
	}
	return checks.New("supervisor", checks.Pass, "the engine runs %s/%s containers, and this build contains the supervisor for them", f.OS, f.Arch)
}

func examineLimits(c config, f dockerengine.Facts) checks.Check {
	_, lacking := owned.UnenforcedLimits(f, c.Resources)
	err := owned.CheckLimits(f, c.Resources)
	switch {
	case err != nil:
		return checks.Failed("limits", err).WithEvidence(lacking...)
	case c.Resources.PIDs > 0 && c.Resources.PIDs < lowPIDLimit:
		return checks.New("limits", checks.Warn, "`resources.pids` is %d, and the threads of laufwerk's own program in a container count too: fewer than %d may be too few to start any command", c.Resources.PIDs, lowPIDLimit)
	case len(lacking) > 0:
		return checks.New("limits", checks.Pass, "the engine enforces the limits that the target has; it could not enforce %s", strings.Join(lacking, ", "))
	}
	return checks.New("limits", checks.Pass, "the engine enforces limits of cpus, memory, swap and processes")
}

// examineUser says who works in containers.
func (p *Provider) examineUser(f dockerengine.Facts) checks.Check {
	w := owned.ContainerUserFor(f, p.c.UID, p.c.GID)
	out := checks.New("user", checks.Pass, "sessions run as %s", w.User)
	switch {
	case f.Rootless:
		out.Message = "the engine runs without root: root in a container is the user who started the engine, and has no more rights"
	case w.Nobody:
		out.Message += ", since laufwerk runs as root; the files of workspaces are owned by that user"
	default:
		out.Message += ", the user of this process"
	}
	if w.UserNS != "" {
		out.Message += "; the engine maps users, and sessions use the user namespace of this host, so that files have the right owner"
	}
	return out
}

func (p *Provider) examineImage(def targets.Definition, c config, i selectedImage, err error) checks.Check {
	switch {
	case err != nil:
		return checks.Failed("image", err)
	case c.Image != "":
		return checks.New("image", checks.Pass, "the image %s is on the engine", c.Image).WithEvidence(i.image.ID)
	}
	receipt := p.cache(def, c).StandardFile()
	if c.Prepared != nil {
		receipt = c.Prepared.Manifest
	}
	return checks.New("image", checks.Pass, "the prepared image is on the engine and matches its receipt").WithEvidence(i.image.ID, receipt)
}

// examinePrograms looks for the agent programs and their logins, where the target gives agents one.
func (p *Provider) examinePrograms(c config, i selectedImage, imageErr error) (out []checks.Check) {
	for _, program := range p.c.Programs {
		name, credential := program.Name(), program.Credential()
		if credential != nil && !slices.Contains(c.Credentials, credential.Kind) {
			out = append(out, checks.New(name, checks.Skip, "the target has no `credentials`, so no agent uses %s", program.Title()))
			continue
		}
		if program.Recipe() != nil {
			out = append(out, examineInstalled(program, c, p.carried(program, c, i.prepared), imageErr))
		}
		if credential == nil {
			continue
		}
		if l, err := p.login(c, credential); err != nil {
			out = append(out, checks.Failed(name+".login", err))
		} else {
			out = append(out, credential.Check(name+".login", l, p.c.Now()))
		}
	}
	return out
}

// examineInstalled says whether the image carries a program, or what it takes to install it in each session.
func examineInstalled(program agent.Program, c config, carried bool, imageErr error) checks.Check {
	at, title, version := program.Name()+".program", program.Title(), program.Recipe().Version
	switch {
	case imageErr != nil:
		return checks.New(at, checks.Skip, "not checked: the image is missing")
	case !carried && c.Network == noNetwork:
		return checks.Failed(at, unpreparedError(c, program))
	case c.Network == noNetwork:
		return checks.New(at, checks.Warn, "%s %s is in the image, and with `network: \"none\"` it cannot reach a model server", title, version)
	case !carried:
		return checks.New(at, checks.Warn, "the %s contains no prepared %s: every session installs %s %s before its first turn, which needs pnpm and network access, and takes time",
			c.imageName(), title, title, version).WithHint("laufwerk prepare docker   # and leave `image` out of the target, or build on the prepared image")
	}
	return checks.New(at, checks.Pass, "%s %s is in the image", title, version)
}

// examineHelpers looks whether the programs are there that Docker's own command line asks for logins when it pulls.
func (p *Provider) examineHelpers() checks.Check {
	const id = "helpers"
	programs, path, err := dockerengine.Finder{Vars: p.c.Vars, Home: p.c.Home}.Helpers()
	if err != nil {
		return checks.New(id, checks.Warn, "%v; images that are on the engine can be used", err).WithEvidence(path)
	}
	var missing []string
	for _, name := range programs {
		if _, err := process.Find(name, p.c.Vars["PATH"], "/"); err != nil {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return checks.New(id, checks.Warn, "the credential helper %s, which %s names, is not on PATH: `docker pull` fails; images that are on the engine can be used",
			strings.Join(missing, " and "), path).WithEvidence(path).WithHint("grep -n cred %s   # install the program that it names, or remove the line", failure.Quote(path))
	}
	return checks.New(id, checks.Pass, "every credential helper that Docker's configuration names is on PATH")
}

// Probe asks our own program in the container, which every image can run, what the image has.
func (p *Provider) Probe(in resource.Intent, def targets.Definition) providers.Probe {
	return providers.Probe{Argv: guest.Probe(), Read: func(stdout []byte) []checks.Check {
		got, err := guest.ReadProbe(stdout)
		if err != nil {
			return []checks.Check{checks.Failed("", err)}
		}
		ran := checks.New("", checks.Pass, "a command ran in a container with access to files and locks of this host, and everything was removed afterwards").
			WithEvidence(fmt.Sprintf("user %d:%d", got.UID, got.GID), "kernel "+got.Kernel)
		c, _ := decode(def)
		s, _, err := readSpec(in)
		return []checks.Check{ran, checkTools(got, p.c.Programs.Installable(), func(program agent.Program) bool {
			credential := program.Credential()
			return err == nil && !p.carried(program, c, s.Prepared) && (credential == nil || slices.Contains(c.Credentials, credential.Kind))
		})}
	}}
}

// checkTools says what an image lacks. Those of the programs that inSessions names are installed in each session.
func checkTools(got guest.ProbeResult, programs agent.Programs, inSessions func(agent.Program) bool) checks.Check {
	var titles []string
	for _, p := range programs {
		titles = append(titles, p.Title())
	}
	why, installs := strings.Join(titles, " or ")+" is installed with it", slices.ContainsFunc(programs, inSessions)
	out := checks.New("tools", checks.Pass, "the image has bash, git, node, pnpm and setsid")
	var lacks []string
	for _, t := range []struct {
		name, why string
		needed    bool
	}{
		{"bash", "session.exec runs commands with it", true}, {"git", "agents work with it", false},
		{"node", why, installs}, {"pnpm", why, installs}, {"setsid", "agents start programs with it", false},
	} {
		if tool, ok := got.Tools[t.name]; ok {
			out = out.WithEvidence(strings.TrimSpace(tool.Path + " " + tool.Version))
			continue
		}
		lacks = append(lacks, t.name+" ("+t.why+")")
		if t.needed {
			out.Status = checks.Fail
		} else if out.Status == checks.Pass {
			out.Status = checks.Warn
		}
	}
	if len(lacks) > 0 {
		out.Message = "the image has no " + strings.Join(lacks, ", no ")
		out = out.WithHint("laufwerk prepare docker --image IMAGE   # with one that has them, or add them to the target's own")
	}
	return out
}
