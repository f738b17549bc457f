package guest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/laufwerk/laufwerk/internal/supervise"
)

func TestPartsAreOneInput(t *testing.T) {
	whole := bytes.Repeat([]byte("0123456789"), 1000)
	sum := sha256.Sum256(whole)
	for name, c := range map[string]struct {
		change func(dir string)
		says   string
	}{
		"as they were":  {func(string) {}, ""},
		"one changed":   {func(dir string) { must(t, os.WriteFile(dir+"/1", []byte("another"), 0o600)) }, "changed the input"},
		"one is gone":   {func(dir string) { must(t, os.Remove(dir+"/1")) }, "no such file"},
		"one is a link": {func(dir string) { must(t, os.Rename(dir+"/1", dir+"/x")); must(t, os.Symlink(dir+"/x", dir+"/1")) }, "link"},
		"one is a fifo": {func(dir string) { must(t, os.Remove(dir+"/1")); must(t, mkfifo(dir+"/1")) }, "not a regular file"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			var names []string
			for i := range 4 {
				name := filepath.Join(dir, fmt.Sprint(i))
				names = append(names, name)
				must(t, os.WriteFile(name, whole[i*2500:(i+1)*2500], 0o600))
			}
			c.change(dir)
			got, err := io.ReadAll(&partFiles{sum: hex.EncodeToString(sum[:]), names: names})
			if c.says != "" {
				if err == nil || !strings.Contains(err.Error(), c.says) {
					t.Errorf("%d bytes, %v", len(got), err)
				}
				return
			}
			if left, _ := filepath.Glob(dir + "/*"); err != nil || !bytes.Equal(got, whole) || len(left) > 0 {
				t.Errorf("%d bytes, %v, left %q", len(got), err, left)
			}
		})
	}
	if _, err := io.ReadAll(&partFiles{names: []string{"relative"}}); err == nil {
		t.Error("a relative path is read")
	}
}

// The command line ends as that of every supervisor, by which one is found.
func TestASupervisorFromParts(t *testing.T) {
	got := SuperviseFrom("/sandbox/ops/1", "5f", "/dev/shm/a", "/dev/shm/b")
	if want := strings.Join([]string{Binary, Argument, "from", "5f", "/dev/shm/a", "/dev/shm/b", supervise.InsideArgument, "/sandbox/ops/1"}, " "); strings.Join(got, " ") != want {
		t.Errorf("%q", got)
	}
}
