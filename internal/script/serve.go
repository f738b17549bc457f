package script

import (
	"fmt"
	"path/filepath"

	"github.com/laufwerk/laufwerk/internal/protocol"
	"github.com/laufwerk/laufwerk/internal/system/projectfs"
)

// fileServer answers a child's requests for files of the project.
type fileServer struct {
	fs      *projectfs.FS
	overlay map[string][]byte
	bytes   int64
	count   int
}

func (s *fileServer) answer(ask protocol.File) *protocol.File {
	refused := func(reason string) *protocol.File {
		return &protocol.File{Path: ask.Path, Kind: string(projectfs.Refused), Reason: reason}
	}
	switch ask.Kind {
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
