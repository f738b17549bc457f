package session

import (
	"context"
	"errors"
	"io/fs"

	"github.com/laufwerk/laufwerk/internal/failure"
)

// ReadFile is a file of the workspace as the session sees it; nil where there is no such file.
func (m *Manager) ReadFile(ctx context.Context, key, path string) ([]byte, error) {
	s, leave, err := m.acquire(ctx, key)
	if err != nil {
		return nil, err
	}
	defer leave()
	sb, err := m.enter(ctx, s)
	if err != nil {
		return nil, err
	}
	b, err := sb.ReadFile(ctx, path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, failure.Wrap(err, failure.Failed, "readFile")
	case b == nil:
		return []byte{}, nil
	}
	return b, nil
}

// WriteFile puts a file into the workspace, whole or not at all. Doing it again changes nothing.
func (m *Manager) WriteFile(ctx context.Context, key, path string, data []byte, op Operation) error {
	s, leave, err := m.acquire(ctx, key)
	if err != nil {
		return err
	}
	defer leave()
	sb, err := m.enter(ctx, s)
	if err != nil {
		return err
	}
	if err := op.Start(map[string]int{"bytes": len(data)}); err != nil {
		return err
	}
	return failure.Wrap(sb.WriteFile(ctx, path, data), failure.Failed, "writeFile")
}
