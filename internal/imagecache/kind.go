package imagecache

import (
	"path"
	"path/filepath"
	"strings"

	"github.com/laufwerk/laufwerk/internal/system"
)

// Kind is a kind of targets whose sessions start from prepared images. Its provider describes it.
type Kind struct {
	Name      string // of the targets: "docker"
	Directory string // of the default cache, below $LAUFWERK_HOME/images; "" is that itself
	Bootstrap string // where the images have programs, each in a folder of its name; all of it belongs to root
	Layout    Layout // what else the images have
	Help      Help   // of `laufwerk prepare KIND`
	// Gateway: sandboxes are made by a gateway, to which a login has to be given first. Whether one can be made from an image is
	// found out by making one.
	Gateway bool
}

// Help is what the command that prepares the images of a kind says of itself.
type Help struct{ Short, Long, Example string } // %[1]s in Long is what is installed

// Layout is what images of a kind of targets have besides the program's tree. The zero value is nothing.
type Layout struct {
	Workdir     string   `json:"workdir,omitempty"`     // of the image's configuration
	Directories []string `json:"directories,omitempty"` // empty ones, where something is mounted
	// Paths are directories that have to be there; those that a base image lacks are made.
	Paths []string `json:"paths,omitempty"`
	// Tools are programs that the base image needs besides those of every target.
	Tools []string `json:"tools,omitempty"`
	// Volumeless: whoever makes and removes the containers would leave the volumes that an image declares.
	Volumeless bool `json:"volumeless,omitempty"`
}

// docker is the kind of receipts that do not say one.
const docker = "docker"

// Cache is the cache in a directory, absolute, of images with a program, for this process's user.
func (k Kind) Cache(dir string, p Program) Cache {
	return Cache{
		Dir: dir, Kind: k.Name, Program: p, Prefix: k.Prefix(p.Name), Layout: k.Layout,
		User: system.UID(), Group: system.GID(), Prepare: "laufwerk prepare " + k.Name,
	}
}

// Prefix is where images have a program's tree.
func (k Kind) Prefix(program string) string { return path.Join(k.Bootstrap, program) }

// CacheDirectory is the cache directory that an option names: see Path. "" is the default one, in laufwerk's own home.
func (k Kind) CacheDirectory(option, root, userHome, home string) string {
	if option == "" {
		return filepath.Join(home, "images", k.Directory)
	}
	return Path(option, root, userHome)
}

// Path is a path that an option names: relative to the project's root, absolute, or below ~/ for the home directory.
func Path(option, root, userHome string) string {
	switch {
	case strings.HasPrefix(option, "~/"):
		return filepath.Join(userHome, option[2:])
	case filepath.IsAbs(option):
		return filepath.Clean(option)
	default:
		return filepath.Join(root, option)
	}
}
