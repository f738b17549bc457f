package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/doctor"
	"github.com/laufwerk/laufwerk/internal/imagecache"
	"github.com/laufwerk/laufwerk/internal/openshell"
	"github.com/laufwerk/laufwerk/internal/prepare"
	"github.com/laufwerk/laufwerk/internal/project"
	"github.com/laufwerk/laufwerk/internal/script"
)

// UseCases are what commands ask of the program below them. internal/app fills them with the providers and agent programs of
// this build.
type UseCases struct {
	Open     OpenRuns
	Projects Projects
	Programs agent.Programs // of this build
	// Preparation makes what targets need ready.
	Preparation Preparation
	ImageKinds  []imagecache.Kind // whose images can be prepared: each has a command below prepare
	// Doctor makes the options of an examination; probe says whether it may allocate.
	Doctor func(probe bool) doctor.Options
	// Gateway connects to the OpenShell gateway that is registered under an alias.
	Gateway func(ctx context.Context, alias string) (*openshell.Gateway, error)
}

// Projects loads projects.
type Projects interface {
	// Load loads the project at root.
	Load(ctx context.Context, root string) (*project.Project, error)
	// Check loads the project at root and every workflow of it, as it would be with the files of overlay.
	Check(ctx context.Context, root string, overlay map[string][]byte) (*project.Project, error)
	// ScriptRunner evaluates modules for `laufwerk script`; log gets what they print.
	ScriptRunner(log func(level, text string)) (*script.Runner, error)
}

// Preparation is what commands need of prepare.Service.
type Preparation interface {
	Local(ctx context.Context, r prepare.LocalRequest) ([]prepare.LocalResult, error)
	Images(ctx context.Context, r prepare.ImageRequest) ([]prepare.TargetImage, error)
	NewTarget(ctx context.Context, root, kind, id string) (*prepare.TargetImage, error)
	ListImages(ctx context.Context, directory string) ([]imagecache.Image, error)
	PruneImages(ctx context.Context, directory string, dry bool) ([]imagecache.PruneResult, error)
}

// constructors is the table of all commands below the root.
func constructors() map[string]func(*Deps) *cobra.Command {
	return map[string]func(*Deps) *cobra.Command{
		"demo":       newDemo,
		"init":       newInit,
		"prepare":    newPrepare,
		"provision":  newProvision,
		"doctor":     newDoctor,
		"run":        newRun,
		"resume":     newResume,
		"answer":     newAnswer,
		"diff":       newDiff,
		"writeback":  newWriteback,
		"runs":       newRuns,
		"cleanup":    newCleanup,
		"claims":     newClaims,
		"images":     newImages,
		"types":      newTypes,
		"script":     newScript,
		"config":     newConfig,
		"completion": newCompletion,
		"version":    newVersion,
		"help":       newHelp,
	}
}

// NewCommands is the table of commands over use cases. No command is made before it is called for.
func NewCommands(d *Deps, u UseCases) Commands {
	d.UseCases = u
	out := Commands{}
	for name, construct := range constructors() {
		out[name] = func() *cobra.Command { return construct(d) }
	}
	return out
}
