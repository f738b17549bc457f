package guest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/laufwerk/laufwerk/internal/supervise"
	"github.com/laufwerk/laufwerk/internal/system"
	"github.com/laufwerk/laufwerk/internal/system/process"
)

// runSupervisor becomes one, after it has left what started it.
func runSupervisor(env *system.Env, dir string) int {
	talk, err := process.Daemonize(supervise.LogPath(dir))
	if err == nil {
		env.Err = talk // else it is still that of the starting process, which learns it
	}
	return supervise.MainInSandbox(env, dir)
}

func launcher(env *system.Env) supervise.LocalLauncher {
	return supervise.LocalLauncher{Now: env.Now, OwnsAllProcesses: true}
}

type interruptAnswer struct {
	Gone bool `json:"gone"` // there is no living supervisor
}

func interrupt(env *system.Env, args []string) error {
	err := launcher(env).Interrupt(context.Background(), args[0])
	if err != nil && !errors.Is(err, process.ErrGone) {
		return err
	}
	return json.NewEncoder(env.Out).Encode(interruptAnswer{Gone: err != nil})
}

// ReadInterrupt reads what Interrupt printed: nil, process.ErrGone where no supervisor lived, or that it is no answer.
func ReadInterrupt(stdout []byte) error {
	a, err := readAnswer[interruptAnswer](stdout)
	if err == nil && a.Gone {
		return process.ErrGone
	}
	return err
}

// runFence tells what the launcher of the place itself finds. Of a supervisor that was killed it is never sure: its descendants
// have passed to Init, as have those of every other one, and an agent can take the mark off. Only the end of the whole
// sandbox makes that sure.
func runFence(env *system.Env, args []string) error {
	return json.NewEncoder(env.Out).Encode(launcher(env).Fence(context.Background(), args[0]))
}

// ReadFence reads what Fence printed.
func ReadFence(stdout []byte) (supervise.FenceResult, error) {
	return readAnswer[supervise.FenceResult](stdout)
}

// readAnswer takes an answer, which is one line of JSON.
func readAnswer[T any](stdout []byte) (out T, err error) {
	if err := json.Unmarshal(stdout, &out); err != nil {
		return out, fmt.Errorf("no answer from inside: %w", err)
	}
	return out, nil
}
