package guest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/laufwerk/laufwerk/internal/sha256hex"
	"github.com/laufwerk/laufwerk/internal/system/safefs"
)

// maxParts bounds the size of all parts together, in bytes.
const maxParts = 64 << 20

// partFiles reads the concatenation of files and removes them.
type partFiles struct {
	sum   string
	names []string
	read  *bytes.Reader
}

func (p *partFiles) Read(b []byte) (int, error) {
	if p.read == nil {
		whole, err := p.join()
		if err != nil {
			return 0, err
		}
		p.read = bytes.NewReader(whole)
	}
	return p.read.Read(b)
}

func (p *partFiles) join() (whole []byte, err error) {
	for _, name := range p.names {
		part, err := readOnce(name, maxParts-int64(len(whole)))
		if err != nil {
			return nil, err
		}
		whole = append(whole, part...)
	}
	if sha256hex.Of(whole) != p.sum {
		return nil, errors.New("something has changed the input on its way")
	}
	return whole, nil
}

func readOnce(name string, limit int64) ([]byte, error) {
	if !filepath.IsAbs(name) {
		return nil, fmt.Errorf("the part must be an absolute path, got %q", name)
	}
	dir, err := safefs.OpenRoot(filepath.Dir(name))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	f, _, err := dir.Open(filepath.Base(name))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("the parts have more than %d bytes", maxParts)
	}
	return b, errors.Join(err, dir.Remove(filepath.Base(name)))
}
