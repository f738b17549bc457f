package cli

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

// DemoAgentArgument is the hidden argument that starts the scripted agent: __demo-agent FOLDER. If FOLDER/wait is there, the turn does
// not end before FOLDER/go is.
const DemoAgentArgument = "__demo-agent"

const (
	demoScript   = "fields.sh"
	demoWaitFile = "wait"
	demoGoFile   = "go"
)

// The three states of the script that the scripted agent works on. It drops the last field of a line that ends in a comma;
// the first repair breaks the empty line.
const (
	demoScriptBroken = `# Prints the fields of a comma separated line, one a line.
line=$1
while [ -n "$line" ]; do
  printf '%s\n' "${line%%,*}"
  case $line in *,*) line=${line#*,} ;; *) line= ;; esac
done
`
	demoScriptHalfFixed = `# Prints the fields of a comma separated line, one a line.
line=$1
[ -n "$line" ] || exit 0
while :; do
  printf '%s\n' "${line%%,*}"
  case $line in *,*) line=${line#*,} ;; *) break ;; esac
done
`
	demoScriptFixed = `# Prints the fields of a comma separated line, one a line.
line=$1
while :; do
  printf '%s\n' "${line%%,*}"
  case $line in *,*) line=${line#*,} ;; *) break ;; esac
done
`
	demoCheck = `fail=0
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

// RunDemoAgent is the scripted agent, which calls no model. Every turn leaves a line in FOLDER/turns when it begins and when it ends,
// which is how the demo counts what ran.
func RunDemoAgent(args []string, env *system.Env) int {
	if err := playDemoAgent(args, env); err != nil {
		fmt.Fprintln(env.Err, err)
		return failure.ExitFailed
	}
	return failure.ExitDone
}

func playDemoAgent(args []string, env *system.Env) error {
	if len(args) != 1 {
		return failure.New(failure.Usage, "%s FOLDER", DemoAgentArgument)
	}
	prompt, err := io.ReadAll(env.In)
	if err != nil {
		return err
	}
	turn, content := "fix", demoScriptHalfFixed
	if strings.Contains(string(prompt), "still fails") {
		turn, content = "repair", demoScriptFixed
	}
	if err := appendDemoTurn(args[0], "begin "+turn); err != nil {
		return err
	}
	fmt.Fprintf(env.Out, "This is a script that plays an agent; no model is called.\n")
	for waited := time.Duration(0); waited < demoWaitTimeout && mustDemoWait(args[0]); waited += demoPollInterval {
		time.Sleep(demoPollInterval)
	}
	if err := files.Write(filepath.Join(env.Dir, demoScript), []byte(content)); err != nil {
		return err
	}
	fmt.Fprintf(env.Out, "%s: changed %s\n", turn, demoScript)
	return appendDemoTurn(args[0], "end "+turn)
}

const (
	demoPollInterval = 5 * time.Millisecond
	demoWaitTimeout  = 30 * time.Second
)

func mustDemoWait(folder string) bool {
	return files.Exists(filepath.Join(folder, demoWaitFile)) && !files.Exists(filepath.Join(folder, demoGoFile))
}

func appendDemoTurn(folder, line string) error {
	f, err := files.Append(filepath.Join(folder, "turns"))
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(line + "\n")
	return err
}
