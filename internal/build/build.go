// Package build says which laufwerk this is.
package build

import (
	"runtime"
	"runtime/debug"
	"strings"
)

// release is set by the linker for released builds: -ldflags "-X github.com/laufwerk/laufwerk/internal/build.release=v1.2.3".
var release string //nolint:gochecknoglobals // the linker can set nothing else

// Info is the origin of a binary.
type Info struct {
	Version  string `json:"version"`            // "v1.2.3"; a pseudo-version of the revision; "devel" where nothing is known
	Revision string `json:"revision,omitempty"` // of the version control system, in full
	Time     string `json:"time,omitempty"`     // of the revision, RFC 3339
	Modified bool   `json:"modified"`           // there were changes that no revision has
	Go       string `json:"go"`                 // "go1.26.0"
	Platform string `json:"platform"`           // "linux/amd64"
}

// Read is the origin of this binary, from what the Go toolchain wrote into it.
func Read() Info {
	bi, ok := debug.ReadBuildInfo()
	if !ok {
		bi = &debug.BuildInfo{}
	}
	return from(bi, release)
}

func from(bi *debug.BuildInfo, release string) Info {
	info := Info{Version: release, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	for _, s := range bi.Settings {
		switch s.Key {
		case "vcs.revision":
			info.Revision = s.Value
		case "vcs.time":
			info.Time = s.Value
		case "vcs.modified":
			info.Modified = s.Value == "true"
		}
	}
	if info.Version != "" {
		return info
	}
	if v := bi.Main.Version; v != "" && v != "(devel)" {
		info.Version = v
		return info
	}
	info.Version = "devel"
	if info.Revision != "" {
		info.Version += "+" + info.Revision[:min(12, len(info.Revision))]
		if info.Modified {
			info.Version += ".dirty"
		}
	}
	return info
}

// String is the version with what it was made from, on one line.
func (i Info) String() string {
	var b strings.Builder
	b.WriteString(i.Version)
	if i.Revision != "" {
		b.WriteString(" (" + i.Revision[:min(12, len(i.Revision))])
		if i.Time != "" {
			b.WriteString(", " + i.Time)
		}
		if i.Modified {
			b.WriteString(", modified")
		}
		b.WriteString(")")
	}
	return b.String() + " " + i.Go + " " + i.Platform
}
