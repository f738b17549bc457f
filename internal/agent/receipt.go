package agent

import (
	"errors"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/system/files"
)

// Receipt is the record that a program was installed for local targets.
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

// OwnBinary is the recipe of a receipt whose program is an executable that the user brought.
const OwnBinary = "own"

// ReadInstalled is the receipt of a program with a recipe that is there, as its recipe has it or as the user brought it. Otherwise it is a failure
// of kind NotReady with the command to type.
func ReadInstalled(home string, p Program) (Receipt, error) {
	r, err := readReceipt(home, p.Name())
	if recipe := p.Recipe(); err == nil && r.Recipe != OwnBinary && r.Recipe != recipe.Digest() {
		err = failure.New(failure.NotReady, "%s %s was prepared by another version of laufwerk; this one needs %s", p.Title(), r.Version, recipe.Version).
			WithHint(installHint)
	}
	return r, err
}

const installHint = "laufwerk prepare local"

func readReceipt(home, program string) (Receipt, error) {
	path := ReceiptPath(home, program)
	var r Receipt
	err := files.ReadJSON(path, &r)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return r, failure.New(failure.NotReady, "%s is not prepared for local targets", program).WithHint(installHint)
	case err != nil:
		return r, failure.New(failure.NotReady, "the receipt of %s cannot be read: %v", program, err).WithPaths(path).WithHint(installHint)
	case r.Program != program || !filepath.IsAbs(r.Path):
		return r, failure.New(failure.NotReady, "the receipt of %s does not say where the program is", program).WithPaths(path).WithHint(installHint)
	}
	if info, err := files.Stat(r.Path); err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
		return r, failure.New(failure.NotReady, "%s was prepared, and is not there any more", program).WithPaths(r.Path).WithHint(installHint)
	}
	return r, nil
}
