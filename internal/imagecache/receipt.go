package imagecache

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/docker/docker/api/types/image"

	"github.com/laufwerk/laufwerk/internal/dockerengine"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/lazyregexp"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/sha256hex"
	"github.com/laufwerk/laufwerk/internal/system/crash"
	"github.com/laufwerk/laufwerk/internal/system/files"
)

// Receipt is the record that an image was prepared: the manifest of the API.
type Receipt struct {
	Format   string    `json:"format"`         // major.minor
	Kind     string    `json:"kind,omitempty"` // of the targets that it is for; "" is docker
	Program  string    `json:"program"`
	Version  string    `json:"version"`
	Image    string    `json:"image"`  // its id: "sha256:…"
	Tag      string    `json:"tag"`    // a name for people, which may be moved or removed
	Recipe   string    `json:"recipe"` // the fingerprint
	Base     Base      `json:"base"`
	Platform string    `json:"platform"`
	User     int       `json:"user"`
	Group    int       `json:"group"`
	Engine   string    `json:"engine"` // which one made it
	At       time.Time `json:"at"`
}

// Base is the image that another was made from.
type Base struct {
	Name string `json:"name"` // as it was asked for
	ID   string `json:"id"`
}

const receiptFormat = "1.0"

// StandardFile is the receipt of the image that targets use which name none.
func (c Cache) StandardFile() string {
	return filepath.Join(c.Dir, c.Program.Name+"-"+c.Kind+".json")
}

// madeFile says what was made from a recipe. It is no receipt: it keeps no image from being pruned.
func (c Cache) madeFile(fingerprint string) string {
	return filepath.Join(c.Dir, "made", short(fingerprint)+".json")
}

func (c Cache) stale(path, format string, args ...any) *failure.Error {
	return failure.New(failure.NotReady, format, args...).WithPaths(path).WithHint("%s", c.Prepare)
}

// Standard is the receipt of the image that targets use which name none. It asks no engine. Failures are those of Load.
func (c Cache) Standard() (Receipt, error) {
	path := c.StandardFile()
	if !files.Exists(path) {
		return Receipt{}, c.stale(path, "no image with %s is prepared: there is no receipt at %s", c.Program.Title, path)
	}
	return c.Load(path, "")
}

// StandardBase is the name of the standard image's base, also where the receipt is stale; "" where there is none.
func (c Cache) StandardBase() string {
	var r Receipt
	if files.ReadJSON(c.StandardFile(), &r) != nil || r.Program != c.Program.Name {
		return ""
	}
	return r.Base.Name
}

func ids(user, group int) string { return strconv.Itoa(user) + ":" + strconv.Itoa(group) }

// Load reads a receipt and compares it with the recipe and the user of this process, and where expectedBase is not "" with
// the id of its base image. It asks no engine: FindPrepared does. Failures are of kind NotReady and say what is stale.
func (c Cache) Load(path, expectedBase string) (Receipt, error) {
	var r Receipt
	err := files.ReadJSON(path, &r)
	major, _, _ := strings.Cut(r.Format, ".")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return r, c.stale(path, "there is no receipt of a prepared image at %s", path)
	case err != nil:
		return r, c.stale(path, "the receipt %s cannot be read: %v", path, err)
	case r.Format == "" || r.Program == "" || !imageIDPattern.MatchString(r.Image) || !imageIDPattern.MatchString(r.Base.ID):
		return r, c.stale(path, "%s is no receipt of a prepared image", path)
	case major != "1":
		return r, c.stale(path, "the receipt %s has the format %s, which this version of laufwerk does not know", path, r.Format)
	case r.Program != c.Program.Name:
		return r, c.stale(path, "the receipt %s is for %s, not for %s", path, r.Program, c.Program.Name)
	case cmp.Or(r.Kind, docker) != c.Kind:
		return r, c.stale(path, "the receipt %s is of an image for %s targets, not for %s targets", path, cmp.Or(r.Kind, docker), c.Kind)
	case r.Version != c.Program.Version:
		return r, c.stale(path, "the prepared image is stale: it has %s %s, and this version of laufwerk needs %s", c.Program.Title, r.Version, c.Program.Version)
	case r.User != c.User || r.Group != c.Group:
		return r, c.stale(path, "the prepared image is for the user %s, and this is %s", ids(r.User, r.Group), ids(c.User, c.Group))
	case expectedBase != "" && r.Base.ID != expectedBase:
		return r, c.stale(path, "the prepared image is stale: it was made from the base image %s, not from %s", r.Base.ID, expectedBase)
	case r.Recipe != c.Recipe(r.Base.ID, r.Platform).Fingerprint():
		return r, c.stale(path, "the prepared image is stale: it was made by another recipe than this version of laufwerk has")
	}
	return r, nil
}

var imageIDPattern = lazyregexp.Regexp{Pattern: `^sha256:[0-9a-f]{64}$`}

// Record remembers an image that is whole and proved.
func (c Cache) Record(image string, rec Recipe, base Base, engine string, now time.Time) (Receipt, error) {
	r := c.NewReceipt(image, rec, base, engine, now)
	crash.Point("imagecache/before-record")
	err := files.WriteJSON(c.madeFile(r.Recipe), r)
	crash.Point("imagecache/after-record")
	return r, failure.Wrap(err, failure.HomeInvalid, "remember the prepared image")
}

// NewReceipt is the receipt of an image.
func (c Cache) NewReceipt(image string, rec Recipe, base Base, engine string, now time.Time) Receipt {
	f := rec.Fingerprint()
	return Receipt{
		Format: receiptFormat, Kind: c.Kind, Program: c.Program.Name, Version: c.Program.Version, Image: image, Tag: c.Tag(f), Recipe: f, Base: base,
		Platform: rec.Platform, User: c.User, Group: c.Group, Engine: engine, At: now.UTC(),
	}
}

// publishedPath is the note of a receipt outside of the cache.
type publishedPath struct {
	Path string `json:"path"`
}

func (c Cache) published(r Receipt, path string) bool {
	var there Receipt
	if files.ReadJSON(path, &there) != nil || !there.equal(r) {
		return false
	}
	var note publishedPath
	return path == c.StandardFile() || files.ReadJSON(c.noteFile(path), &note) == nil && note.Path == path
}

// Publish writes the receipt of a finished build to a path, unless it is there: the standard one, or one outside of the cache.
// From then on the image is kept.
func (c Cache) Publish(r Receipt, path string) error {
	if err := c.ForgetBuild(r.Recipe); err != nil {
		return err
	}
	if c.published(r, path) {
		return nil
	}
	if path != c.StandardFile() {
		if err := files.WriteJSON(c.noteFile(path), publishedPath{path}); err != nil {
			return failure.Wrap(err, failure.HomeInvalid, "note the receipt %s", path)
		}
		if err := files.MkdirAll(filepath.Dir(path)); err != nil {
			return failure.Wrap(err, failure.Failed, "make the directory of the receipt %s", path)
		}
	}
	crash.Point("imagecache/before-receipt")
	err := files.WriteJSON(path, r)
	crash.Point("imagecache/after-receipt")
	return failure.Wrap(err, failure.Failed, "write the receipt %s", path)
}

func (c Cache) noteFile(path string) string {
	return filepath.Join(c.Dir, "elsewhere", sha256hex.Of(path)[:16]+".json")
}

func (r Receipt) equal(o Receipt) bool {
	at := r.At.Equal(o.At)
	r.At, o.At = time.Time{}, time.Time{}
	return at && r == o
}

type storedReceipt struct {
	Path    string
	Receipt Receipt
}

// receipts are all of the cache's kind and program that can be read, of the cache and of elsewhere, whatever else they say. unsure are those
// that are there and cannot be read.
func (c Cache) receipts() (out []storedReceipt, unsure []string, err error) {
	add := func(path string) {
		var r Receipt
		switch err := files.ReadJSON(path, &r); {
		case err == nil && imageIDPattern.MatchString(r.Image) && cmp.Or(r.Kind, docker) == c.Kind && r.Program == c.Program.Name:
			out = append(out, storedReceipt{path, r})
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			unsure = append(unsure, path)
		}
	}
	names, err := files.Names(c.Dir)
	if err != nil {
		return nil, nil, err
	}
	for _, n := range names {
		if strings.HasSuffix(n, ".json") {
			add(filepath.Join(c.Dir, n))
		}
	}
	if names, err = files.Names(filepath.Join(c.Dir, "elsewhere")); err != nil {
		return nil, nil, err
	}
	for _, n := range names {
		var note publishedPath
		at := filepath.Join(c.Dir, "elsewhere", n)
		if err := files.ReadJSON(at, &note); err != nil {
			unsure = append(unsure, at)
			continue
		}
		add(note.Path)
	}
	return out, unsure, nil
}

// FindPrepared is the image of a receipt on an engine, which is asked once. The failure is of kind NotReady, also where what is there
// is not what the receipt says.
func (c Cache) FindPrepared(ctx context.Context, e *dockerengine.Engine, r Receipt) (image.InspectResponse, error) {
	i, err := find(ctx, e, r.Image, func() error {
		return failure.New(failure.NotReady, "the prepared image %s is not on the engine any more", r.Image).WithHint("%s", c.Prepare)
	})
	if err != nil {
		return i, err
	}
	has := ""
	if i.Config != nil {
		has = i.Config.Labels[LabelRecipe]
	}
	if i.ID != r.Image || has != r.Recipe || Platform(i) != r.Platform {
		return i, failure.New(failure.NotReady, "the image %s on the engine is not the prepared one: its id, recipe label or platform differ from the receipt", r.Image).WithHint("%s", c.Prepare)
	}
	return i, nil
}

// FindCurrent is the receipt at a path, if it holds: for a base image, which another may have the name of by now, and for an image that
// is on the engine. Failures are of kind NotReady. Where the base image is not on the engine any more (it has no id), nothing says
// that it has changed.
func (c Cache) FindCurrent(ctx context.Context, e *dockerengine.Engine, path string, base Base) (Receipt, error) {
	r, err := c.Load(path, base.ID)
	if err == nil && (r.Base.Name != base.Name || !c.published(r, path)) {
		err = failure.New(failure.NotReady, "the receipt %s is for the base image %s", path, r.Base.Name)
	}
	if err == nil {
		_, err = c.FindPrepared(ctx, e, r)
	}
	return r, err
}

// FindMade is the record of what was made from a recipe, if that is on the engine. Failures are of kind NotReady.
func (c Cache) FindMade(ctx context.Context, e *dockerengine.Engine, fingerprint string) (Receipt, error) {
	r, err := c.Load(c.madeFile(fingerprint), "")
	if err == nil {
		_, err = c.FindPrepared(ctx, e, r)
	}
	return r, err
}

// FindOwn is an image that a target names itself, on an engine, which is asked once. It is never fetched. The failure is of kind
// NotReady.
func FindOwn(ctx context.Context, e *dockerengine.Engine, ref, target string) (image.InspectResponse, error) {
	return find(ctx, e, ref, func() error {
		return failure.New(failure.NotReady, "the image %s of the target %q is not on the engine", ref, target).WithHint("docker pull %s", failure.Quote(ref))
	})
}

func find(ctx context.Context, e *dockerengine.Engine, ref string, absent func() error) (image.InspectResponse, error) {
	i, presence, err := e.Image(ctx, ref)
	switch presence {
	case resource.Present:
		return i, nil
	case resource.Absent:
		return i, absent()
	}
	return i, failure.Wrap(err, failure.NotReady, "inspect the image %s", ref)
}
