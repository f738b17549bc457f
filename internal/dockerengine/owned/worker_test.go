package owned

import (
	"testing"

	"github.com/laufwerk/laufwerk/internal/dockerengine"
)

func TestWorkerOn(t *testing.T) {
	for _, c := range []struct {
		facts    dockerengine.Facts
		uid, gid int
		want     ContainerUser
	}{
		{dockerengine.Facts{}, 1234, 20, ContainerUser{User: "1234:20"}},
		{dockerengine.Facts{}, 0, 0, ContainerUser{User: "65534:65534", Nobody: true}},
		{dockerengine.Facts{UserNS: true}, 1234, 20, ContainerUser{User: "1234:20", UserNS: "host"}},
		{dockerengine.Facts{UserNS: true}, 0, 0, ContainerUser{User: "65534:65534", Nobody: true, UserNS: "host"}},
		{dockerengine.Facts{Rootless: true, UserNS: true}, 1234, 20, ContainerUser{User: "0:0"}},
	} {
		if got := ContainerUserFor(c.facts, c.uid, c.gid); got != c.want {
			t.Errorf("%+v, %d:%d: %+v, want %+v", c.facts, c.uid, c.gid, got, c.want)
		}
	}
}
