package supervise

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// To give up an inotify instance takes longer than a short command does: none is made before a command has taken a while. From
// then on an event wakes whoever waits, and what came before the first one could be told is looked for at once.
func TestEventsAreForLongCommands(t *testing.T) {
	dir := t.TempDir()
	w := newWatcher(dir)
	looks := 0
	for ; w.since < inotifyAfter; looks++ {
		if err := w.next(t.Context()); err != nil || w.w != nil {
			t.Fatalf("after %s: %v", w.since, err)
		}
	}
	if looks < 10 || looks > 100 {
		t.Errorf("%d looks", looks)
	}
	if err := w.next(t.Context()); err != nil || w.w == nil {
		t.Fatalf("after %s: %v", w.since, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := os.WriteFile(filepath.Join(dir, exitName), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	select {
	case e := <-w.w.Events:
		if filepath.Base(e.Name) != exitName {
			t.Errorf("%v", e)
		}
	case <-ctx.Done():
		t.Error("no event tells that there is a record")
	}
	w.close()
	gone := newWatcher(filepath.Join(dir, "nowhere"))
	gone.since = inotifyAfter
	if err := gone.next(t.Context()); err != nil || gone.w != nil { // looked at every 10 ms
		t.Errorf("%v", err)
	}
}
