package dockerengine

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"

	"github.com/docker/cli/cli/context/store"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/system/files"
)

// config is the directory of Docker's CLI, "" where there is none.
func (f Finder) config() string {
	if dir := f.Vars["DOCKER_CONFIG"]; dir != "" || f.Home == "" {
		return dir
	}
	return filepath.Join(f.Home, ".docker")
}

// context is the name of the context that is in force and what says so, "" for the default one.
func (f Finder) context() (name, from string, err error) {
	name, from = f.Vars[contextVariable], contextVariable
	if name == "" && f.config() != "" {
		from = filepath.Join(f.config(), "config.json")
		if name, err = currentContext(from); err != nil {
			return "", "", err
		}
	}
	if name == "default" { // the CLI's name for "no context"
		name = ""
	}
	return name, from, nil
}

// currentContext reads one key of the CLI's config.json and no other: the CLI's own loader also decodes logins, and what is
// wrong with those does not matter here.
func currentContext(path string) (string, error) {
	b, err := files.Read(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(bytes.TrimSpace(b)) == 0 {
		return "", nil
	}
	var config struct {
		CurrentContext string `json:"currentContext"`
	}
	if err == nil {
		err = json.Unmarshal(b, &config)
	}
	if err != nil {
		return "", failure.New(failure.NotReady, "cannot tell the current Docker context from %s", path).
			WithHint("export DOCKER_HOST=unix:///var/run/docker.sock   # or repair the file").WithPaths(path).WithCause(err)
	}
	return config.CurrentContext, nil
}

func (f Finder) contextHost(name, from string) (string, error) {
	if f.config() == "" {
		return "", failure.New(failure.NotReady, "%s names the Docker context %q, and neither HOME nor DOCKER_CONFIG says where contexts are", from, name).
			WithHint("export DOCKER_HOST=unix:///var/run/docker.sock")
	}
	dir := filepath.Join(f.config(), "contexts")
	type endpoint struct{ Host string }
	kinds := store.NewConfig(func() any { return &map[string]any{} }, store.EndpointTypeGetter("docker", func() any { return &endpoint{} }))
	meta, err := store.New(dir, kinds).GetMetadata(name)
	if errors.Is(err, fs.ErrNotExist) {
		next := "docker context use default"
		if from == contextVariable {
			next = "unset " + contextVariable // docker context use does not change it
		}
		return "", failure.New(failure.NotReady, "%s names the Docker context %q, which is not in %s", from, name, dir).WithHint("%s", next).WithPaths(dir)
	}
	if err != nil {
		return "", failure.Wrap(err, failure.NotReady, "cannot read the Docker context %q, which %s names", name, from)
	}
	e, ok := meta.Endpoints["docker"].(endpoint)
	if !ok {
		return "", failure.New(failure.NotReady, "the Docker context %q, which %s names, has no Docker endpoint", name, from).
			WithHint("docker context use default")
	}
	if e.Host == "" { // the CLI writes none for its own default
		return unixScheme + defaultSocket, nil
	}
	return e.Host, nil
}

// Helpers are the programs that the config of Docker's CLI names as stores of logins for registries, sorted; path is that
// file. They matter when an image is pulled, and for nothing else: no image that is on the engine needs one.
func (f Finder) Helpers() (programs []string, path string, err error) {
	if f.config() == "" {
		return nil, "", nil
	}
	path = filepath.Join(f.config(), "config.json")
	b, err := files.Read(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(b) == 0 {
		return nil, path, nil
	}
	var config struct {
		Store string            `json:"credsStore"`
		Of    map[string]string `json:"credHelpers"`
	}
	if err == nil {
		err = json.Unmarshal(b, &config)
	}
	if err != nil {
		return nil, path, failure.Wrap(err, failure.NotReady, "read the config of Docker's command line %s", path)
	}
	names := slices.Collect(maps.Values(config.Of))
	if config.Store != "" {
		names = append(names, config.Store)
	}
	slices.Sort(names)
	for _, n := range slices.Compact(names) {
		programs = append(programs, "docker-credential-"+n)
	}
	return programs, path, nil
}
