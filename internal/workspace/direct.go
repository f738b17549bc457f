package workspace

import (
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/redact"
	"github.com/laufwerk/laufwerk/internal/system/safefs"
)

// OpenDirect opens the source itself as the workspace: nothing is copied, listed or written back.
func OpenDirect(source, state string) (OpenRecord, error) {
	path, err := canonical(source)
	if err != nil {
		return OpenRecord{}, err
	}
	r, err := safefs.OpenRoot(path)
	if err != nil {
		return OpenRecord{}, sourceError(path, err)
	}
	defer r.Close()
	c := &copyOperation{req: CopyRequest{State: state}, opened: OpenRecord{Mode: ModeDirect, Source: path, Root: idOf(r), Tree: idOf(r)}}
	if err := c.refuseOwnState(); err != nil {
		return OpenRecord{}, err
	}
	if c.state == idOf(r) {
		return OpenRecord{}, failure.New(failure.InputInvalid, "%s is laufwerk's own state", redact.Line(path))
	}
	return c.opened, nil
}
