package imagecache

import (
	"path/filepath"

	"github.com/laufwerk/laufwerk/internal/system"
)

// Layout is what images of a kind of targets have besides the program's tree. The zero value is nothing.
type Layout struct {
	Workdir     string   `json:"workdir,omitempty"`     // of the image's configuration
	Directories []string `json:"directories,omitempty"` // empty ones, where something is mounted
	// Paths are directories that have to be there; those that a base image lacks are made.
	Paths []string `json:"paths,omitempty"`
	// Tools are programs that the base image needs besides those of every target.
	Tools []string `json:"tools,omitempty"`
	// Volumeless: whoever makes and removes the containers would leave the volumes that an image declares.
	Volumeless bool `json:"volumeless,omitempty"`
}

// OpenShellPrefix is where images of OpenShell targets have the program: network policies name it.
const OpenShellPrefix = "/sandbox/.harness-bootstrap/codex"

// OpenShell is the cache in a directory for images of OpenShell targets, for this process's user.
//
// Every directory that a sandbox's file system policy names has to be in the image, or the sandbox does not start; which ones
// those are for us, the policy says (internal/openshell/policy). bash and ip are what OpenShell's own supervisor needs.
func OpenShell(dir string) Cache {
	c := Docker(dir)
	c.Kind, c.Prefix, c.Prepare = "openshell", OpenShellPrefix, "laufwerk prepare openshell"
	c.Layout = Layout{
		Workdir: "/sandbox", Directories: []string{"/opt", "/sandbox/home", "/sandbox/ops", "/sandbox/work"},
		Paths: []string{"/bin", "/etc", "/lib", "/lib64", "/sbin", "/tmp", "/usr"}, Tools: []string{"ip"}, Volumeless: true,
	}
	return c
}

// OpenShellDirectory is Directory for caches of OpenShell targets.
func OpenShellDirectory(option, root, userHome, home string) string {
	if option == "" {
		return filepath.Join(Directory("", root, userHome, home), "openshell")
	}
	return Directory(option, root, userHome, home)
}

// dockerKind is what receipts are for that do not say.
const dockerKind = "docker"

// Docker is the cache in a directory for images of Docker targets, for this process's user.
func Docker(dir string) Cache {
	return Cache{Dir: dir, Kind: dockerKind, Program: Codex(), Prefix: DockerPrefix, User: system.UID(), Group: system.GID(), Prepare: "laufwerk prepare docker"}
}
