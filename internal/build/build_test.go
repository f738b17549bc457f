package build

import (
	"runtime/debug"
	"testing"
)

func TestVersionComesFromTheNearestSource(t *testing.T) {
	vcs := []debug.BuildSetting{{Key: "vcs.revision", Value: "0123456789abcdef0123"}, {Key: "vcs.time", Value: "2026-01-02T03:04:05Z"}, {Key: "vcs.modified", Value: "true"}}
	for _, c := range []struct {
		name, release, main string
		settings            []debug.BuildSetting
		want                string
	}{
		{"a release says its name", "v1.2.3", "v0.0.0-2026", vcs, "v1.2.3"},
		{"the toolchain's version", "", "v0.0.0-20260102030405-0123456789ab+dirty", vcs, "v0.0.0-20260102030405-0123456789ab+dirty"},
		{"the revision", "", "(devel)", vcs, "devel+0123456789ab.dirty"},
		{"nothing known", "", "", nil, "devel"},
	} {
		t.Run(c.name, func(t *testing.T) {
			info := from(&debug.BuildInfo{Main: debug.Module{Version: c.main}, Settings: c.settings}, c.release)
			if info.Version != c.want {
				t.Errorf("version %q, want %q", info.Version, c.want)
			}
		})
	}
}
