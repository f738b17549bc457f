package policy

import (
	"strconv"

	"github.com/laufwerk/laufwerk/internal/openshell/wire"
)

// The directories of a sandbox. All of them are in its image, and belong to the worker there.
const (
	Root = "/sandbox"      // its working directory, in which only what follows can be written
	Home = "/sandbox/home" // the session's private home
	// Programs is where images have agent programs, each in a folder of its name.
	Programs = "/sandbox/.harness-bootstrap"
	Ops      = "/sandbox/ops"  // the records of its commands
	Work     = "/sandbox/work" // the workspace
)

// readOnly and readWrite are the paths that every sandbox may use: under hard_requirement each of them has to be in the image.
// /dev/ptmx must not be listed: it is a link, and the supervisor would not start. Programs that open a terminal need /dev/pts.
func readOnly() []string {
	return []string{"/usr", "/lib", "/lib64", "/bin", "/sbin", "/etc", "/opt", "/proc", Root, "/dev/urandom", "/dev/random", "/dev/zero", "/dev/full"}
}

func readWrite() []string {
	return []string{"/tmp", "/dev/null", "/dev/shm", "/dev/tty", "/dev/pts", Home, Ops}
}

// Sandbox is the whole policy of a session's sandbox: laufwerk's part is files and process. The workspace can be written or not;
// uid and gid, which are not 0, are who works in it.
func Sandbox(p Policies, writable bool, uid, gid int) *wire.SandboxPolicy {
	files := &wire.FilesystemPolicy{ReadOnly: readOnly(), ReadWrite: readWrite()}
	if writable {
		files.ReadWrite = append(files.ReadWrite, Work)
	} else {
		files.ReadOnly = append(files.ReadOnly, Work)
	}
	return &wire.SandboxPolicy{
		Version:         1,
		Filesystem:      files,
		Landlock:        &wire.LandlockPolicy{Compatibility: "hard_requirement"}, // any other word is best effort
		Process:         &wire.ProcessPolicy{RunAsUser: strconv.Itoa(uid), RunAsGroup: strconv.Itoa(gid)},
		NetworkPolicies: p.Wire(),
	}
}

// Binaries are the executables of an agent program in prepared images, as profiles and policies name them. A rule for them also
// holds for what they start.
func Binaries(program string) string { return Programs + "/" + program + "/node_modules/**" }
