package agent

import (
	"errors"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/system/files"
)

// Receipt is the record that a program was prepared for local targets.
type Receipt struct {
	Format  string    `json:"format"` // major.minor
	Program string    `json:"program"`
	Version string    `json:"version"`
	Path    string    `json:"path"`   // of the native executable, absolute
	Recipe  string    `json:"recipe"` // digest of what it was made from
	At      time.Time `json:"at"`
}

// ReceiptFormat is the format that is written.
const ReceiptFormat = "1.0"

// Folder is where a program is prepared below $LAUFWERK_HOME.
func Folder(home, program string) string { return filepath.Join(home, "harness", program) }

// ReceiptPath is the receipt of a program.
func ReceiptPath(home, program string) string {
	return filepath.Join(Folder(home, program), "receipt.json")
}

// Prepared is the receipt of a program that is there. Otherwise it is a failure of kind NotReady with the command to type.
func Prepared(home, program string) (Receipt, error) {
	const hint = "laufwerk prepare local"
	path := ReceiptPath(home, program)
	var r Receipt
	err := files.ReadJSON(path, &r)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return r, failure.New(failure.NotReady, "%s is not prepared for local targets", program).WithHint(hint)
	case err != nil:
		return r, failure.New(failure.NotReady, "the receipt of %s cannot be read: %v", program, err).WithPaths(path).WithHint(hint)
	case r.Program != program || !filepath.IsAbs(r.Path):
		return r, failure.New(failure.NotReady, "the receipt of %s does not say where the program is", program).WithPaths(path).WithHint(hint)
	}
	if info, err := files.Stat(r.Path); err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
		return r, failure.New(failure.NotReady, "%s was prepared, and is not there any more", program).WithPaths(r.Path).WithHint(hint)
	}
	return r, nil
}
