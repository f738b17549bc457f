package gateway

import (
	"fmt"
	"os"
)

// root is where a sandbox works, if its image names no other directory.
const root = "/sandbox"

// fits says what is found out about a mount only when its container is made.
func (m mount) fits() error {
	if _, err := os.Stat(m.Source); err != nil {
		return &unfit{"ContainerCreateFailed", fmt.Sprintf("docker bind mount source '%s' does not exist", m.Source)}
	}
	if within(root, m.Target) {
		return &unfit{"ContainerCreateFailed", fmt.Sprintf("mount target '%s' covers the workspace root '%s'", m.Target, root)}
	}
	return nil
}
