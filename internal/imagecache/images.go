package imagecache

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/docker/docker/api/types/image"

	"github.com/laufwerk/laufwerk/internal/dockerengine"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/system/crash"
	"github.com/laufwerk/laufwerk/internal/system/files"
	"github.com/laufwerk/laufwerk/internal/system/lock"
)

// Image is a prepared image, or what is known of one.
type Image struct {
	ID        string    `json:"id"`
	Tag       string    `json:"tag,omitempty"`     // its name in this cache
	Version   string    `json:"version,omitempty"` // of the program in it
	Base      string    `json:"base,omitempty"`
	Bytes     int64     `json:"bytes"` // with its base image
	CreatedAt time.Time `json:"createdAt,omitzero"`
	Present   bool      `json:"present"`  // on the engine
	Receipts  []string  `json:"receipts"` // that name it
	Claims    []string  `json:"claims"`   // whose resources are, or may be, made from it
	// State is "current", "stale" (of a receipt), "missing" (named by a receipt), "unused", "unsure" (a receipt that cannot be
	// read may name it) or "foreign" (of another cache).
	State string `json:"state"`
	Why   string `json:"why,omitempty"` // why it is stale, or is kept
	// Kind is of the targets that it is for, "" where no receipt says.
	Kind  string `json:"kind,omitempty"`
	names []string
	cache Cache // that named it
}

// Caches are looked at together.
type Caches []Cache

// Images are those of these caches: named by a receipt, or by a cache's names. Those of other caches and other users of the
// engine are foreign. used says for an image's id which claims need it.
func (all Caches) Images(ctx context.Context, e *dockerengine.Engine, used map[string][]string) ([]Image, error) {
	list, err := e.Images(ctx, map[string]string{LabelRecipe: ""})
	if err != nil {
		return nil, err
	}
	known := map[string]*Image{}
	var order []string
	of := func(id string) *Image {
		if known[id] == nil {
			known[id] = &Image{ID: id, Receipts: []string{}, Claims: append([]string{}, used[id]...), State: "foreign"}
			order = append(order, id)
		}
		return known[id]
	}
	stale := map[string]error{}
	unsure := ""
	for _, c := range all {
		receipts, unread, err := c.receipts()
		if err != nil {
			return nil, failure.Wrap(err, failure.HomeInvalid, "read the receipts in %s", c.Dir)
		}
		if len(unread) > 0 {
			unsure = unread[0]
		}
		for _, r := range receipts {
			i := of(r.Receipt.Image)
			if i.Receipts = append(i.Receipts, r.Path); len(i.Receipts) == 1 {
				_, stale[i.ID] = c.Load(r.Path, "")
			}
			i.Version, i.Base, i.State, i.Kind = r.Receipt.Version, r.Receipt.Base.Name, "missing", c.Kind
		}
	}
	for _, s := range list {
		i := of(s.ID)
		i.Present, i.Bytes, i.CreatedAt, i.names = true, s.Size, time.Unix(s.Created, 0).UTC(), s.RepoTags
		for _, c := range all {
			if t := c.named(s); t != "" && i.Tag == "" {
				i.Tag, i.cache = t, c
			}
		}
		switch {
		case len(i.Receipts) == 0 && i.Tag != "":
			i.State = "unused"
			if unsure != "" {
				i.State, i.Why = "unsure", "the receipt "+unsure+" cannot be read, and may name it"
			}
		case len(i.Receipts) > 0:
			i.State = "current"
			if err := stale[i.ID]; err != nil {
				i.State, i.Why = "stale", err.Error()
			}
		}
	}
	out := make([]Image, 0, len(order))
	for _, id := range order {
		out = append(out, *known[id])
	}
	slices.SortStableFunc(out, func(a, b Image) int { return b.CreatedAt.Compare(a.CreatedAt) })
	return out, nil
}

// named is the name that this cache gave an image, "" if none.
func (c Cache) named(s image.Summary) string {
	for _, t := range s.RepoTags {
		if strings.HasPrefix(t, c.repository()+":") && strings.HasSuffix(t, "-"+c.id()) {
			return t
		}
	}
	return ""
}

// PruneResult is what became of an image.
type PruneResult struct {
	Image
	Removed bool `json:"removed"` // with dry: would be
}

// Prune removes the images of these caches that no receipt names and no claim needs; with dry it only says which. An image that
// somebody gave another name, or that a container uses, stays on the engine.
func (all Caches) Prune(ctx context.Context, e *dockerengine.Engine, used func(context.Context) (map[string][]string, error), dry bool, command string) ([]PruneResult, error) {
	first, err := used(ctx)
	if err != nil {
		return nil, err
	}
	list, err := all.Images(ctx, e, first)
	if err != nil {
		return nil, err
	}
	var out []PruneResult
	for _, i := range list {
		if i.State == "foreign" || i.State == "missing" {
			continue
		}
		p := PruneResult{Image: i}
		if i.State == "unused" && len(i.Claims) == 0 {
			if err := all.prune(ctx, e, used, dry, command, &p); err != nil {
				return append(out, p), err
			}
		} else if p.Why == "" {
			p.Why = "a receipt names it"
			if len(i.Receipts) == 0 {
				p.Why = "a claim needs it"
			}
		}
		out = append(out, p)
	}
	return out, nil
}

// prune removes one image's name, and with it the image where it has no other. Whoever is preparing it has its lock, and its
// receipt is written under that.
func (all Caches) prune(ctx context.Context, e *dockerengine.Engine, used func(context.Context) (map[string][]string, error), dry bool, command string, p *PruneResult) error {
	c := p.cache
	fingerprint, _, _ := strings.Cut(strings.TrimPrefix(p.Tag, c.repository()+":"), "-")
	if len(fingerprint) != 16 {
		p.Why = "its name is none of its cache's"
		return nil
	}
	if !dry {
		if err := c.Make(); err != nil {
			return err
		}
		l, err := lock.Acquire(ctx, c.LockFile(fingerprint), lock.Exclusive, 0, command)
		if failure.Is(err, failure.LockBusy) {
			p.Why = "it is being prepared: " + err.Error()
			return nil
		}
		if err != nil {
			return failure.Wrap(err, failure.HomeInvalid, "lock the image's recipe")
		}
		defer l.Release()
	} else if h, held, _ := lock.Query(c.LockFile(fingerprint)); held {
		p.Why = "it is being prepared by " + h.String()
		return nil
	}
	again, err := used(ctx)
	if err != nil {
		return err
	}
	now, err := all.Images(ctx, e, again)
	if err != nil {
		return err
	}
	n := slices.IndexFunc(now, func(i Image) bool { return i.ID == p.ID })
	switch {
	case n < 0:
		p.Removed = true // somebody else was quicker
		return nil
	case now[n].State != "unused" || len(now[n].Claims) > 0 || now[n].Tag != p.Tag:
		p.Image = now[n]
		p.Why = "it is needed by now"
		return nil
	case dry:
		p.Removed = true
		return nil
	}
	crash.Point("imagecache/before-forget")
	if err := files.Remove(c.madeFile(fingerprint)); err != nil {
		return failure.Wrap(err, failure.HomeInvalid, "forget the image")
	}
	crash.Point("imagecache/before-prune")
	done, err := e.RemoveImage(ctx, p.Tag)
	crash.Point("imagecache/after-prune")
	switch done {
	case resource.Done:
		p.Removed = true
		if len(now[n].names) > 1 {
			p.Why = "it still has other names, and stays on the engine"
		}
	case resource.NotDone:
		p.Why = err.Error()
	default:
		return failure.Wrap(err, failure.OutcomeUnknown, "remove the image %s", p.Tag)
	}
	return nil
}
