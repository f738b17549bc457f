package local

import (
	"context"

	"github.com/laufwerk/laufwerk/internal/providers/sessiondir"
)

func (s *sandbox) tree() sessiondir.Tree {
	return sessiondir.Tree{Host: s.spec.Workspace, Seen: s.spec.Workspace}
}

// ReadFile reads a file of the workspace.
func (s *sandbox) ReadFile(_ context.Context, name string) ([]byte, error) {
	return s.tree().ReadFile(name)
}

// WriteFile puts a file into the workspace.
func (s *sandbox) WriteFile(_ context.Context, name string, data []byte) error {
	return s.tree().WriteFile(name, data)
}
