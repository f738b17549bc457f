package imagecache

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"time"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/sha256hex"
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

// Building is the record of a build that began: its images are found by it after a kill.
type Building struct {
	Build string    `json:"build"` // the value of the label
	Base  string    `json:"base"`
	At    time.Time `json:"at"`
}

// BeginBuild notes that a build of a recipe begins.
func (c Cache) BeginBuild(fingerprint, base string, now time.Time) (Building, error) {
	id := make([]byte, 16)
	_, _ = rand.Read(id) // never fails
	b := Building{Build: hex.EncodeToString(id), Base: base, At: now.UTC()}
	crash.Point("imagecache/before-begin")
	err := files.WriteJSON(c.buildingFile(fingerprint), b)
	crash.Point("imagecache/after-begin")
	return b, failure.Wrap(err, failure.HomeInvalid, "note that an image is being built")
}

// UnfinishedBuild is the note of a build of a recipe, false where none began or nobody knows which.
func (c Cache) UnfinishedBuild(fingerprint string) (Building, bool) {
	var b Building
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
