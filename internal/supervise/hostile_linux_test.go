package supervise

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// TestRecordsThatAreSwappedForALink: what runs in a sandbox swaps its directory of records for a link that leads out of it,
// all the time. Whoever looks, or takes the lock, must neither make nor change a file there.
func TestRecordsThatAreSwappedForALink(t *testing.T) {
	top := t.TempDir()
	dir, link, outside := filepath.Join(top, "op"), filepath.Join(top, "link"), filepath.Join(top, "outside")
	for _, step := range []error{os.Mkdir(dir, 0o700), os.Mkdir(outside, 0o700), os.Symlink(outside, link)} {
		if step != nil {
			t.Fatal(step)
		}
	}
	kept := filepath.Join(outside, lockName)
	if err := os.WriteFile(kept, []byte("a stranger's"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(bounded(t))
	var swaps sync.WaitGroup
	swaps.Add(1)
	go func() {
		defer swaps.Done()
		for ctx.Err() == nil {
			if err := unix.Renameat2(unix.AT_FDCWD, dir, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE); err != nil && !errors.Is(err, unix.EINTR) {
				t.Error(err)
				return
			}
		}
	}()
	for range 3000 {
		_, _ = ReadState(dir)
		_, _ = Abandon(dir)
	}
	stop()
	swaps.Wait()
	if b, err := os.ReadFile(kept); err != nil || string(b) != "a stranger's" {
		t.Errorf("%q %v", b, err)
	}
	if names, err := os.ReadDir(outside); err != nil || len(names) != 1 {
		t.Errorf("%v %v", names, err)
	}
}

// TestNoMoreIsReadThanWasAllowed of a stream that was made enormous behind the supervisor's back, with an end record to it.
func TestNoMoreIsReadThanWasAllowed(t *testing.T) {
	const allowed = 100_000
	for name, ended := range map[string]bool{"running": false, "ended": true} {
		dir := here().dir(t)
		r, err := openRecords(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer r.close()
		for _, stream := range []string{"stdout", "stderr"} {
			if err := os.WriteFile(filepath.Join(dir, stream), []byte("begin"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(filepath.Join(dir, stream), 1<<40); err != nil {
				t.Fatal(err)
			}
		}
		if ended {
			if err := r.write(exitName, Exit{StdoutBytes: 1 << 40, StderrBytes: -1}); err != nil {
				t.Fatal(err)
			}
		}
		var got bytes.Buffer
		p := Attach(here(), dir, allowed)
		err = p.Follow(bounded(t), Offsets{}, func(_ int, chunk []byte, _ int64) { got.Write(chunk) })
		if ended != (err == nil) || got.Len() < allowed || got.Len() > 2*allowed {
			t.Errorf("%s: %d bytes, %v", name, got.Len(), err)
		}
		if b, total, err := p.Output(Stdout); err != nil || len(b) != allowed || total != 1<<40 {
			t.Errorf("%s: %d of %d, %v", name, len(b), total, err)
		}
		if b, _, err := p.Output(Stderr); err != nil || len(b) > allowed {
			t.Errorf("%s: %d, %v", name, len(b), err)
		}
	}
}
