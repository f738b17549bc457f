//go:build release

package carried

import (
	"embed"
	"io/fs"
)

// What is packed is not part of the source: `make release` lays it over this directory while it builds.
//
//go:embed packed
var packed embed.FS //nolint:gochecknoglobals // there is no other way to embed

// Files are the programs that this build carries, see New.
func Files() fs.FS {
	dir, err := fs.Sub(packed, "packed")
	if err != nil {
		return nil // never: it is the directory above
	}
	return dir
}
