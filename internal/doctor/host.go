package doctor

import (
	"context"
	"io"
	"strconv"
	"strings"

	"github.com/laufwerk/laufwerk/internal/system/process"
)

func utoa(n uint64) string { return strconv.FormatUint(n, 10) }

// sizeText is a number of bytes for people.
func sizeText(n uint64) string {
	if n < 1<<30 {
		return utoa(n>>20) + " MiB"
	}
	return strconv.FormatFloat(float64(n)/(1<<30), 'f', 1, 64) + " GiB"
}

func (d *doctor) git(ctx context.Context) []Check {
	var out []byte
	err := process.RunTool(ctx, process.Tool{Name: "git", Args: []string{"--version"}, Dir: "/"}, func(r io.Reader) (err error) {
		out, err = io.ReadAll(io.LimitReader(r, 1<<10))
		return err
	})
	if err != nil {
		return []Check{{Status: Warn, Message: "git cannot be used, so sources that are git repositories are refused; install it: " + err.Error()}}
	}
	return oneCheck(Pass, "%s", strings.TrimSpace(string(out)))
}

// fence says how sure the end of everything that an agent started can be made.
func (d *doctor) fence(context.Context) []Check {
	if err := process.Supported(); err != nil {
		return oneCheck(Warn, "nothing can be run on this host itself, but in containers: %v", err)
	}
	dir, why := process.CgroupPath("laufwerk-doctor")
	if dir == "" {
		return []Check{{
			Status: Pass, Message: "commands are ended by their process tree (subreaper): sure, unless a supervisor is killed too; then by marks in the environment, which a hostile process can drop",
			Evidence: []string{"no control group: " + why},
		}}
	}
	return []Check{{Status: Pass, Message: "commands run in control groups of their own: nothing that they start can escape its end", Evidence: []string{dir}}}
}
