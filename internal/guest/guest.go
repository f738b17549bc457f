// Package inside is what our own binary does inside a sandbox, where it is mounted read-only and may be all that there is:
// no shell, no user database, a root file system that cannot be written, a user without a name and without capabilities.
//
// The worker starts it there with one hidden first argument. Init, Supervise and so on are the command lines.
package guest

import (
	"fmt"
	"io/fs"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/supervise"
	"github.com/laufwerk/laufwerk/internal/system"
)

// Argument is the hidden command of the binary; what to do follows.
const Argument = "__inside"

// Binary is where a sandbox has the binary.
const Binary = "/opt/laufwerk/laufwerk"

// Init is the sandbox's first process. It reaps what loses its parent, no signal from inside ends it, and it writes nonce
// into the file ready, which it keeps locked for as long as it lives: see Look. The directory of ready must be there.
// Before that it makes sure that the sandbox is what it should be: an image can have links where something is to be mounted,
// so that it is mounted elsewhere, and can put its user into groups. It ends with ExitLinks where there is a link on the way
// to one of mounts, and with ExitGroups if it has a group besides its own.
func Init(ready, nonce string, mounts ...string) []string {
	return append([]string{Binary, Argument, "init", ready, nonce}, mounts...)
}

// Serve is Init, and keeps a supervisor standing by at StandbyName beside ready: see Take.
func Serve(ready, nonce string, mounts ...string) []string {
	return append([]string{Binary, Argument, "serve", ready, nonce}, mounts...)
}

// MainProcess is the main process of a sandbox whose first process is somebody else's. As Init it writes nonce into the file ready and
// keeps that locked for as long as it lives, and no signal that can be ignored ends it; what loses its parent is not its affair.
func MainProcess(ready, nonce string) []string {
	return []string{Binary, Argument, "hold", ready, nonce}
}

// Exit codes of Init, see there.
const (
	ExitLinks  = 21
	ExitGroups = 22
)

// Supervise is a supervisor on the directory of records dir, which must be there: see supervise.Handshake. It outlives
// what started it.
func Supervise(dir string) []string { return []string{Binary, Argument, supervise.InsideArgument, dir} }

// SuperviseFrom is Supervise where what it is to be handed does not fit on its stdin: it is in parts, which are removed, and
// has the SHA-256 sum in hex. An agent may write where the parts are, and no arguments.
func SuperviseFrom(dir, sum string, parts ...string) []string {
	return slices.Concat([]string{Binary, Argument, "from", sum}, parts, []string{supervise.InsideArgument, dir})
}

// Standby is a supervisor that waits at socket until it is told of an operation: see Take. As soon as it does it prints what
// Environment prints. Where another one waits there already, it ends after that.
func Standby(socket string) []string {
	return []string{Binary, Argument, supervise.StandbyArgument, socket}
}

// Interrupt asks the command of dir to stop: see ReadInterrupt.
func Interrupt(dir string) []string { return []string{Binary, Argument, "interrupt", dir} }

// Fence ends everything of the operation in dir: see ReadFence.
func Fence(dir string) []string { return []string{Binary, Argument, "fence", dir} }

// PutFile makes a file of the size bytes that come on stdin, with exactly these mode bits, whole or not at all, in place of
// whatever has its name, and the directories above it. It exits with 0 once the file is there. No link is followed below the
// mount that holds path.
func PutFile(path string, mode fs.FileMode, size int) []string {
	return []string{Binary, Argument, "put", path, strconv.FormatUint(uint64(mode.Perm()), 8), strconv.Itoa(size)}
}

// Probe tells what the sandbox has: see ProbeResult.
func Probe() []string { return []string{Binary, Argument, "probe"} }

// Environment tells with what environment programs are started in the sandbox: see ReadEnvironment.
func Environment() []string { return []string{Binary, Argument, "environment"} }

// memoryLimit is the heap in bytes from which on these processes rather work than grow: they count against the sandbox's limit.
const memoryLimit = 16 << 20

// Main is the entry. Its exit codes are 0, 1 for what failed, with the reason on stderr, and 2 for a wrong command line.
func Main(env *system.Env, args []string) int {
	debug.SetGCPercent(50)
	debug.SetMemoryLimit(memoryLimit)
	runtime.GOMAXPROCS(2) // threads count, too
	if len(args) > 0 {
		for _, s := range []struct {
			name string
			args int
			run  func(env *system.Env, args []string) error
		}{
			{"interrupt", 1, interrupt}, {"fence", 1, runFence}, {"put", 3, runPut}, {"probe", 0, runProbe}, {"environment", 0, printEnvironment},
		} {
			if s.name != args[0] || s.args != len(args)-1 {
				continue
			}
			if err := s.run(env, args[1:]); err != nil {
				_, _ = fmt.Fprintf(env.Err, "laufwerk %s %s: %v\n", Argument, s.name, err)
				return failure.ExitFailed
			}
			return failure.ExitDone
		}
		if args[0] == "hold" && len(args) == 3 {
			return runMainProcess(env, args[1], args[2])
		}
		if (args[0] == "init" || args[0] == "serve") && len(args) > 2 {
			return initialise(env, args[1], args[2], args[3:], args[0] == "serve")
		}
		if args[0] == supervise.StandbyArgument && len(args) == 2 {
			return runStandby(env, args[1])
		}
		if args[0] == supervise.InsideArgument && len(args) == 2 {
			return runSupervisor(env, args[1])
		}
		if n := len(args); args[0] == "from" && n > 4 && args[n-2] == supervise.InsideArgument {
			env.In = &partFiles{sum: args[1], names: args[2 : n-2]}
			return runSupervisor(env, args[n-1])
		}
	}
	_, _ = fmt.Fprintf(env.Err, "usage: laufwerk %s init|serve FILE NONCE [MOUNT …] | hold FILE NONCE | standby SOCKET | [from SUM PART …] %s DIR | interrupt DIR | fence DIR | put FILE MODE SIZE | probe | environment\n", Argument, supervise.InsideArgument)
	return failure.ExitUsage
}
