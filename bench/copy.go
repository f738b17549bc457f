package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/laufwerk/laufwerk/internal/workspace"
)

const manyFiles = 100_000

// copyTree opens a copy with its manifest beside `cp -a`, of a plain directory and of a git work tree.
func copyTree(b *bench) ([]row, error) {
	dir, err := b.scratch("copy")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	source := filepath.Join(dir, "source")
	if err := plant(source); err != nil {
		return nil, err
	}
	rounds := max(3, b.rounds/5)
	dest := filepath.Join(dir, "dest")
	ours := func() (cost, error) {
		c, err := within(func() error {
			o, err := workspace.Copy(b, workspace.CopyRequest{Source: source, Dest: dest})
			if err != nil {
				return err
			}
			return workspace.SaveManifest(filepath.Join(dir, "base"), o.Base)
		})
		if err == nil {
			err = os.RemoveAll(dest)
		}
		return c, err
	}
	cp := func() (cost, error) {
		_, c, err := b.command(dir, []int{0}, "cp", "-a", source, dest)
		if err == nil {
			err = os.RemoveAll(dest)
		}
		return c, err
	}
	s, err := inTurn(rounds, ours, cp)
	if err != nil {
		return nil, err
	}
	plain := compare("copy with manifest, 10⁵ files, beside cp -a", s[0], s[1], 2)
	if _, missing := exec.LookPath("git"); missing != nil {
		return []row{plain, {work: "the same of a git work tree", verdict: "SKIPPED: " + missing.Error()}}, nil //nolint:nilerr // said in the row
	}
	for _, args := range [][]string{
		{"init", "-q"}, {"add", "-A"}, {"-c", "user.name=b", "-c", "user.email=b@localhost", "commit", "-q", "-m", "all"},
	} {
		if _, _, err := b.command(source, []int{0}, "git", args...); err != nil {
			return nil, err
		}
	}
	if s, err = inTurn(rounds, ours, cp); err != nil {
		return nil, err
	}
	return []row{plain, compare("the same of a git work tree", s[0], s[1], 6)}, nil
}

func plant(dir string) error {
	content := make([]byte, 2048)
	for i := range manyFiles {
		d := fmt.Sprintf("%s/d%02d/e%02d", dir, i/5000, i/100%50)
		if i%100 == 0 {
			if err := os.MkdirAll(d, 0o755); err != nil {
				return err
			}
		}
		copy(content, fmt.Sprintf("%d\n", i))
		if err := os.WriteFile(fmt.Sprintf("%s/file%03d.txt", d, i%100), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}
