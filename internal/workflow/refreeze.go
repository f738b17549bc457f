package workflow

import (
	"context"

	"github.com/laufwerk/laufwerk/internal/workspace"
)

// refreeze takes the content of a question once more where what was kept of it is damaged. If the workspace is still what was
// asked about, it is the same content under the same digest; if not, the question keeps its digest, and an approval of what is
// no more is refused when it is to be written.
func (w *workspaces) refreeze(ctx context.Context, id, digest string) error {
	if workspace.CheckFreeze(FreezeDir(w.c.RunDir, digest)) == nil {
		return nil
	}
	_, err := w.freezeFor(ctx, id)
	return err
}
