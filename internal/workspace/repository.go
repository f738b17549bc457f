package workspace

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/system/safefs"
)

// gitDir is the workspace's own repository. It is not a part of the content: neither listed nor written back.
const gitDir = ".git"

// makeRepository gives the copy a repository of its own: the source's HEAD commit under its own id, shallow, with what is in
// the source's index as the index, so that the user's uncommitted changes show as such. There are no remotes, no
// configuration and no other refs of the source, and no older history. git packs the objects, in the source; the rest is
// written here, so that no hook, filter or attribute driver runs. Where it cannot be had the copy has none, and it is said why.
func (c *copyOperation) makeRepository(ctx context.Context) error {
	if c.git == nil {
		return nil
	}
	if c.git.prefix != "" {
		c.opened.NoRepository = "the source is a directory inside a repository"
		return nil
	}
	head, why, err := c.readHead(ctx)
	if err != nil {
		return err
	}
	if why != "" {
		c.opened.NoRepository = why
		return nil
	}
	entries, err := readIndex(ctx, c.opened.Source)
	if err != nil {
		return err
	}
	if err := c.writeRepository(ctx, head, entries); err != nil {
		refused, e := c.dst.RemoveAll(context.WithoutCancel(ctx), gitDir)
		if e != nil || len(refused) > 0 || ctx.Err() != nil {
			return err
		}
		c.opened.NoRepository = err.Error() // a partial clone lacks objects, for example
		return nil
	}
	c.opened.Rules.Repository = true
	return nil
}

type headCommit struct {
	ref     string // "refs/heads/main"; "" where HEAD is detached
	commit  string // "" before the first commit
	parents bool
}

func (c *copyOperation) readHead(ctx context.Context) (h headCommit, why string, err error) {
	ask := func(args ...string) (string, error) {
		var out string
		err := git(ctx, c.opened.Source, func(r io.Reader) error {
			b, err := io.ReadAll(io.LimitReader(r, 1<<20))
			out = strings.TrimSuffix(string(b), "\n")
			return err
		}, args...)
		return out, err
	}
	format, err := ask("rev-parse", "--show-object-format")
	if err != nil {
		return h, "", err
	}
	if format != "sha1" {
		return h, "its object format is " + format, nil
	}
	if ref, err := ask("symbolic-ref", "--quiet", "HEAD"); err == nil {
		h.ref = ref
	} else if ctx.Err() != nil {
		return h, "", err
	}
	commit, err := ask("rev-parse", "--quiet", "--verify", "HEAD^{commit}")
	if err != nil {
		if h.ref == "" || ctx.Err() != nil {
			return h, "HEAD cannot be read", ctx.Err()
		}
		return h, "", nil // no commit yet
	}
	// As it is written: grafts, and where the source itself is shallow, hide parents from git's other commands.
	text, err := ask("cat-file", "commit", commit)
	if err != nil {
		return h, "", err
	}
	header, _, _ := strings.Cut(text, "\n\n")
	h.commit, h.parents = commit, strings.Contains(header, "\nparent ")
	return h, "", nil
}

type indexEntry struct {
	path  string
	mode  uint32
	id    string
	stage int
	stat  indexStat
	flags uint32
}

// indexStat is what git remembered of the file when it last knew it to be what the index says.
type indexStat struct {
	ctimeS, ctimeN, mtimeS, mtimeN int64
	ino                            uint64
	size                           int64
}

// Of git's flags of an entry: one that was only announced, and has no content in the index (CE_INTENT_TO_ADD); and one whose
// file is left out of the work tree, as a sparse checkout does (CE_SKIP_WORKTREE). An index keeps them 16 bits lower.
const (
	intentToAdd  = 1 << 29
	skipWorktree = 1 << 30
)

// readIndex lists a source's index with what git remembers of the files, in git's own order.
func readIndex(ctx context.Context, source string) ([]indexEntry, error) {
	var out []indexEntry
	err := git(ctx, source, func(r io.Reader) error {
		b, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		out, err = parseIndex(string(b))
		return err
	}, "ls-files", "-z", "--stage", "--debug")
	return out, err
}

// parseIndex reads the output of `git ls-files -z --stage --debug`: "mode id stage\tpath\0", then four lines of numbers.
func parseIndex(text string) ([]indexEntry, error) {
	var out []indexEntry
	for text != "" {
		about, rest, ok := strings.Cut(text, "\x00")
		if !ok {
			return nil, errors.New("git ls-files ended in the middle of a line")
		}
		var e indexEntry
		spec, path, ok := strings.Cut(about, "\t")
		if !ok {
			return nil, fmt.Errorf("git ls-files said %q", about)
		}
		e.path = path
		if _, err := fmt.Sscanf(spec, "%o %s %d", &e.mode, &e.id, &e.stage); err != nil {
			return nil, fmt.Errorf("git ls-files said %q: %w", spec, err)
		}
		var lines [5]string
		for i := range lines {
			if lines[i], rest, ok = strings.Cut(rest, "\n"); !ok {
				return nil, fmt.Errorf("git ls-files --debug ended early after %q", path)
			}
		}
		s := &e.stat
		var dev, uid, gid uint64
		for i, scan := range []struct {
			format string
			into   []any
		}{
			{" ctime: %d:%d", []any{&s.ctimeS, &s.ctimeN}}, {" mtime: %d:%d", []any{&s.mtimeS, &s.mtimeN}},
			{" dev: %d ino: %d", []any{&dev, &s.ino}}, {" uid: %d gid: %d", []any{&uid, &gid}}, {" size: %d flags: %x", []any{&s.size, &e.flags}},
		} {
			if _, err := fmt.Sscanf(lines[i], scan.format, scan.into...); err != nil {
				return nil, fmt.Errorf("git ls-files --debug said %q: %w", lines[i], err)
			}
		}
		out = append(out, e)
		text = rest
	}
	return out, nil
}

// clean says whether a file still is what git remembered, as git itself decides: by its times, size and inode. A file that
// was changed in the moment in which the index was written would be told wrongly, so times at or after it do not count.
func (s indexStat) clean(now safefs.Info, written int64) bool {
	mtime := s.mtimeS*1e9 + s.mtimeN
	return now.Type == safefs.File && s.size == now.Size&0xffffffff && s.ino == now.Ino&0xffffffff &&
		mtime == now.MTimeNS && s.ctimeS*1e9+s.ctimeN == now.CTimeNS && mtime < written
}

func (c *copyOperation) writeRepository(ctx context.Context, h headCommit, entries []indexEntry) error {
	for _, dir := range []string{gitDir, gitDir + "/objects", gitDir + "/objects/pack", gitDir + "/objects/info", gitDir + "/refs", gitDir + "/refs/heads", gitDir + "/refs/tags", gitDir + "/info"} {
		if err := c.dst.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	head := h.commit + "\n"
	if h.ref != "" {
		head = "ref: " + h.ref + "\n"
	}
	texts := map[string]string{
		"HEAD":   head,
		"config": "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n\tlogallrefupdates = false\n",
		// What the copy was told to leave out must not show as untracked once something makes it again.
		"info/exclude": string(c.git.exclude),
	}
	if h.commit != "" {
		if h.ref != "" {
			texts[h.ref] = h.commit + "\n"
		}
		if h.parents {
			texts["shallow"] = h.commit + "\n"
		}
	}
	for name, text := range texts {
		if err := c.writeGitFile(name, []byte(text)); err != nil {
			return err
		}
	}
	if err := c.packObjects(ctx, h, entries); err != nil {
		return err
	}
	index, err := c.encodeIndex(ctx, entries)
	if err != nil {
		return err
	}
	return c.writeGitFile("index", index)
}

func (c *copyOperation) writeGitFile(name string, content []byte) error {
	path := gitDir + "/" + name
	for i := len(gitDir) + 1; i < len(path); i++ {
		if path[i] == '/' {
			if err := c.dst.Mkdir(path[:i], 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return err
			}
		}
	}
	f, err := c.dst.Create(path, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Close())
}

// packObjects packs the commit, its trees, and every content that its trees or the index name.
func (c *copyOperation) packObjects(ctx context.Context, h headCommit, entries []indexEntry) error {
	ids := map[string]bool{}
	if h.commit != "" {
		ids[h.commit] = true
		err := git(ctx, c.opened.Source, func(r io.Reader) error {
			return eachRecord(r, func(line string) {
				about, _, _ := strings.Cut(line, "\t")
				if f := strings.Fields(about); len(f) >= 3 && f[1] != "commit" {
					ids[f[2]] = true
				}
			})
		}, "ls-tree", "-z", "-r", "-t", "--full-tree", h.commit)
		if err != nil {
			return err
		}
		err = git(ctx, c.opened.Source, func(r io.Reader) error {
			b, err := io.ReadAll(io.LimitReader(r, 256))
			ids[strings.TrimSpace(string(b))] = true
			return err
		}, "rev-parse", "--verify", h.commit+"^{tree}")
		if err != nil {
			return err
		}
	}
	announced := ""
	for _, e := range entries {
		switch {
		case e.mode == 0o160000:
		case e.flags&intentToAdd != 0:
			announced = e.id // the empty content, of all of them
		default:
			ids[e.id] = true
		}
	}
	if announced != "" && !ids[announced] {
		// git writes it when it announces a path, but does not need it.
		if git(ctx, c.opened.Source, func(io.Reader) error { return nil }, "cat-file", "-e", announced) == nil {
			ids[announced] = true
		}
	}
	if len(ids) == 0 {
		return nil
	}
	var list strings.Builder
	for id := range ids {
		list.WriteString(id)
		list.WriteByte('\n')
	}
	pack := filepath.Join(c.dst.Path(), gitDir, "objects", "pack", "pack")
	return gitWith(ctx, c.opened.Source, strings.NewReader(list.String()), func(r io.Reader) error {
		_, err := io.Copy(io.Discard, r)
		return err
	}, "pack-objects", "--quiet", "--delta-base-offset", "--missing=error", pack)
}

// encodeIndex writes an index whose entries know the copies of unchanged files, so that nothing is hashed again.
// See gitformat-index(5).
func (c *copyOperation) encodeIndex(ctx context.Context, entries []indexEntry) ([]byte, error) {
	written, err := c.indexTime(ctx)
	if err != nil {
		return nil, err
	}
	w := newIndexWriter(entries)
	for _, e := range entries {
		id, err := hex.DecodeString(e.id)
		if err != nil || len(id) != 20 {
			return nil, fmt.Errorf("git ls-files named the object %q", e.id)
		}
		var stat safefs.Info
		if e.stage == 0 && e.mode != 0o160000 {
			if now, err := c.src.Lstat(e.path); err == nil && e.stat.clean(now, written) {
				if copied, err := c.dst.Lstat(e.path); err == nil && copied.Type == safefs.File && copied.Size == now.Size {
					stat = copied
				}
			}
		}
		w.add(e, id, stat)
	}
	return w.finish(), nil
}

// indexTime is when the source's index was written last, in ns since 1970.
func (c *copyOperation) indexTime(ctx context.Context) (int64, error) {
	var name string
	err := git(ctx, c.opened.Source, func(r io.Reader) error {
		b, err := io.ReadAll(io.LimitReader(r, 64<<10))
		name = strings.TrimSuffix(string(b), "\n")
		return err
	}, "rev-parse", "--git-path", "index")
	if err != nil {
		return 0, err
	}
	if !filepath.IsAbs(name) {
		name = filepath.Join(c.opened.Source, name)
	}
	dir, err := openDir(filepath.Dir(name))
	if err != nil {
		return 0, failure.Wrap(err, failure.NotReady, "open the repository of the source")
	}
	defer dir.Close()
	info, err := dir.Lstat(filepath.Base(name))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil // nothing was ever added
	}
	return info.MTimeNS, err
}
