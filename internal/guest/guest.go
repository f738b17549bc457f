// Package guest is our binary inside a sandbox, where it is mounted read-only. There may be no shell, no user database, no writable
// root file system, no name and no capabilities of the user. Init, Supervise and so on are its command lines.
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

// Argument is the hidden command of the binary; a subcommand follows.
const Argument = "__inside"

// Binary is the path of the binary in a sandbox.
const Binary = "/opt/laufwerk/laufwerk"

// Init is the sandbox's first process. It reaps orphans, no signal from inside ends it, and it writes nonce into the file ready,
// which it keeps locked while it lives: see Observe. The directory of ready must exist.
// An image can redirect mounts through symbolic links, and put its user into groups. Init exits with ExitLinks where a link is on
// the way to one of mounts, and with ExitGroups where it has another group than its own.
func Init(ready, nonce string, mounts ...string) []string {
	return append([]string{Binary, Argument, "init", ready, nonce}, mounts...)
}

// Serve is Init that also keeps a supervisor waiting at StandbyName beside ready: see TakeStandby.
func Serve(ready, nonce string, mounts ...string) []string {
	return append([]string{Binary, Argument, "serve", ready, nonce}, mounts...)
}

// MainProcess is the main process of a sandbox with a foreign init. Like Init it writes nonce into the file ready, keeps that locked
// and ignores signals; it does not reap.
func MainProcess(ready, nonce string) []string {
	return []string{Binary, Argument, "hold", ready, nonce}
}

// Exit codes of Init, see there.
const (
	ExitLinks  = 21
	ExitGroups = 22
)

// Supervise is a supervisor with the directory of records dir, which must exist: see supervise.Handshake. It outlives its parent.
func Supervise(dir string) []string { return []string{Binary, Argument, supervise.InsideArgument, dir} }

// SuperviseFrom is Supervise with a spec that is too large for stdin: it reads and removes the files parts. An agent may write
// there, but not change arguments, which have the SHA-256 sum of the spec in hex.
func SuperviseFrom(dir, sum string, parts ...string) []string {
	return slices.Concat([]string{Binary, Argument, "from", sum}, parts, []string{supervise.InsideArgument, dir})
}

// Standby is a supervisor that waits at socket for an operation: see TakeStandby. Once it waits it prints what Environment prints.
// Where another one waits already, it exits after that.
func Standby(socket string) []string {
	return []string{Binary, Argument, supervise.StandbyArgument, socket}
}

// Interrupt asks the command of dir to stop: see ReadInterrupt.
func Interrupt(dir string) []string { return []string{Binary, Argument, "interrupt", dir} }

// Fence ends everything of the operation in dir: see ReadFence.
func Fence(dir string) []string { return []string{Binary, Argument, "fence", dir} }

// PutFile atomically replaces path by a file with size bytes from stdin and exactly these mode bits, and makes the directories above
// it. It follows no link below the mount that holds path.
func PutFile(path string, mode fs.FileMode, size int) []string {
	return []string{Binary, Argument, "put", path, strconv.FormatUint(uint64(mode.Perm()), 8), strconv.Itoa(size)}
}

// Probe prints what the sandbox has: see ProbeResult.
func Probe() []string { return []string{Binary, Argument, "probe"} }

// Environment prints the environment that the sandbox gives to programs: see ReadEnvironment.
func Environment() []string { return []string{Binary, Argument, "environment"} }

// memoryLimit is the soft limit of the heap in bytes: these processes count against the sandbox's memory.
const memoryLimit = 16 << 20

// Main exits with 0, with 1 and the reason on stderr, or with 2 for a wrong command line.
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
