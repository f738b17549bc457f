package script

import (
	"fmt"
	"path"
	"path/filepath"
	"strings"

	"github.com/laufwerk/laufwerk/internal/protocol"
	"github.com/laufwerk/laufwerk/internal/system/projectfs"
)

// fileServer answers a child's requests for files of the project.
type fileServer struct {
	fs      *projectfs.FS
	overlay map[string][]byte
	bytes   int64
	count   int
	sent    map[string]bool // by find, with their content
}

func (s *fileServer) answer(ask protocol.File) *protocol.File {
	refused := func(reason string) *protocol.File {
		return &protocol.File{Path: ask.Path, Kind: string(projectfs.Refused), Reason: reason}
	}
	switch ask.Kind {
	case "find":
		return s.find(ask.Path)
	case "stat":
		if _, ok := s.overlay[ask.Path]; ok {
			return &protocol.File{Path: ask.Path, Kind: string(projectfs.File), Real: ask.Path}
		}
		kind, real, reason := s.fs.Stat(filepath.FromSlash(ask.Path))
		return &protocol.File{Path: ask.Path, Kind: string(kind), Real: real, Reason: reason}
	case "read":
		if s.count++; s.count > maxFiles {
			return refused(fmt.Sprintf("it imports more than %d files", maxFiles))
		}
		if content, ok := s.overlay[ask.Path]; ok {
			return &protocol.File{Path: ask.Path, Kind: string(projectfs.File), Content: content}
		}
		content, kind, reason := s.fs.Read(filepath.FromSlash(ask.Path), maxFile)
		if s.bytes += int64(len(content)); s.bytes > maxSources {
			return refused(fmt.Sprintf("its imports have more than %d MiB", maxSources>>20))
		}
		return &protocol.File{Path: ask.Path, Kind: string(kind), Content: content, Reason: reason}
	default:
		return refused(fmt.Sprintf("%q is not a request for a file", ask.Kind))
	}
}

// find tries a path as it is, then as TypeScript means it, then as a directory. The content of a module comes along the first time:
// what is found is read next, and to ask takes longer than to answer.
func (s *fileServer) find(p string) *protocol.File {
	stat := func(p string) *protocol.File { return s.answer(protocol.File{Path: p, Kind: "stat"}) }
	found := stat(p)
	for _, c := range candidates(p, found.Kind == string(projectfs.Dir)) {
		if found.Kind == string(projectfs.File) || found.Kind == string(projectfs.Refused) {
			break
		}
		found = stat(c)
	}
	switch found.Kind {
	case string(projectfs.Refused):
	case string(projectfs.File):
		if s.sent[found.Real] {
			break
		}
		if read := s.answer(protocol.File{Path: found.Real, Kind: "read"}); read.Kind == found.Kind {
			found.Content = read.Content
			if s.sent == nil {
				s.sent = map[string]bool{}
			}
			s.sent[found.Real] = true
		}
	default:
		found = &protocol.File{Kind: string(projectfs.None)}
	}
	found.Path = p
	return found
}

// candidates are what an import of a path that is no file may mean, the first that is there.
func candidates(p string, isDir bool) (list []string) {
	for _, swap := range [][2]string{{".js", ".ts"}, {".js", ".tsx"}, {".mjs", ".mts"}, {".cjs", ".cts"}} {
		if base, ok := strings.CutSuffix(p, swap[0]); ok {
			list = append(list, base+swap[1])
		}
	}
	extensions := []string{".ts", ".tsx", ".mts", ".js", ".mjs", ".cjs", ".json"}
	for _, ext := range extensions {
		list = append(list, p+ext)
	}
	for _, ext := range extensions {
		if isDir {
			list = append(list, path.Join(p, "index"+ext))
		}
	}
	return list
}
