package writeback

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/workspace"
)

// drawTree changes some paths of a tree at random.
func drawTree(t *rapid.T, from tree, label string, atMost int) tree {
	paths := []string{"a", "b", "c", "d", "a/x", "a/y", "b/x", "b/y/z", "c/x/y", "d/x"}
	out := from
	for i := range rapid.IntRange(0, atMost).Draw(t, label) {
		name := label + strconv.Itoa(i)
		p := rapid.SampledFrom(paths).Draw(t, name+" path")
		blocked := slices.ContainsFunc(ancestors(p), func(d string) bool { n, ok := out[d]; return ok && n.kind != workspace.Dir })
		var n node
		switch what := rapid.IntRange(0, 9).Draw(t, name+" kind"); {
		case what < 3:
			n = gone()
		case blocked:
			continue
		case what < 6:
			n = file(rapid.SampledFrom([]string{"1", "2", "3"}).Draw(t, name+" content"))
		case what < 8:
			n = exe(rapid.SampledFrom([]string{"1", "2", "3"}).Draw(t, name+" content"))
		case what < 9:
			n = link(rapid.SampledFrom([]string{"e", "nowhere"}).Draw(t, name+" target"))
			if len(ancestors(p)) > 0 {
				n.data = "../" + n.data
			}
		default:
			n = dir()
		}
		out = out.with(tree{p: n}).full()
	}
	return out.full()
}

// merged is the specification: where the workspace changed a path, what the workspace holds; elsewhere what the source holds.
func merged(base, frozen, source tree) tree {
	out := maps.Clone(source)
	for p := range union(base, frozen) {
		b, f := base[p], frozen[p]
		if b == f {
			continue
		}
		if f.kind == "" {
			delete(out, p)
			continue
		}
		if s := source[p]; s.kind == workspace.File && f.kind == workspace.File && b.kind == workspace.File && executable(uint32(b.mode)) == executable(uint32(f.mode)) {
			f.mode = s.mode
		}
		out[p] = f
	}
	return out
}

func union(a, b tree) tree {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}

// areIndependent says whether the source's own changes and the workspace's have nothing to do with each other.
func areIndependent(base, frozen, source tree) bool {
	for p := range union(base, frozen) {
		if base[p] == frozen[p] {
			continue
		}
		for q := range union(base, source) {
			if base[q] != source[q] && (within(p, q) || within(q, p)) {
				return false
			}
		}
	}
	return true
}

// Random trees, killed or not: the source is either as it was, with a conflict named, or exactly what it must be.
func TestModel(t *testing.T) {
	at := fast(t)
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		base := drawTree(rt, tree{}, "base", 8)
		frozen := drawTree(rt, base, "frozen", 5)
		source := base
		if rapid.Bool().Draw(rt, "the source changed") {
			source = drawTree(rt, base, "source", 3)
		}
		killAt := rapid.IntRange(0, 80).Draw(rt, "killed at")
		abort := rapid.Bool().Draw(rt, "then aborted")

		dir := filepath.Join(at, strconv.Itoa(n))
		defer os.RemoveAll(dir)
		w := newSourceFixtureIn(t, dir, base, frozen, source)
		w.req.NoExchange = rapid.Bool().Draw(rt, "without exchange")
		want := merged(base, frozen, source)

		ctx := context.Background()
		p, err := Check(ctx, w.req)
		if err != nil {
			// A directory that the user made a link is refused, everything else is a conflict.
			if k := failure.KindOf(err); k != failure.WriteBackConflict && k != failure.WriteBackRefused || areIndependent(base, frozen, source) {
				rt.Fatal(err, failure.As(err).Conditions)
			}
			mustHold(rt, w, source)
			return
		}
		killed := false
		points := 0
		p.observe = func(string) {
			if points++; points == killAt {
				killed = true
				panic(w)
			}
		}
		err = func() error {
			defer func() {
				if r := recover(); r != nil && r != w {
					panic(r)
				}
			}()
			return p.Apply(ctx)
		}()
		if err != nil {
			rt.Fatal(err)
		}
		if pend := must(Pending(w.req.Dir)); killed && pend == nil {
			if must(loadPlan(w.req.Dir)) != nil {
				mustHold(rt, w, want) // killed after the end
			} else {
				mustHold(rt, w, source)
			}
			return
		} else if killed && abort {
			state := pend.doc.State
			r, err := Abort(ctx, w.req.Dir)
			if state == Applied && failure.Is(err, failure.RunState) {
				mustHold(rt, w, want)
				return
			}
			if err != nil || len(r.Left) > 0 {
				rt.Fatal(r, err)
			}
			mustHold(rt, w, source)
			return
		} else if killed {
			if err := Continue(ctx, w.req.Dir, false); err != nil {
				rt.Fatal(err, failure.As(err).Conditions)
			}
		}
		mustHold(rt, w, want)
	})
}

func mustHold(rt *rapid.T, w *sourceFixture, want tree) {
	got := readTree(w.TB, w.source)
	if !maps.Equal(got, want) {
		rt.Fatalf("the source holds\n%v, want\n%v", got, want)
	}
}
