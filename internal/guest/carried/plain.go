//go:build !release

package carried

import (
	"embed"
	"io/fs"
)

// Files are the programs that this build carries, see New: none, since it is not one of `make release`.
func Files() fs.FS { return embed.FS{} }
