// Package carried gives containers our own program for their platform: this process's own where it fits, else one that a
// release carries, unpacked where an engine can mount it.
package carried

import (
	"compress/gzip"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/system/crash"
	"github.com/laufwerk/laufwerk/internal/system/files"
	"github.com/laufwerk/laufwerk/internal/system/lock"
)

// Programs are those that containers can have.
type Programs struct {
	own     string
	host    string // the platform of own
	dir     string
	carries fs.FS
}

// New makes them. own is the path of this process's program; home is $LAUFWERK_HOME, below which the others are unpacked.
// carries has those, nil is none: of the platform linux/arm64 the file linux-arm64.gz, packed with gzip, and in
// linux-arm64.sha256 the digest of what comes out of it, in hex.
func New(own, home string, carries fs.FS) Programs {
	if carries == nil {
		carries = embed.FS{}
	}
	return Programs{own: own, host: runtime.GOOS + "/" + runtime.GOARCH, dir: filepath.Join(home, "supervisors"), carries: carries}
}

// program is the name of each, in a directory that is named by its digest.
const program = "laufwerk"

// mode lets the user of every container run it, whoever that is.
const mode fs.FileMode = 0o755

// Has says why there is no program for a platform ("linux/arm64"): NotReady. It reads and writes nothing outside of this build.
func (p Programs) Has(platform string) error {
	if platform == p.host {
		return nil
	}
	_, err := p.digest(platform)
	if errors.Is(err, fs.ErrNotExist) {
		return failure.New(failure.NotReady, "the engine runs %s containers, and this build of laufwerk is for %s and contains no program for them", platform, p.host).
			WithHint("make release   # in laufwerk's sources: its builds carry the program for linux/amd64 and linux/arm64")
	}
	return err
}

// file is the beginning of the names of the files for a platform.
func file(platform string) string { return strings.ReplaceAll(platform, "/", "-") }

// digest is that of the program for a platform; fs.ErrNotExist where none is carried.
func (p Programs) digest(platform string) (string, error) {
	b, err := fs.ReadFile(p.carries, file(platform)+".sha256")
	if err != nil {
		return "", err
	}
	digest := strings.TrimSpace(string(b))
	if sum, err := hex.DecodeString(digest); err != nil || len(sum) != sha256.Size {
		return "", failure.New(failure.Internal, "this build of laufwerk has no valid digest of its program for %s: %q", platform, digest)
	}
	return digest, nil
}

// Path is the program for a platform. One that is carried is there, whole and durable, when the call returns; it is unpacked
// once, and looked through each time. NotReady where there is none, HomeInvalid where it cannot be unpacked.
func (p Programs) Path(ctx context.Context, platform string) (string, error) {
	if platform == p.host {
		return p.own, nil
	}
	if err := p.Has(platform); err != nil {
		return "", err
	}
	digest, err := p.digest(platform)
	if err != nil {
		return "", err
	}
	return p.path(digest), p.ensureUnpacked(ctx, platform, digest)
}

func (p Programs) path(digest string) string { return filepath.Join(p.dir, digest, program) }

// Restore makes sure that a program which Path has given, to this laufwerk or to an earlier one, is still what it was. One that
// is damaged or gone is unpacked again if this build carries it; else it is NotReady. Nothing that an earlier laufwerk unpacked
// is ever removed: a container may name it.
func (p Programs) Restore(ctx context.Context, path string) error {
	digest := filepath.Base(filepath.Dir(path))
	if path != p.path(digest) {
		return nil // an own one
	}
	names, err := fs.Glob(p.carries, "*.sha256")
	if err != nil {
		return err
	}
	for _, name := range names {
		platform := strings.ReplaceAll(strings.TrimSuffix(name, ".sha256"), "-", "/")
		if carried, err := p.digest(platform); err == nil && carried == digest {
			return p.ensureUnpacked(ctx, platform, digest)
		}
	}
	why := isWhole(path, digest)
	if why == nil {
		return nil
	}
	return failure.New(failure.NotReady, "the program %s, with which another version of laufwerk made the container, cannot be used any more (%v), and this version does not contain it: close the session, or continue with the version that made it", path, why).
		WithPaths(path).WithHint("laufwerk runs list   # and laufwerk runs cancel RUN")
}

// patience bounds the wait for another process that unpacks: it takes about a second.
const patience = time.Minute

func (p Programs) ensureUnpacked(ctx context.Context, platform, digest string) error {
	path := p.path(digest)
	if isWhole(path, digest) == nil {
		return nil
	}
	if err := files.MkdirAll(filepath.Dir(path)); err != nil {
		return p.cannot(path, err)
	}
	l, err := lock.Acquire(ctx, filepath.Join(p.dir, "lock"), lock.Exclusive, patience, "laufwerk, which unpacks "+path)
	if err != nil {
		return p.cannot(path, err)
	}
	defer l.Release()
	if isWhole(path, digest) == nil { // by now
		return nil
	}
	// Under the lock there is one draft, whatever is unpacked: that of a process which was killed is written over.
	draft := filepath.Join(p.dir, "draft")
	crash.Point("carried/before-draft")
	err = p.unpack(platform, digest, draft)
	if err == nil {
		crash.Point("carried/before-publish")
		err = files.Rename(draft, path) // containers that run keep what they have
		crash.Point("carried/after-publish")
	}
	if err != nil {
		return p.cannot(path, errors.Join(err, files.Remove(draft)))
	}
	return nil
}

func (p Programs) cannot(path string, err error) error {
	if f := failure.As(err); f != nil {
		return err
	}
	e := failure.New(failure.HomeInvalid, "laufwerk's program for the engine's containers cannot be unpacked to %s", path).WithPaths(path).WithCause(err)
	if info, lerr := files.Lstat(path); lerr == nil && !info.Mode().IsRegular() {
		return e.WithHint("mv %s %s", failure.Quote(path), failure.Quote(path+".other"))
	}
	return e.WithHint("df -h %s && ls -ld %s", failure.Quote(p.dir), failure.Quote(p.dir))
}

// unpack writes it to a file, durably, and makes sure that it is what the build says.
func (p Programs) unpack(platform, digest, to string) error {
	from, err := p.carries.Open(file(platform) + ".gz")
	if err != nil {
		return failure.Wrap(err, failure.Internal, "open the program for %s that this build of laufwerk contains", platform)
	}
	defer from.Close()
	if err := files.Remove(to); err != nil {
		return err
	}
	f, err := files.Append(to)
	if err != nil {
		return err
	}
	sum := sha256.New()
	z, err := gzip.NewReader(from)
	if err == nil {
		_, err = io.Copy(io.MultiWriter(f, sum), z)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); err == nil && got != digest {
		err = failure.New(failure.Internal, "the program for %s that this build of laufwerk contains has the digest %s instead of %s", platform, got, digest)
	}
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// isWhole says what is wrong with an unpacked program, nil if nothing is.
func isWhole(path, digest string) error {
	info, err := files.Lstat(path)
	if err != nil {
		return err
	}
	if info.Mode() != mode { // its type is part of that
		return fmt.Errorf("its mode is %s instead of %s", info.Mode(), mode)
	}
	f, err := files.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != digest {
		return fmt.Errorf("its digest is %s", got)
	}
	return nil
}
