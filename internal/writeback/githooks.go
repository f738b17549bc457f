package writeback

import (
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/laufwerk/laufwerk/internal/system/files"
)

// Limits on what is read of git's configuration.
const (
	maxConfigBytes = 1 << 20
	maxConfigFiles = 64
)

// hookDirs are the directories below source, relative and slash separated, that git could take hooks from when it works in
// dir: every value of core.hooksPath in any configuration file that git reads there (system, global, repository, worktree,
// and all that these include, under whatever condition). It is the superset of the one effective value: git itself is not
// asked, so that nothing in the source is evaluated and a host without git refuses the same. vars is the environment.
// Format: https://git-scm.com/docs/git-config, "FILES", "SYNTAX", "Includes".
func hookDirs(source, dir string, vars map[string]string) []string {
	top, configs := repositoryConfigs(dir)
	if top == "" {
		top = dir
	}
	s := &configScan{home: vars["HOME"], seen: map[string]bool{}}
	for _, c := range append(configs, userConfigs(vars)...) {
		s.file(c)
	}
	var out []string
	for _, v := range s.hooks {
		dir := s.expand(v, top)
		if dir == "" {
			continue
		}
		for _, from := range []string{source, resolveExisting(source)} {
			for _, to := range []string{dir, resolveExisting(dir)} {
				if rel, err := filepath.Rel(from, to); err == nil && rel != ".." && !strings.HasPrefix(rel, "../") && !slices.Contains(out, rel) {
					out = append(out, rel)
				}
			}
		}
	}
	return out
}

// resolveExisting is path with the links followed in as much of it as is there.
func resolveExisting(path string) string {
	rest := ""
	for p := path; ; p = filepath.Dir(p) {
		if real, err := filepath.EvalSymlinks(p); err == nil {
			return filepath.Join(real, rest)
		}
		if p == filepath.Dir(p) {
			return path
		}
		rest = filepath.Join(filepath.Base(p), rest)
	}
}

// repositoryConfigs finds the repository that dir is in: the top of its work tree and its configuration files.
func repositoryConfigs(dir string) (top string, configs []string) {
	for ; ; dir = filepath.Dir(dir) {
		git := filepath.Join(dir, ".git")
		if st, err := files.Stat(git); err == nil {
			if !st.IsDir() {
				git = gitfileTarget(git)
			}
			common := git
			if c := firstLine(filepath.Join(git, "commondir")); c != "" {
				common = absolute(c, git)
			}
			return dir, []string{filepath.Join(common, "config"), filepath.Join(git, "config"), filepath.Join(git, "config.worktree")}
		}
		if dir == filepath.Dir(dir) {
			return "", nil
		}
	}
}

func gitfileTarget(file string) string {
	target, ok := strings.CutPrefix(firstLine(file), "gitdir:")
	if !ok {
		return file
	}
	return absolute(strings.TrimSpace(target), filepath.Dir(file))
}

func userConfigs(vars map[string]string) []string {
	var out []string
	for _, name := range []string{"GIT_CONFIG_SYSTEM", "GIT_CONFIG_GLOBAL", "GIT_CONFIG"} {
		if v := vars[name]; v != "" {
			out = append(out, v)
		}
	}
	out = append(out, "/etc/gitconfig", "/usr/local/etc/gitconfig", "/opt/homebrew/etc/gitconfig")
	if home := vars["HOME"]; home != "" {
		out = append(out, filepath.Join(home, ".gitconfig"), filepath.Join(home, ".config/git/config"))
	}
	if xdg := vars["XDG_CONFIG_HOME"]; xdg != "" {
		out = append(out, filepath.Join(xdg, "git/config"))
	}
	return out
}

type configScan struct {
	home  string
	seen  map[string]bool
	hooks []string
}

func (s *configScan) file(path string) {
	if s.seen[path] || len(s.seen) >= maxConfigFiles {
		return
	}
	s.seen[path] = true
	for _, e := range parseGitConfig(readText(path)) {
		switch {
		case e.section == "core" && e.key == "hookspath" && e.value != "":
			s.hooks = append(s.hooks, e.value)
		case (e.section == "include" || e.section == "includeif") && e.key == "path" && e.value != "":
			s.file(s.expand(e.value, filepath.Dir(path)))
		}
	}
}

// expand makes a path value absolute; "" where it names another user's home or git's own prefix.
func (s *configScan) expand(value, dir string) string {
	switch {
	case strings.HasPrefix(value, "~/"):
		if s.home == "" {
			return ""
		}
		return filepath.Join(s.home, value[2:])
	case strings.HasPrefix(value, "~"), strings.HasPrefix(value, "%(prefix)"):
		return ""
	default:
		return absolute(value, dir)
	}
}

func absolute(path, dir string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(dir, path)
}

func firstLine(path string) string {
	line, _, _ := strings.Cut(readText(path), "\n")
	return strings.TrimRight(line, "\r ")
}

// readText is the beginning of a file, "" where it is missing or no regular file (a fifo would never answer).
func readText(path string) string {
	st, err := files.Stat(path)
	if err != nil || !st.Mode().IsRegular() {
		return ""
	}
	f, err := files.Open(path)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, maxConfigBytes))
	if err != nil {
		return ""
	}
	return string(b)
}

type configEntry struct{ section, key, value string }

// parseGitConfig reads git's configuration syntax and goes on after what git would refuse: a file that git does not accept
// runs no hooks, one that is read too generously only refuses more. Section and key come in lower case, subsections are dropped.
func parseGitConfig(text string) []configEntry {
	p := &configText{s: strings.TrimPrefix(text, "\ufeff")}
	var out []configEntry
	section := ""
	for p.i < len(p.s) {
		switch c := p.s[p.i]; {
		case c == '[':
			section = p.header()
		case c == '#' || c == ';':
			p.line()
		case isWord(c):
			key := p.word()
			out = append(out, configEntry{section, key, p.value()})
		default:
			p.i++
		}
	}
	return out
}

type configText struct {
	s string
	i int
}

func isWord(c byte) bool {
	return c == '-' || c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

func (p *configText) word() string {
	start := p.i
	for p.i < len(p.s) && isWord(p.s[p.i]) {
		p.i++
	}
	return strings.ToLower(p.s[start:p.i])
}

func (p *configText) line() string {
	rest := p.s[p.i:]
	line, _, _ := strings.Cut(rest, "\n")
	p.i += min(len(line)+1, len(rest))
	return line
}

// header reads `[section]`, `[section "subsection"]` or the old `[section.subsection]`.
func (p *configText) header() string {
	p.i++
	for p.i < len(p.s) && (p.s[p.i] == ' ' || p.s[p.i] == '\t') {
		p.i++
	}
	name := p.word()
	quoted := false
	for ; p.i < len(p.s) && p.s[p.i] != '\n'; p.i++ {
		switch c := p.s[p.i]; {
		case quoted && c == '\\' && p.i+1 < len(p.s):
			p.i++
		case c == '"':
			quoted = !quoted
		case c == ']' && !quoted:
			p.i++
			return name
		}
	}
	return name
}

// value reads what follows a key: quotes, escapes, comments, and lines that go on after a backslash.
func (p *configText) value() string {
	for p.i < len(p.s) && (p.s[p.i] == ' ' || p.s[p.i] == '\t') {
		p.i++
	}
	if p.i >= len(p.s) || p.s[p.i] != '=' {
		p.line()
		return ""
	}
	p.i++
	var b strings.Builder
	quoted, keep := false, 0 // what is before keep is not trailing space
	for p.i < len(p.s) {
		c := p.s[p.i]
		p.i++
		switch {
		case c == '\n':
			return strings.TrimLeft(b.String()[:keep], " \t")
		case c == '\r' && p.i < len(p.s) && p.s[p.i] == '\n':
		case c == '\\' && p.i < len(p.s):
			e := p.s[p.i]
			p.i++
			if e == '\r' && p.i < len(p.s) && p.s[p.i] == '\n' {
				p.i++
				continue
			}
			if e == '\n' {
				continue
			}
			b.WriteByte(unescape(e))
			keep = b.Len()
		case c == '"':
			quoted = !quoted
			keep = b.Len()
		case (c == '#' || c == ';') && !quoted:
			p.line()
			return strings.TrimLeft(b.String()[:keep], " \t")
		default:
			b.WriteByte(c)
			if quoted || c != ' ' && c != '\t' {
				keep = b.Len()
			}
		}
	}
	return strings.TrimLeft(b.String()[:keep], " \t")
}

func unescape(c byte) byte {
	switch c {
	case 'n':
		return '\n'
	case 't':
		return '\t'
	case 'b':
		return '\b'
	default:
		return c
	}
}
