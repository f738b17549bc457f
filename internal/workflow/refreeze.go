package workflow

import (
	"context"

	"github.com/laufwerk/laufwerk/internal/workspace"
)

// refreeze freezes the workspace of a question again where the frozen content is damaged. If the workspace is unchanged, that is the
// same content with the same digest. If not, the question keeps its digest, and an approval of the lost content is refused by the
// write-back.
func (w *workspaces) refreeze(ctx context.Context, id, digest string) error {
	if workspace.CheckFreeze(FreezeDir(w.c.RunDir, digest)) == nil {
		return nil
	}
	_, err := w.freezeForQuestion(ctx, id)
	return err
}
