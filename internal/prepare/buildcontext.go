package prepare

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/docker/docker/api/types/image"

	"github.com/laufwerk/laufwerk/internal/dockerengine/owned"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/imagecache"
	"github.com/laufwerk/laufwerk/internal/lazyregexp"
)

// dockerfile adds labels and one layer to the base image.
func dockerfile(rec imagecache.Recipe, base image.InspectResponse, build string) ([]byte, error) {
	labels := map[string]string{}
	if base.Config != nil {
		for name := range base.Config.Labels { // of containers or images of ours that the base was made from
			if strings.HasPrefix(name, owned.LabelPrefix) {
				labels[name] = ""
			}
		}
	}
	labels[imagecache.LabelRecipe], labels[imagecache.LabelBootstrap], labels[imagecache.LabelBuild] = rec.Fingerprint(), rec.BootstrapFingerprint(), build
	var out bytes.Buffer
	fmt.Fprintf(&out, "FROM %s\n", base.ID)
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		if !labelName.MatchString(name) {
			return nil, failure.New(failure.NotReady, "the image %s has the label %q, which cannot be taken off it", base.ID, name)
		}
		fmt.Fprintf(&out, "LABEL %s=%q\n", name, labels[name])
	}
	fmt.Fprintf(&out, "COPY [%q, %q]\n", treeDir+"/", strings.TrimSuffix(top(rec), "/")+"/")
	if rec.Workdir != "" {
		fmt.Fprintf(&out, "WORKDIR %s\n", rec.Workdir)
	}
	return out.Bytes(), nil
}

var labelName = lazyregexp.Regexp{Pattern: `^[A-Za-z0-9._-]+$`}

// treeDir is what an image gets, in the context of its build.
const treeDir = "tree"

// top is where that goes: the program's prefix, where it is all.
func top(rec imagecache.Recipe) string {
	if len(rec.Directories)+len(rec.Paths) == 0 {
		return rec.Prefix
	}
	return "/"
}

// packed is the name in the context of a path of the image.
func packed(rec imagecache.Recipe, name string) string {
	return path.Join(treeDir, strings.TrimPrefix(name, top(rec)))
}

// pack writes the context of a build: the Dockerfile, directories, and the program's tree out of a container's archive.
// Everything in it belongs to root then, can be read by everybody and written by nobody else, and has no other rights than that.
func pack(rec imagecache.Recipe, w io.Writer, dockerfile []byte, dirs []string, tree io.Reader) error {
	out := tar.NewWriter(w)
	err := out.WriteHeader(&tar.Header{Name: "Dockerfile", Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(dockerfile))})
	if err == nil {
		_, err = out.Write(dockerfile)
	}
	if err != nil {
		return err
	}
	for _, d := range dirs {
		if err := out.WriteHeader(&tar.Header{Name: packed(rec, d) + "/", Typeflag: tar.TypeDir, Mode: 0o755}); err != nil {
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
		clean, err := packedHeader(rec, h)
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

// packedHeader is an entry of the archive as the image has it.
func packedHeader(rec imagecache.Recipe, h *tar.Header) (*tar.Header, error) {
	name, err := packedName(rec, h.Name)
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
		if out.Linkname, err = packedName(rec, h.Linkname); err != nil {
			return nil, err
		}
	default:
		return nil, failure.New(failure.Failed, "something that is no file was installed: %q", h.Name)
	}
	return out, nil
}

// packedName puts a name of the archive, which begins with the last element of the prefix, where the prefix is in the context.
func packedName(rec imagecache.Recipe, name string) (string, error) {
	clean := path.Clean(name)
	_, rest, _ := strings.Cut(clean, "/")
	if path.IsAbs(clean) || clean == ".." || strings.HasPrefix(clean, "../") {
		return "", failure.New(failure.Failed, "a file with the name %q was installed", name)
	}
	return path.Join(packed(rec, rec.Prefix), rest), nil
}
