package guest

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/laufwerk/laufwerk/internal/system"
)

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
		err = fmt.Errorf("the environment takes %d bytes, and at most %d can be told", len(b), maxEnvironment)
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
