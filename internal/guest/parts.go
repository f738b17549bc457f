package guest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"github.com/laufwerk/laufwerk/internal/sha256hex"
	"github.com/laufwerk/laufwerk/internal/system"
	"github.com/laufwerk/laufwerk/internal/system/safefs"
)

// maxParts bounds what is read of parts together, in bytes.
const maxParts = 64 << 20

// partFiles are files that together are a supervisor's input. They are gone once they were read.
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

// maxEnvironment is the most that environment prints, in bytes: an answer from inside is kept up to a size only.
const maxEnvironment = 60 << 10

type environmentReport struct {
	Env []string `json:"env"`
}

// printEnvironment tells what whoever starts programs in the sandbox gives them: a proxy, certificates, placeholders of logins.
func printEnvironment(env *system.Env, _ []string) error {
	var out environmentReport
	for name, value := range env.Vars {
		out.Env = append(out.Env, name+"="+value)
	}
	slices.Sort(out.Env)
	b, err := json.Marshal(out)
	if err == nil && len(b) > maxEnvironment {
		err = fmt.Errorf("the environment takes %d bytes, and at most %d can be reported", len(b), maxEnvironment)
	}
	if err != nil {
		return err
	}
	_, err = env.Out.Write(append(b, '\n'))
	return err
}

// ReadEnvironment reads what Environment printed: NAME=VALUE, in the order of the names.
func ReadEnvironment(stdout []byte) ([]string, error) {
	e, err := readAnswer[environmentReport](stdout)
	return e.Env, err
}
