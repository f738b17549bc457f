package imagecache

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/sha256hex"
	"github.com/laufwerk/laufwerk/internal/system"
	"github.com/laufwerk/laufwerk/internal/system/crash"
	"github.com/laufwerk/laufwerk/internal/system/files"
	"github.com/laufwerk/laufwerk/internal/system/lock"
)

// Cache is a directory of receipts, and what its images hold.
type Cache struct {
	Dir     string // absolute
	Kind    string // of the targets: "docker"
	Program Program
	Prefix  string // of the program's tree in the images
	Layout  Layout // what else they have
	User    int    // of the worker: the images are proved to work for it
	Group   int
	Prepare string // the command that makes it ready
}

// Recipe is what an image is made from on a base image of this id and platform.
func (c Cache) Recipe(base, platform string) Recipe {
	return Recipe{bootstrap: c.bootstrap(platform), Base: base, User: c.User, Group: c.Group}
}

// Tag is the name of a recipe's image. Caches do not share names: what one of them does not need any more, another may.
func (c Cache) Tag(fingerprint string) string {
	return fmt.Sprintf("%s:%s-%s", c.repository(), short(fingerprint), c.id())
}

func (c Cache) repository() string { return "laufwerk-" + c.Program.Name }

// id tells this cache's names from those of others.
func (c Cache) id() string { return sha256hex.Of(c.Dir)[:8] }

// LogFile keeps what the last build of a recipe said.
func (c Cache) LogFile(fingerprint string) string {
	return filepath.Join(c.Dir, "logs", short(fingerprint)+".log")
}

// LockFile is held by whoever prepares a recipe's image.
func (c Cache) LockFile(fingerprint string) string {
	return filepath.Join(c.Dir, "locks", short(fingerprint))
}

// Make makes the directories.
func (c Cache) Make() error {
	for _, name := range []string{"locks", "logs", "building", "elsewhere", "made", "stage"} {
		if err := files.MkdirAll(filepath.Join(c.Dir, name)); err != nil {
			return failure.Wrap(err, failure.HomeInvalid, "make the image cache %s", c.Dir)
		}
	}
	return nil
}

// Lock makes the directories and waits until nobody else prepares a recipe's image, at most wait. The failure is LockHeld, with
// the holder.
func (c Cache) Lock(ctx context.Context, fingerprint, command string, wait time.Duration, say func(format string, args ...any)) (*lock.Lock, error) {
	if err := c.Make(); err != nil {
		return nil, err
	}
	path := c.LockFile(fingerprint)
	l, err := lock.Acquire(ctx, path, lock.Exclusive, 0, command)
	if failure.Is(err, failure.LockBusy) {
		say("waiting for %s, which prepares the same image\n", lock.Who(path))
		l, err = lock.Acquire(ctx, path, lock.Exclusive, wait, command)
	}
	if e := failure.As(err); e != nil {
		e.Hint = c.Prepare
	}
	return l, err
}

// BuildRecord is the record of a build that began: its images are found by it after a kill.
type BuildRecord struct {
	Build string    `json:"build"` // the value of the label
	Base  string    `json:"base"`
	At    time.Time `json:"at"`
}

// BeginBuild notes that a build of a recipe begins.
func (c Cache) BeginBuild(fingerprint, base string, now time.Time) (BuildRecord, error) {
	id := make([]byte, 16)
	_, _ = rand.Read(id) // never fails
	b := BuildRecord{Build: hex.EncodeToString(id), Base: base, At: now.UTC()}
	crash.Point("imagecache/before-begin")
	err := files.WriteJSON(c.buildingFile(fingerprint), b)
	crash.Point("imagecache/after-begin")
	return b, failure.Wrap(err, failure.HomeInvalid, "note that an image is being built")
}

// UnfinishedBuild is the note of a build of a recipe, false where none began or nobody knows which.
func (c Cache) UnfinishedBuild(fingerprint string) (BuildRecord, bool) {
	var b BuildRecord
	err := files.ReadJSON(c.buildingFile(fingerprint), &b)
	return b, err == nil && b.Build != ""
}

// ForgetBuild removes the note of a build.
func (c Cache) ForgetBuild(fingerprint string) error {
	return files.Remove(c.buildingFile(fingerprint))
}

func (c Cache) buildingFile(fingerprint string) string {
	return filepath.Join(c.Dir, "building", short(fingerprint)+".json")
}

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
