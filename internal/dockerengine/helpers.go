package dockerengine

import (
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/system/files"
)

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
