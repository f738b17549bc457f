package safefs

import (
	"io/fs"
	"strings"
)

// maxChunk is how much of a path one system call is given: PATH_MAX is 4096 with the NUL on Linux.
const maxChunk = 4000

// Valid says whether rel is a clean relative path below the root ("." is not one).
func Valid(rel string) bool {
	if rel == "" || strings.IndexByte(rel, 0) >= 0 {
		return false
	}
	for {
		name, rest, more := strings.Cut(rel, "/")
		if name == "" || name == "." || name == ".." {
			return false
		}
		if !more {
			return true
		}
		rel = rest
	}
}

func check(op, rel string) error {
	if !Valid(rel) {
		return &fs.PathError{Op: op, Path: rel, Err: ErrPath}
	}
	return nil
}

// split gives the directory ("." for the root) and the last name of a valid path.
func split(rel string) (dir, name string) {
	if i := strings.LastIndexByte(rel, '/'); i >= 0 {
		return rel[:i], rel[i+1:]
	}
	return ".", rel
}

// chunk cuts the longest leading part of at most maxChunk bytes that ends at a slash; done says that rel is short enough.
// A single name never exceeds the limit on any file system, and where it does the kernel says so.
func chunk(rel string) (head, rest string, done bool) {
	if len(rel) <= maxChunk {
		return rel, "", true
	}
	i := strings.LastIndexByte(rel[:maxChunk], '/')
	if i < 0 {
		return rel, "", true
	}
	return rel[:i], rel[i+1:], false
}
