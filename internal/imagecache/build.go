package imagecache

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/docker/docker/api/types/image"

	"github.com/laufwerk/laufwerk/internal/dockerengine"
	"github.com/laufwerk/laufwerk/internal/dockerengine/owned"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/lazyregexp"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/system/crash"
	"github.com/laufwerk/laufwerk/internal/system/files"
)

// Suits says why nothing can be built on a base image, nil if it can: what would run while it is built, or would hide what
// was built. arch is the engine's.
func (c Cache) Suits(base image.InspectResponse, arch string) error {
	name := base.ID
	if base.Os != "linux" || base.Architecture != arch {
		return failure.New(failure.NotReady, "the image %s is for %s, and the engine runs linux/%s", name, Platform(base), arch)
	}
	if c.Program.Binary(Platform(base)) == "" {
		return failure.New(failure.NotReady, "there is no %s for %s", c.Program.Title, Platform(base))
	}
	if base.Config == nil {
		return nil
	}
	if len(base.Config.OnBuild) > 0 {
		return failure.New(failure.NotReady, "the image %s has ONBUILD instructions, which would run while the prepared image is built: %s", name, strings.Join(base.Config.OnBuild, "; "))
	}
	for v := range base.Config.Volumes {
		if c.Layout.Volumeless {
			return failure.New(failure.NotReady, "the image %s has a volume at %s, and whoever removes a sandbox leaves its volumes on the engine: take that VOLUME out of its Dockerfile", name, v)
		}
		if v = path.Clean(v); v == "/" || strings.HasPrefix(c.Prefix+"/", v+"/") {
			return failure.New(failure.NotReady, "the image %s has a volume at %s, which would hide %s", name, v, c.Prefix)
		}
	}
	return nil
}

// Begin notes that a build of a recipe begins, so that what comes of it is found after a kill.
func (c Cache) Begin(fingerprint, base string, now time.Time) (Building, error) {
	id := make([]byte, 16)
	_, _ = rand.Read(id) // never fails
	b := Building{Build: hex.EncodeToString(id), Base: base, At: now.UTC()}
	crash.Point("imagecache/before-begin")
	err := files.WriteJSON(c.buildingFile(fingerprint), b)
	crash.Point("imagecache/after-begin")
	return b, failure.Wrap(err, failure.HomeInvalid, "note that an image is being built")
}

// Done forgets a build.
func (c Cache) Done(fingerprint string) error { return files.Remove(c.buildingFile(fingerprint)) }

// Left is the whole image that an earlier build of a recipe left without a receipt, "" if there is none. What it left half
// done is removed. The recipe's lock has to be held.
func (c Cache) Left(ctx context.Context, e *dockerengine.Engine, rec Recipe, base image.InspectResponse) (string, error) {
	fingerprint := rec.Fingerprint()
	tagged, presence, err := e.Image(ctx, c.Tag(fingerprint))
	if presence == resource.Unobserved {
		return "", err
	}
	if presence == resource.Present && whole(tagged, rec, base, "") {
		return tagged.ID, nil
	}
	var b Building
	if err := files.ReadJSON(c.buildingFile(fingerprint), &b); err != nil || b.Build == "" {
		return "", nil //nolint:nilerr // nothing began, or nobody knows what
	}
	list, err := e.Images(ctx, map[string]string{LabelBuild: b.Build})
	if err != nil {
		return "", err
	}
	found := ""
	for _, s := range list {
		i, presence, err := e.Image(ctx, s.ID)
		switch {
		case presence == resource.Unobserved:
			return "", err
		case presence == resource.Absent || len(i.RepoTags) > 0: // somebody has given it a name: it is theirs now
		case found == "" && whole(i, rec, base, b.Build):
			found = i.ID
		default:
			crash.Point("imagecache/before-remove-left")
			if _, err := e.RemoveImage(ctx, i.ID); err != nil {
				return "", failure.Wrap(err, failure.Failed, "remove a half-made image")
			}
			crash.Point("imagecache/after-remove-left")
		}
	}
	return found, nil
}

// whole says whether an image is what a build of a recipe makes: the base image and one layer, with its labels.
func whole(i image.InspectResponse, rec Recipe, base image.InspectResponse, build string) bool {
	n := len(base.RootFS.Layers)
	return i.Config != nil && i.Config.Labels[LabelRecipe] == rec.Fingerprint() && (build == "" || i.Config.Labels[LabelBuild] == build) &&
		len(i.RootFS.Layers) == n+1 && slices.Equal(i.RootFS.Layers[:n], base.RootFS.Layers) && Platform(i) == rec.Platform
}

// Assemble builds the image from the tree in a container. No step of it runs anything: it is the base image, labels, and one
// layer with the tree. The image gets no name.
func (c Cache) Assemble(ctx context.Context, e *dockerengine.Engine, container string, rec Recipe, base image.InspectResponse, b Building, log io.Writer) (string, error) {
	file, err := dockerfile(rec, base, b)
	if err != nil {
		return "", err
	}
	dirs := slices.Clone(c.Layout.Directories)
	for _, p := range c.Layout.Paths {
		there, err := e.HasPath(ctx, container, p)
		if err != nil {
			return "", failure.Wrap(err, failure.Failed, "look what the image %s has", base.ID)
		}
		if !there {
			dirs = append(dirs, p)
		}
	}
	tree, err := e.CopyFrom(ctx, container, c.Prefix)
	if err != nil {
		return "", failure.Wrap(err, failure.Failed, "read what was installed")
	}
	defer tree.Close()
	r, w := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := rec.pack(w, file, dirs, tree)
		_ = w.CloseWithError(err)
		packed <- err
	}()
	crash.Point("imagecache/before-build")
	id, done, err := e.Build(ctx, dockerengine.Building{Context: r, Network: "none", NoCache: true, Log: log})
	crash.Point("imagecache/after-build")
	_ = r.CloseWithError(errors.New("the builder has ended"))
	_ = tree.Close()
	if perr := <-packed; done == resource.NotDone && perr != nil {
		err = perr // the builder's complaint follows from it
	}
	if done == resource.Unknown { // the answer was lost; the image may be there all the same
		if found, lerr := c.Left(ctx, e, rec, base); lerr == nil && found != "" {
			return found, nil
		}
	}
	return id, failure.Wrap(err, failure.Failed, "build the prepared image")
}

// labelName is the name of a label that needs no quotes in a Dockerfile.
var labelName = lazyregexp.Regexp{Pattern: `^[A-Za-z0-9._-]+$`}

func dockerfile(rec Recipe, base image.InspectResponse, b Building) ([]byte, error) {
	labels := map[string]string{}
	if base.Config != nil {
		for name := range base.Config.Labels { // of containers or images of ours that the base was made from
			if strings.HasPrefix(name, owned.LabelPrefix) {
				labels[name] = ""
			}
		}
	}
	labels[LabelRecipe], labels[LabelBootstrap], labels[LabelBuild] = rec.Fingerprint(), rec.bootstrap.fingerprint(), b.Build
	var out bytes.Buffer
	fmt.Fprintf(&out, "FROM %s\n", base.ID)
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		if !labelName.MatchString(name) {
			return nil, failure.New(failure.NotReady, "the image %s has the label %q, which cannot be taken off it", base.ID, name)
		}
		fmt.Fprintf(&out, "LABEL %s=%q\n", name, labels[name])
	}
	fmt.Fprintf(&out, "COPY [%q, %q]\n", treeDir+"/", strings.TrimSuffix(rec.top(), "/")+"/")
	if rec.Workdir != "" {
		fmt.Fprintf(&out, "WORKDIR %s\n", rec.Workdir)
	}
	return out.Bytes(), nil
}

// treeDir is what an image gets, in the context of its build.
const treeDir = "tree"

// top is where that goes: the program's prefix, where it is all.
func (b bootstrap) top() string {
	if len(b.Directories)+len(b.Paths) == 0 {
		return b.Prefix
	}
	return "/"
}

// packed is the name in the context of a path of the image.
func (b bootstrap) packed(name string) string {
	return path.Join(treeDir, strings.TrimPrefix(name, b.top()))
}

// pack writes the context of a build: the Dockerfile, directories, and the program's tree out of a container's archive.
// Everything in it belongs to root then, can be read by everybody and written by nobody else, and has no other rights than that.
func (b bootstrap) pack(w io.Writer, dockerfile []byte, dirs []string, tree io.Reader) error {
	out := tar.NewWriter(w)
	err := out.WriteHeader(&tar.Header{Name: "Dockerfile", Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(dockerfile))})
	if err == nil {
		_, err = out.Write(dockerfile)
	}
	if err != nil {
		return err
	}
	for _, d := range dirs {
		if err := out.WriteHeader(&tar.Header{Name: b.packed(d) + "/", Typeflag: tar.TypeDir, Mode: 0o755}); err != nil {
			return err
		}
	}
	in := tar.NewReader(tree)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return out.Close()
		}
		if err != nil {
			return fmt.Errorf("read what was installed: %w", err)
		}
		clean, err := b.normal(h)
		if err != nil {
			return err
		}
		if err := out.WriteHeader(clean); err != nil {
			return err
		}
		if _, err := io.Copy(out, in); err != nil {
			return err
		}
	}
}

func (b bootstrap) normal(h *tar.Header) (*tar.Header, error) {
	name, err := b.renamed(h.Name)
	if err != nil {
		return nil, err
	}
	out := &tar.Header{Name: name, Typeflag: h.Typeflag, ModTime: h.ModTime.Truncate(time.Second), Mode: 0o644}
	switch h.Typeflag {
	case tar.TypeDir:
		out.Mode = 0o755
		out.Name += "/"
	case tar.TypeReg:
		out.Size = h.Size
		if h.Mode&0o111 != 0 {
			out.Mode = 0o755
		}
	case tar.TypeSymlink:
		out.Linkname, out.Mode = h.Linkname, 0o777
	case tar.TypeLink:
		if out.Linkname, err = b.renamed(h.Linkname); err != nil {
			return nil, err
		}
	default:
		return nil, failure.New(failure.Failed, "something that is no file was installed: %q", h.Name)
	}
	return out, nil
}

// renamed puts a name of the archive, which begins with the last element of the prefix, where the prefix is in the context.
func (b bootstrap) renamed(name string) (string, error) {
	clean := path.Clean(name)
	_, rest, _ := strings.Cut(clean, "/")
	if path.IsAbs(clean) || clean == ".." || strings.HasPrefix(clean, "../") {
		return "", failure.New(failure.Failed, "a file with the name %q was installed", name)
	}
	return path.Join(b.packed(b.Prefix), rest), nil
}

// ErrUnproved says that an image was tried, and cannot be used.
var ErrUnproved = errors.New("the image cannot be used")

// Prove runs the program's native executable in a started container of a new image. The failure is ErrUnproved where that ran
// to its end, and was wrong.
func (c Cache) Prove(ctx context.Context, e *dockerengine.Engine, container, platform string) error {
	var out, talk bytes.Buffer // apart: a warning in the middle of the version would be neither
	program := path.Join(c.Prefix, c.Program.Binary(platform))
	code, _, err := e.Exec(ctx, container, dockerengine.Command{Argv: []string{program, "--version"}, Env: []string{"HOME=/tmp", "CODEX_HOME=/tmp"}, Dir: "/"},
		&limitedWriter{w: &out, left: 4096}, &limitedWriter{w: &talk, left: 4096})
	if err != nil {
		return failure.Wrap(err, failure.Failed, "try the prepared %s", c.Program.Title)
	}
	for line := range strings.Lines(out.String()) {
		if code == 0 && strings.TrimSpace(line) == c.Program.Says {
			return nil
		}
	}
	said := strings.TrimSpace(out.String() + talk.String())
	wrong := failure.New(failure.NotReady, "`%s --version` in the prepared image ended with %d and printed %q instead of %q", program, code, said, c.Program.Says).WithHint("%s", c.Prepare)
	wrong.Err = ErrUnproved
	return wrong
}

type limitedWriter struct {
	w    io.Writer
	left int
}

func (l *limitedWriter) Write(p []byte) (int, error) {
	take := min(len(p), l.left)
	l.left -= take
	_, err := l.w.Write(p[:take])
	return len(p), err
}

// Discard removes an image that was not proved, so that the next attempt builds a new one. One that somebody named or uses
// stays, without our name.
func (c Cache) Discard(ctx context.Context, e *dockerengine.Engine, i image.InspectResponse, fingerprint string) error {
	ref := i.ID
	if slices.Contains(i.RepoTags, c.Tag(fingerprint)) {
		ref = c.Tag(fingerprint)
	}
	crash.Point("imagecache/before-discard")
	_, err := e.RemoveImage(ctx, ref)
	crash.Point("imagecache/after-discard")
	if err == nil {
		err = c.Done(fingerprint)
	}
	return failure.Wrap(err, failure.Failed, "remove the image that cannot be used")
}

// Name gives the image of a recipe, which was proved, its name.
func (c Cache) Name(ctx context.Context, e *dockerengine.Engine, image, fingerprint string) error {
	crash.Point("imagecache/before-name")
	_, err := e.Tag(ctx, image, c.Tag(fingerprint))
	crash.Point("imagecache/after-name")
	return failure.Wrap(err, failure.Failed, "name the prepared image")
}
