package supervise

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/internal/system/process"
)

// The records of a supervisor in another PID namespace name ids that are other processes' here.
func TestIDsOfAnotherNamespaceAreNeverSignalled(t *testing.T) {
	p := start(t, bash(t, "sleep 1000"))
	id := supervisorOf(t, p)
	r, err := openRecords(p.Dir())
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	foreign := id
	foreign.PIDNS = "pid:[1]"
	record := func(id Identity) {
		t.Helper()
		if err := r.root.Remove(startedName); err != nil {
			t.Fatal(err)
		}
		// The mark is this operation's: what carries it must not be touched either.
		if err := r.write(startedName, StartRecord{Supervisor: id, Mark: "test/op", NoCgroup: "none"}); err != nil {
			t.Fatal(err)
		}
	}
	record(foreign)
	if err := here().Interrupt(bounded(t), p.Dir()); !errors.Is(err, process.ErrGone) {
		t.Errorf("interrupt: %v", err)
	}
	ctx, cancel := context.WithTimeout(bounded(t), 300*time.Millisecond)
	defer cancel()
	if f := here().Fence(ctx, p.Dir()); f.Sure || len(f.Survivors) > 0 {
		t.Errorf("fence: %+v", f)
	}
	if v, err := ReadState(p.Dir()); err != nil || v.Status != Running {
		t.Errorf("it was ended: %+v %v", v, err)
	}
	record(id)
	if f := here().Fence(bounded(t), p.Dir()); !f.Sure {
		t.Fatalf("%+v", f)
	}
	if err := r.root.Remove(goneName); err != nil {
		t.Fatal(err)
	}
	record(foreign)
	if f := here().Fence(bounded(t), p.Dir()); f.Sure || f.Later {
		t.Errorf("a lost supervisor elsewhere: %+v", f)
	}
}

// fences answers each directory's fence.
type fences map[string]FenceResult

func (f fences) Launch(context.Context, string, Spec) error              { return ErrRefused }
func (f fences) Interrupt(context.Context, string) error                 { return process.ErrGone }
func (f fences) Fence(_ context.Context, dir string) (found FenceResult) { return f[dir] }
func (f fences) Cancel(_ context.Context, dir string) FenceResult        { return f[dir] }

func TestFencesAddUp(t *testing.T) {
	sure := func(how string) FenceResult { return FenceResult{Sure: true, How: how} }
	later := FenceResult{How: HowContainer, Why: "the engine does not answer", Later: true}
	never := FenceResult{How: HowMarks, Why: "it was killed"}
	for name, c := range map[string]struct {
		all  []FenceResult
		want FenceResult
	}{
		"none":                   {nil, FenceResult{Sure: true, How: HowNothing}},
		"the weakest":            {[]FenceResult{sure(HowSubreaper), sure(HowCgroup), sure(HowNothing)}, FenceResult{Sure: true, How: HowSubreaper}},
		"container is strong":    {[]FenceResult{sure(HowBoot), sure(HowContainer)}, FenceResult{Sure: true, How: HowContainer}},
		"but not the strongest":  {[]FenceResult{sure(HowCgroup), sure(HowContainer)}, FenceResult{Sure: true, How: HowCgroup}},
		"all later":              {[]FenceResult{later, sure(HowCgroup), later}, FenceResult{Later: true, How: HowCgroup}},
		"one of them never":      {[]FenceResult{later, never, later}, FenceResult{How: HowMarks}},
		"never, and then later":  {[]FenceResult{never, later}, FenceResult{How: HowMarks}},
		"later, and then a sure": {[]FenceResult{later, sure(HowNothing)}, FenceResult{Later: true, How: HowContainer}},
	} {
		for range 2 {
			all, dirs := fences{}, []string{}
			for i, f := range c.all {
				dir := "/" + string(rune('a'+i))
				all[dir], dirs = f, append(dirs, dir)
			}
			got := FenceAll(context.Background(), all, dirs)
			if got.Sure != c.want.Sure || got.Later != c.want.Later || got.How != c.want.How || got.Sure != (got.Why == "") {
				t.Errorf("%s: %+v", name, got)
			}
			slices.Reverse(c.all)
		}
	}
}
