package runs

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/internal/journal"
)

// Where the system does not tell of new files (all its watches are taken, or there are none), the inbox is looked into
// now and then: an answer or a cancellation is not missed.
func TestTheInboxIsPolledWithoutWatches(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "inbox"), nil, 0o600); err != nil { // which nobody can watch as a directory
		t.Fatal(err)
	}
	changed, stop := (&Service{}).watch(journal.Open(dir))
	defer stop()
	for range 2 {
		select {
		case <-changed:
		case <-time.After(time.Minute):
			t.Fatal("nobody looks")
		}
	}
}
