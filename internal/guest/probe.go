package guest

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"time"

	"github.com/laufwerk/laufwerk/internal/redact"
	"github.com/laufwerk/laufwerk/internal/system"
	"github.com/laufwerk/laufwerk/internal/system/files"
	"github.com/laufwerk/laufwerk/internal/system/process"
)

// ProbeResult is what a sandbox has.
type ProbeResult struct {
	UID    int             `json:"uid"`
	GID    int             `json:"gid"`
	Kernel string          `json:"kernel"` // its release, "" where it does not say
	Path   string          `json:"path"`   // PATH, in which the programs were looked for
	Tools  map[string]Tool `json:"tools"`  // those of bash, sh, git, ip, node, pnpm and setsid that are there
}

// Tool is a program.
type Tool struct {
	Path    string `json:"path"`
	Version string `json:"version,omitempty"` // the first line that it says to --version; "" where it says none
}

// VersionLimit is how long a program may take to tell its version. On a busy machine a package manager takes seconds.
const VersionLimit = 20 * time.Second

func runProbe(env *system.Env, _ []string) error {
	p := ProbeResult{UID: system.UID(), GID: system.GID(), Path: env.Var("PATH"), Tools: map[string]Tool{}}
	if b, err := files.Read("/proc/sys/kernel/osrelease"); err == nil {
		p.Kernel = strings.TrimSpace(string(b))
	}
	for _, name := range []string{"bash", "sh", "git", "ip", "node", "pnpm", "setsid"} {
		path, err := process.Find(name, p.Path, "/")
		if err != nil {
			continue
		}
		p.Tools[name] = Tool{Path: path, Version: version(path)}
	}
	return json.NewEncoder(env.Out).Encode(p)
}

func version(path string) (line string) {
	ctx, cancel := context.WithTimeout(context.Background(), VersionLimit)
	defer cancel()
	err := process.RunTool(ctx, process.Tool{Name: path, Args: []string{"--version"}, Dir: "/"}, func(r io.Reader) error {
		b, err := io.ReadAll(io.LimitReader(r, 4096))
		first, _, _ := strings.Cut(string(b), "\n")
		line = redact.Line(strings.TrimSpace(first))
		return err
	})
	if err != nil {
		return ""
	}
	return line
}

// ReadProbe reads what Probe printed.
func ReadProbe(stdout []byte) (ProbeResult, error) { return readAnswer[ProbeResult](stdout) }
