package e2e

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/laufwerk/laufwerk/internal/testkit"
)

// usersAgent edits where it may, and says what it tried where it may only read.
const usersAgent = `prompt=$(cat)
case $prompt in
Review*) touch intruder 2>&1 && echo "I could write"; exit 0 ;;
esac
mkdir -p made/deep
id -u > made/deep/who
id -g >> made/deep/who
grep NoNewPrivs /proc/self/status | cut -f2 >> made/deep/who
echo fixed > state
printf '#!/bin/sh\n' > made/tool.sh
chmod 755 made/tool.sh
echo done
`

// User is a user that laufwerk runs as.
type User struct{ UID, GID int }

func (u User) String() string { return fmt.Sprintf("%d:%d", u.UID, u.GID) }

// NewUserMachine is a machine that belongs to a user who may use the engine, as a member of the group of its socket.
func NewUserMachine(t *testing.T, endpoint string, u User) *Machine {
	t.Helper()
	w := NewMachine(t)
	w.BecomeUser(endpoint, u)
	return w
}

// BecomeUser gives the machine to a user, with a binary and an agent of its own.
func (w *Machine) BecomeUser(endpoint string, u User) {
	t := w.T
	t.Helper()
	if err := os.RemoveAll(w.Project); err != nil {
		t.Fatal(err)
	}
	w.Program = filepath.Join(w.Dir, "laufwerk")
	b, err := os.ReadFile(testkit.Binary(t))
	if err == nil {
		err = os.WriteFile(w.Program, b, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	w.Env = []string{"DOCKER_HOST=" + endpoint}
	for name, content := range map[string]string{"agent.sh": usersAgent, "state": "broken\n"} {
		w.WriteFile(filepath.Join(w.Project, name), content)
	}
	if os.Getuid() != u.UID || os.Getgid() != u.GID {
		if _, err := exec.LookPath("setpriv"); err != nil || os.Getuid() != 0 {
			testkit.Need(t, "root and setpriv", false, "it runs laufwerk as other users")
		}
		socket, err := os.Stat(strings.TrimPrefix(endpoint, "unix://"))
		if err != nil {
			t.Fatal(err)
		}
		docker := socket.Sys().(*syscall.Stat_t).Gid
		w.UserPrefix = []string{"setpriv", "--reuid", strconv.Itoa(u.UID), "--regid", strconv.Itoa(u.GID), "--groups", strconv.Itoa(int(docker)), "--"}
		if err := os.Chmod(filepath.Dir(w.Dir), 0o755); err != nil {
			t.Fatal(err)
		}
		w.giveTo(u)
	}
}

// giveTo gives a user all that is in the machine.
func (w *Machine) giveTo(u User) {
	w.T.Helper()
	err := filepath.WalkDir(w.Dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, u.UID, u.GID)
	})
	if err != nil {
		w.T.Fatal(err)
	}
}
