package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/store"
	"github.com/laufwerk/laufwerk/internal/system"
	"github.com/laufwerk/laufwerk/internal/system/files"
	"github.com/laufwerk/laufwerk/internal/system/lock"
	"github.com/laufwerk/laufwerk/internal/system/process"
)

// Free space below which a run may fail, and below which it soon will.
const (
	leastBytes, fewBytes   = 200 << 20, 2 << 30
	leastInodes, fewInodes = 1_000, 50_000
)

func (d *doctor) settings(context.Context) []Check {
	if _, err := d.home(); err != nil {
		return failedCheck(err)
	}
	return oneCheck(Pass, "the settings can be read")
}

func (d *doctor) homeDir(ctx context.Context) []Check {
	home, err := d.home()
	if err != nil {
		return oneCheck(Skip, "not checked: the settings cannot be read")
	}
	if _, err := d.service(ctx); err != nil {
		return failedCheck(err)
	}
	info, err := files.Stat(home)
	if errors.Is(err, fs.ErrNotExist) {
		at := nearestExisting(home)
		if err := files.Writable(at); err != nil {
			return failedCheck(failure.New(failure.HomeInvalid, "%s does not exist yet and cannot be created: %v", home, err).WithHint("export LAUFWERK_HOME=/path/to/a/directory/of/your/own"))
		}
		return oneCheck(Pass, "%s does not exist yet: the first run creates it", home)
	}
	if err != nil {
		return failedCheck(err)
	}
	if err := files.Writable(home); err != nil {
		return failedCheck(failure.New(failure.HomeInvalid, "%v", err).WithHint("chmod u+rwX %s", failure.Quote(home)))
	}
	c := Check{Status: Pass, Message: home + " belongs to you alone"}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		c.Status, c.Message = Warn, home+" can be read by others: "+info.Mode().String()
		c.Hint = "chmod go-rwx " + failure.Quote(home)
	}
	if uid, ok := files.Owner(info); ok {
		c.Evidence = []string{info.Mode().String() + ", owner " + system.UserName() + " (" + strconv.Itoa(uid) + ")"}
	}
	return []Check{c}
}

// nearestExisting is the nearest directory upwards that can be seen.
func nearestExisting(dir string) string {
	for dir != filepath.Dir(dir) {
		if _, err := files.Lstat(dir); err == nil {
			break
		}
		dir = filepath.Dir(dir)
	}
	return dir
}

func (d *doctor) homeLock(ctx context.Context) []Check {
	home, err := d.home()
	if err != nil {
		return oneCheck(Skip, "not checked: the settings cannot be read")
	}
	at := nearestExisting(home)
	network, err := files.Network(at)
	if err != nil {
		return failedCheck(err)
	}
	if network != "" {
		return []Check{{
			Status: Warn, Message: "the file system is " + network + ": its locks and renames may not be reliable", Evidence: []string{at},
			Hint: "export LAUFWERK_HOME=/path/on/a/local/disk",
		}}
	}
	s, err := d.service(ctx)
	if err != nil || !files.Exists(s.Home.LockFile("state")) {
		return oneCheck(Pass, "the file system is local")
	}
	if _, _, err := lock.Query(s.Home.LockFile("state")); err != nil {
		return failedCheck(failure.New(failure.HomeInvalid, "the file system does not support locks: %v", err).WithHint("export LAUFWERK_HOME=/path/on/a/local/disk"))
	}
	return oneCheck(Pass, "the file system is local and supports locks")
}

func (d *doctor) homeSpace(context.Context) []Check {
	home, err := d.home()
	if err != nil {
		return oneCheck(Skip, "not checked: the settings cannot be read")
	}
	free, err := files.Space(nearestExisting(home))
	if err != nil {
		return failedCheck(err)
	}
	return []Check{spaceCheck(home, free)}
}

// spaceCheck judges what the file system of home has left.
func spaceCheck(home string, free files.FreeSpace) Check {
	c := Check{Status: Pass, Evidence: []string{"free: " + sizeText(free.Bytes) + ", " + utoa(free.Inodes) + " of " + utoa(free.AllInodes) + " inodes"}}
	c.Message = sizeText(free.Bytes) + " are free"
	few := func(bytes, inodes uint64) bool {
		return free.Bytes < bytes || free.AllInodes > 0 && free.Inodes < inodes
	}
	switch {
	case few(leastBytes, leastInodes):
		c.Status, c.Message = Fail, "the file system of "+home+" is almost full"
	case few(fewBytes, fewInodes):
		c.Status, c.Message = Warn, "the file system of "+home+" is filling up"
	}
	if c.Status != Pass {
		c.Hint = "laufwerk cleanup --all --dry-run\ndf -h -i " + failure.Quote(nearestExisting(home))
	}
	return c
}

func (d *doctor) store(ctx context.Context) []Check {
	s, err := d.service(ctx)
	if err != nil {
		return oneCheck(Skip, "the home cannot be used")
	}
	n := 0
	err = s.Store.View(ctx, func(tx store.Tx) error {
		return tx.Each(store.Runs, "", func(string, json.RawMessage) error { n++; return nil })
	})
	switch {
	case failure.Is(err, failure.StoreInvalid):
		c := failedCheck(err)
		c[0].Hint = strings.TrimSpace(c[0].Hint + "\nlaufwerk doctor --scan")
		return c
	case err != nil:
		return failedCheck(err)
	case !files.Exists(s.Home.StateFile()):
		return oneCheck(Pass, "there is no store yet: the first run creates it")
	}
	return []Check{{Status: Pass, Message: "the store is valid", Evidence: []string{s.Home.StateFile(), strconv.Itoa(n) + " runs"}}}
}

func utoa(n uint64) string { return strconv.FormatUint(n, 10) }

func sizeText(n uint64) string {
	if n < 1<<30 {
		return utoa(n>>20) + " MiB"
	}
	return strconv.FormatFloat(float64(n)/(1<<30), 'f', 1, 64) + " GiB"
}

func (d *doctor) git(ctx context.Context) []Check {
	var out []byte
	err := process.RunTool(ctx, process.Tool{Name: "git", Args: []string{"--version"}, Dir: "/"}, func(r io.Reader) (err error) {
		out, err = io.ReadAll(io.LimitReader(r, 1<<10))
		return err
	})
	if err != nil {
		return []Check{{Status: Warn, Message: "git cannot be used, so sources that are git repositories are refused; install it: " + err.Error()}}
	}
	return oneCheck(Pass, "%s", strings.TrimSpace(string(out)))
}

// fence says how sure the end of everything that an agent started can be made.
func (d *doctor) fence(context.Context) []Check {
	if err := process.Supported(); err != nil {
		return oneCheck(Warn, "commands cannot be run on this host itself, only in containers: %v", err)
	}
	dir, why := process.CgroupPath("laufwerk-doctor")
	if dir == "" {
		return []Check{{
			Status: Pass, Message: "commands are ended by their process tree (subreaper) or, if the supervisor is killed too, by marks in the environment, which a hostile process can remove",
			Evidence: []string{"no control group: " + why},
		}}
	}
	return []Check{{Status: Pass, Message: "each command runs in its own control group, and every process that it starts is ended with it", Evidence: []string{dir}}}
}
