package workspace

import (
	"context"
	"runtime"
	"sync"

	"github.com/laufwerk/laufwerk/internal/system/safefs"
)

// readers read the contents of files while a walk goes on finding more.
type readers struct {
	files chan *Entry
	ctx   context.Context //nolint:containedctx // that of the walk, which ends with the first error of either
	stop  context.CancelCauseFunc
	all   sync.WaitGroup
}

// startReaders has each called with every entry that is sent to files, by one goroutine for each processor and at least two.
func startReaders(ctx context.Context, each func(*safefs.Copier, *Entry) error) *readers {
	r := &readers{files: make(chan *Entry, 256)}
	r.ctx, r.stop = context.WithCancelCause(ctx)
	for range max(2, runtime.NumCPU()) {
		r.all.Go(func() {
			c := safefs.NewCopier()
			for e := range r.files {
				if r.ctx.Err() != nil {
					continue // the walk must not wait for us
				}
				if err := each(c, e); err != nil {
					r.stop(err)
				}
			}
		})
	}
	return r
}

// end waits for the readers after the walk, and returns the first error of all.
func (r *readers) end(walked error) error {
	if walked != nil {
		r.stop(walked)
	}
	close(r.files)
	r.all.Wait()
	err := context.Cause(r.ctx)
	r.stop(nil)
	return err
}
