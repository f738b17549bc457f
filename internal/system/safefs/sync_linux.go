package safefs

import "golang.org/x/sys/unix"

func clone(to, from int) error { return unix.IoctlFileClone(to, from) }

// Sync makes everything below the root durable, and whatever else waits to be written on its file system.
func (r *Root) Sync() error {
	f, err := r.list("sync", ".")
	if err != nil {
		return err
	}
	defer f.Close()
	return pathError("sync", ".", retry0("sync", func() error { return unix.Syncfs(int(f.Fd())) }))
}
