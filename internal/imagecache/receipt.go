package imagecache

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/docker/docker/api/types/image"

	"github.com/laufwerk/laufwerk/internal/dockerengine"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/providers"
	"github.com/laufwerk/laufwerk/internal/system/crash"
	"github.com/laufwerk/laufwerk/internal/system/files"
)

// Receipt is the record that an image was prepared: the manifest of the API.
type Receipt struct {
	Format   string    `json:"format"` // major.minor
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

// ReceiptFile is the receipt for a base image's name.
func (c Cache) ReceiptFile(base string) string {
	key := strings.Join([]string{base, c.Prefix, strconv.Itoa(c.User), strconv.Itoa(c.Group)}, "\x00")
	return filepath.Join(c.Dir, c.Program.Name+"-"+sum(key)[:12]+".json")
}

// stale is the failure of a receipt that cannot be used.
func (c Cache) stale(path, format string, args ...any) *failure.Error {
	return failure.New(failure.NotReady, format, args...).WithPaths(path).WithHint("%s", c.Prepare)
}

// Lookup is the receipt for a base image's name. It asks no engine. Failures are of kind NotReady, and say what is missing or
// stale.
func (c Cache) Lookup(base string) (Receipt, error) {
	path := c.ReceiptFile(base)
	if files.Exists(path) {
		return c.Load(path, "")
	}
	e := c.stale(path, "no image is prepared for %s in containers: there is no receipt for the base image %s in %s", c.Program.Title, base, c.Dir)
	all, err := c.receipts()
	if err != nil {
		return Receipt{}, failure.Wrap(err, failure.NotReady, "look for receipts")
	}
	for _, r := range all {
		if r.Receipt.Base.Name == base && (r.Receipt.User != c.User || r.Receipt.Group != c.Group) {
			e.Message += "; there is one for the user " + ids(r.Receipt.User, r.Receipt.Group) + ", and this is " + ids(c.User, c.Group)
			break
		}
	}
	return Receipt{}, e
}

func ids(user, group int) string { return strconv.Itoa(user) + ":" + strconv.Itoa(group) }

// Load reads a receipt and compares it with the recipe and the user of this process, and where expectedBase is not "" with
// the id of its base image. It asks no engine: Verify does. Failures are of kind NotReady and say what is stale.
func (c Cache) Load(path, expectedBase string) (Receipt, error) {
	var r Receipt
	err := files.ReadJSON(path, &r)
	major, _, _ := strings.Cut(r.Format, ".")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return r, c.stale(path, "there is no receipt of a prepared image at %s", path)
	case err != nil:
		return r, c.stale(path, "the receipt %s cannot be read: %v", path, err)
	case r.Format == "" || r.Program == "" || !isID(r.Image) || !isID(r.Base.ID):
		return r, c.stale(path, "%s is no receipt of a prepared image", path)
	case major != "1":
		return r, c.stale(path, "the receipt %s has the format %s, which this version of laufwerk does not know", path, r.Format)
	case r.Program != c.Program.Name:
		return r, c.stale(path, "the receipt %s is for %s, not for %s", path, r.Program, c.Program.Name)
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

func isID(s string) bool { return regexp.MustCompile(`^sha256:[0-9a-f]{64}$`).MatchString(s) }

// Verify asks the engine, in one call, whether the image of a receipt is there and is what the receipt says.
func (c Cache) Verify(ctx context.Context, e *dockerengine.Engine, r Receipt) error {
	i, presence, err := e.Image(ctx, r.Image)
	switch {
	case presence == providers.Absent:
		return failure.New(failure.NotReady, "the prepared image %s is not on the engine at %s", r.Image, e.Endpoint().Host).WithHint("%s", c.Prepare)
	case presence != providers.Present:
		return failure.Wrap(err, failure.NotReady, "look for the prepared image")
	}
	return c.matches(i, r)
}

func (c Cache) matches(i image.InspectResponse, r Receipt) error {
	has := ""
	if i.Config != nil {
		has = i.Config.Labels[LabelRecipe]
	}
	if i.ID != r.Image || has != r.Recipe || Platform(i) != r.Platform {
		return failure.New(failure.NotReady, "the image %s on the engine is not the prepared one: its id, recipe label or platform differ from the receipt", r.Image).WithHint("%s", c.Prepare)
	}
	return nil
}

// Record writes the receipt of an image that is whole and proved, for its base's name.
func (c Cache) Record(r Receipt) (string, error) {
	path := c.ReceiptFile(r.Base.Name)
	crash.Point("imagecache/before-receipt")
	err := files.WriteJSON(path, r)
	crash.Point("imagecache/after-receipt")
	return path, failure.Wrap(err, failure.HomeInvalid, "write the receipt %s", path)
}

// NewReceipt is the receipt of an image.
func (c Cache) NewReceipt(image string, rec Recipe, base Base, engine string, now time.Time) Receipt {
	f := rec.Fingerprint()
	return Receipt{
		Format: receiptFormat, Program: c.Program.Name, Version: c.Program.Version, Image: image, Tag: c.Tag(f), Recipe: f, Base: base,
		Platform: rec.Platform, User: c.User, Group: c.Group, Engine: engine, At: now.UTC(),
	}
}

// elsewhere is the note of a receipt outside of the cache.
type elsewhere struct {
	Path string `json:"path"`
}

// Copy writes a receipt to another place too, which keeps its image from being pruned for as long as it is there. Nothing is
// written where it is there already.
func (c Cache) Copy(r Receipt, path string) error {
	note := filepath.Join(c.Dir, "elsewhere", sum(path)[:16]+".json")
	var noted elsewhere
	if err := files.ReadJSON(note, &noted); err != nil || noted.Path != path {
		if err := c.Make(); err != nil {
			return err
		}
		if err := files.WriteJSON(note, elsewhere{path}); err != nil {
			return failure.Wrap(err, failure.HomeInvalid, "note the receipt %s", path)
		}
	}
	var there Receipt
	if files.ReadJSON(path, &there) == nil && there.equal(r) {
		return nil
	}
	if err := files.MkdirAll(filepath.Dir(path)); err != nil {
		return failure.Wrap(err, failure.Failed, "make the directory of the receipt %s", path)
	}
	crash.Point("imagecache/before-copy-receipt")
	err := files.WriteJSON(path, r)
	crash.Point("imagecache/after-copy-receipt")
	return failure.Wrap(err, failure.Failed, "write the receipt %s", path)
}

func (r Receipt) equal(o Receipt) bool {
	at := r.At.Equal(o.At)
	r.At, o.At = time.Time{}, time.Time{}
	return at && r == o
}

// stored is a receipt where it lies.
type stored struct {
	Path    string
	Receipt Receipt
}

// receipts are all that can be read, of the cache and of elsewhere, whatever they say.
func (c Cache) receipts() ([]stored, error) {
	var out []stored
	add := func(path string) {
		var r Receipt
		if files.ReadJSON(path, &r) == nil && isID(r.Image) {
			out = append(out, stored{path, r})
		}
	}
	names, err := files.Names(c.Dir)
	if err != nil {
		return nil, err
	}
	for _, n := range names {
		if strings.HasSuffix(n, ".json") {
			add(filepath.Join(c.Dir, n))
		}
	}
	if names, err = files.Names(filepath.Join(c.Dir, "elsewhere")); err != nil {
		return nil, err
	}
	for _, n := range names {
		var note elsewhere
		if err := files.ReadJSON(filepath.Join(c.Dir, "elsewhere", n), &note); err == nil {
			add(note.Path)
		}
	}
	return out, nil
}
