// Package imagecache keeps and finds prepared images: a base image with the pinned agent program in it, and nothing else of
// ours. An image is made from a recipe, whose fingerprint covers everything that matters for what is in it; that it was made
// is recorded in a receipt. Package prepare makes them.
//
//	<cache>/codex-docker.json  the receipt of the standard image: written last, so that what it names is whole
//	<cache>/made/              what was made from a recipe
//	<cache>/building/          what is being built, or was when its maker was killed
//	<cache>/elsewhere/         which receipts lie outside of the cache
//	<cache>/logs/, locks/      one for each fingerprint; locks are never removed
//	<cache>/stage/             directories of preparation containers
package imagecache

import (
	"encoding/json"
	"io/fs"
	"strings"

	"github.com/docker/docker/api/types/image"

	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/dockerengine/owned"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/sha256hex"
)

// DefaultBase is the public image that is prepared where nobody names another. It has Node 22, npm, git, bash and setsid.
const DefaultBase = "docker.io/library/node:22-bookworm"

// version is that of how images are made: it is raised with every change that no other part of a recipe tells.
const version = "1"

// PNPMVersion is the one that is installed where an image has npm and no usable pnpm.
const PNPMVersion = "10.34.9"

// NPMInstallsPNPM is the command with which npm installs the pinned pnpm.
func NPMInstallsPNPM() []string {
	return []string{"npm", "install", "--ignore-scripts", "--no-save", "--no-audit", "--no-fund", "--no-progress", "--loglevel=error", "pnpm@" + PNPMVersion}
}

// The labels of prepared images.
const (
	LabelRecipe    = owned.LabelPrefix + "recipe"    // the fingerprint
	LabelBootstrap = owned.LabelPrefix + "bootstrap" // the part of it that does not depend on base image and user
	LabelBuild     = owned.LabelPrefix + "build"     // which of our builds made it
)

// File is a file of a program's tree.
type File struct {
	Path string // relative to the tree
	Mode fs.FileMode
	Data []byte
}

// Program is what is installed.
type Program struct {
	Name    string // "codex"
	Title   string // for people: "Codex"
	Version string
	Files   []File   // put into the empty tree
	Install []string // then pnpm is run there, with these arguments
	Says    string   // what `--version` prints
	// Binary is the native executable's path below the tree, "" for a platform that has none ("linux/amd64").
	Binary func(platform string) string
	// HomeVariable names the variable that leads it to its private home; "" for none.
	HomeVariable string
}

// NewProgram is what is installed of an agent program that has a recipe. Nil, in a build without such a program, runs nowhere.
func NewProgram(p agent.Program) Program {
	if p == nil {
		return Program{Name: "none", Title: "agent program", Binary: func(string) string { return "" }}
	}
	r := p.Recipe()
	out := Program{Name: p.Name(), Title: p.Title(), Version: r.Version, Install: agent.PNPMInstall(), Says: r.ExpectedVersion(), Binary: r.Binary, HomeVariable: r.HomeVariable}
	for _, f := range r.PNPMFiles() {
		out.Files = append(out.Files, File{Path: f.Name, Mode: 0o644, Data: f.Content})
	}
	return out
}

// Recipe is everything that an image is made from. Times are no part of it.
type Recipe struct {
	bootstrap
	Base  string `json:"base"` // the base image's id
	User  int    `json:"user"` // for whose sessions it was proved to work: the worker's on the host
	Group int    `json:"group"`
}

// bootstrap is what does not depend on the base image and the user.
type bootstrap struct {
	Version  string         `json:"recipe"`
	Program  string         `json:"program"`
	Release  string         `json:"version"`
	Files    []recordedFile `json:"files"`
	Commands [][]string     `json:"commands"`
	Binary   string         `json:"binary"`
	Says     string         `json:"says"`
	Prefix   string         `json:"prefix"`
	Platform string         `json:"platform"`
	Layout
}

type recordedFile struct {
	Path string `json:"path"`
	Mode uint32 `json:"mode"`
	Sum  string `json:"sha256"`
}

func (c Cache) bootstrap(platform string) bootstrap {
	p := c.Program
	b := bootstrap{
		Version: version, Program: p.Name, Release: p.Version, Binary: p.Binary(platform), Says: p.Says, Prefix: c.Prefix, Platform: platform,
		Commands: [][]string{append([]string{"pnpm"}, p.Install...), NPMInstallsPNPM()}, Layout: c.Layout,
	}
	for _, f := range p.Files {
		b.Files = append(b.Files, recordedFile{Path: f.Path, Mode: uint32(f.Mode), Sum: sha256hex.Of(f.Data)})
	}
	return b
}

// Fingerprint is the digest of a recipe: "sha256:…".
func (r Recipe) Fingerprint() string { return digest(r) }

// BootstrapFingerprint is the digest of the part of a recipe that does not depend on the base image and the user.
func (r Recipe) BootstrapFingerprint() string { return r.bootstrap.fingerprint() }

func (b bootstrap) fingerprint() string { return digest(b) }

func digest(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // strings and numbers
	}
	return "sha256:" + sha256hex.Of(b)
}

// short is what names have of a digest.
func short(digest string) string { return strings.TrimPrefix(digest, "sha256:")[:16] }

// Platform is an image's, as recipes have it: "linux/amd64".
func Platform(i image.InspectResponse) string {
	p := i.Os + "/" + i.Architecture
	if i.Variant != "" && i.Architecture == "arm" {
		p += "/" + i.Variant
	}
	return p
}

// Carries says whether an image carries the program as this version of laufwerk prepares it, also where others built on
// such an image: nil if it does, else a failure of kind NotReady.
func (c Cache) Carries(i image.InspectResponse) error {
	has := ""
	if i.Config != nil {
		has = i.Config.Labels[LabelBootstrap]
	}
	name := i.ID
	if len(i.RepoTags) > 0 {
		name = i.RepoTags[0]
	}
	switch has {
	case c.bootstrap(Platform(i)).fingerprint():
		return nil
	case "":
		return failure.New(failure.NotReady, "the image %s contains no prepared %s: it has no label %s", name, c.Program.Title, LabelBootstrap).
			WithHint("build it FROM the image that `%s` prints", c.Prepare)
	default:
		return failure.New(failure.NotReady, "the image %s contains another %s than this version of laufwerk prepares (%s)", name, c.Program.Title, c.Program.Version).
			WithHint("%s   # then build the image anew from what it prints", c.Prepare)
	}
}
