package system

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Ancestry is this process and the processes above it, as "pid command", and whether one of them carries the variable in
// its environment. What may not be read is passed over.
func Ancestry(variable string) (chain []string, carries bool) {
	for pid := os.Getpid(); pid > 0 && len(chain) < 64; {
		dir := "/proc/" + strconv.Itoa(pid)
		if env, err := os.ReadFile(dir + "/environ"); err == nil {
			if bytes.HasPrefix(env, []byte(variable+"=")) || bytes.Contains(env, []byte("\x00"+variable+"=")) {
				carries = true
			}
		}
		stat, err := os.ReadFile(dir + "/stat")
		if err != nil {
			break
		}
		// The name stands in parentheses and may hold spaces and parentheses itself.
		open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
		if open < 0 || end < open {
			break
		}
		chain = append(chain, fmt.Sprintf("%d %s", pid, stat[open+1:end]))
		rest := strings.Fields(string(stat[end+1:]))
		if len(rest) < 2 {
			break
		}
		pid, _ = strconv.Atoi(rest[1])
	}
	return chain, carries
}

// Terminal is the path of the terminal on standard input, "" where there is none.
func Terminal() string {
	p, err := os.Readlink("/proc/self/fd/0")
	if err != nil || !strings.HasPrefix(p, "/dev/") || p == "/dev/null" {
		return ""
	}
	return p
}
