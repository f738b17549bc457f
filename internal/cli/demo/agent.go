package demo

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/system"
	"github.com/laufwerk/laufwerk/internal/system/files"
)

// AgentArgument is the hidden subcommand that plays the agent: __demo-agent FOLDER. If FOLDER/wait is there, the turn does
// not end before FOLDER/go is.
const AgentArgument = "__demo-agent"

const (
	script   = "fields.sh"
	waitFile = "wait"
	goFile   = "go"
)

// The three states of the script that the scripted agent works on. It drops the last field of a line that ends in a comma;
// the first repair breaks the empty line.
const (
	broken = `# Prints the fields of a comma separated line, one a line.
line=$1
while [ -n "$line" ]; do
  printf '%s\n' "${line%%,*}"
  case $line in *,*) line=${line#*,} ;; *) line= ;; esac
done
`
	halfway = `# Prints the fields of a comma separated line, one a line.
line=$1
[ -n "$line" ] || exit 0
while :; do
  printf '%s\n' "${line%%,*}"
  case $line in *,*) line=${line#*,} ;; *) break ;; esac
done
`
	repaired = `# Prints the fields of a comma separated line, one a line.
line=$1
while :; do
  printf '%s\n' "${line%%,*}"
  case $line in *,*) line=${line#*,} ;; *) break ;; esac
done
`
	check = `fail=0
expect() {
  got=$(sh fields.sh "$1" | wc -l)
  if [ "$got" -ne "$2" ]; then echo "fields.sh '$1': $got fields instead of $2"; fail=1; fi
}
expect 'a,b' 2
expect 'a,b,' 3
expect '' 1
exit $fail
`
)

// Agent is the scripted agent: no model is asked. Every turn leaves a line in FOLDER/turns when it begins and when it ends,
// which is how the demo counts what ran.
func Agent(args []string, env *system.Env) int {
	if err := play(args, env); err != nil {
		fmt.Fprintln(env.Err, err)
		return failure.ExitFailed
	}
	return failure.ExitDone
}

func play(args []string, env *system.Env) error {
	if len(args) != 1 {
		return failure.New(failure.Usage, "%s FOLDER", AgentArgument)
	}
	prompt, err := io.ReadAll(env.In)
	if err != nil {
		return err
	}
	turn, content := "fix", halfway
	if strings.Contains(string(prompt), "still fails") {
		turn, content = "repair", repaired
	}
	if err := note(args[0], "begin "+turn); err != nil {
		return err
	}
	fmt.Fprintf(env.Out, "This is a script that plays an agent; no model is asked.\n")
	for waited := time.Duration(0); waited < patience && held(args[0]); waited += pause {
		time.Sleep(pause)
	}
	if err := files.Write(filepath.Join(env.Dir, script), []byte(content)); err != nil {
		return err
	}
	fmt.Fprintf(env.Out, "%s: changed %s\n", turn, script)
	return note(args[0], "end "+turn)
}

const (
	pause    = 5 * time.Millisecond
	patience = 30 * time.Second
)

func held(folder string) bool {
	return files.Exists(filepath.Join(folder, waitFile)) && !files.Exists(filepath.Join(folder, goFile))
}

func note(folder, line string) error {
	f, err := files.Append(filepath.Join(folder, "turns"))
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(line + "\n")
	return err
}
