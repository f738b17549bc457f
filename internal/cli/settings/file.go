package settings

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/system"
	"github.com/laufwerk/laufwerk/internal/system/files"
)

// position is where a key begins in the settings file. Lines and columns count from 1, columns and the offset in bytes.
type position struct{ line, column, offset int }

func (p position) String() string { return fmt.Sprintf("line %d, column %d", p.line, p.column) }

// suffix is for the end of a name or a sentence; nothing for the zero position.
func (p position) suffix() string {
	if p == (position{}) {
		return ""
	}
	return " (" + p.String() + ")"
}

// file is the settings file, decoded and checked: every key is the name of a setting, in its case, and is there once.
type file struct {
	path      string
	tree      map[string]any      // for viper
	positions map[string]position // by the name of the setting
	other     map[string]string   // values of types that no setting takes, such as fractions and dates, as they were written
}

// filePath is the path of the settings file, and whether the user named it. It is "" where there is no home directory.
func filePath(env *system.Env) (path string, explicit bool) {
	if path := env.Var(FileEnv); path != "" {
		if !filepath.IsAbs(path) {
			path = filepath.Join(env.Dir, path)
		}
		return path, true
	}
	dir := env.Var("XDG_CONFIG_HOME")
	if !filepath.IsAbs(dir) { // the XDG specification: a relative one is to be ignored
		if env.Home() == "" {
			return "", false
		}
		dir = filepath.Join(env.Home(), ".config")
	}
	return filepath.Join(dir, "laufwerk", "config.toml"), false
}

// readFile reads the settings file: TOML, of at most 1 MiB. Without one, it is as an empty file.
func readFile(env *system.Env) (*file, error) {
	path, explicit := filePath(env)
	f := &file{path: path}
	if path == "" {
		return f, nil
	}
	info, err := files.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !explicit:
		return f, nil
	case err == nil && !info.Mode().IsRegular():
		err = errors.New("not a file")
	case err == nil && info.Size() > 1<<20:
		err = errors.New("larger than 1 MiB")
	}
	var text []byte
	if err == nil {
		text, err = files.Read(path)
	}
	if err == nil {
		err = toml.Unmarshal(text, &f.tree)
	}
	if err != nil {
		return nil, failure.New(failure.SettingsInvalid, "settings file %s: %s", path, reason(err, text)).WithPaths(path).
			WithHint("${EDITOR:-vi} %s   # or name another file in %s", failure.Quote(path), FileEnv)
	}
	return f, f.check(text)
}

// reason says where a mistake in TOML is, and leaves out the path, which the message names already.
func reason(err error, text []byte) string {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err.Error()
	}
	if t, ok := errors.AsType[*toml.DecodeError](err); ok {
		line, column := t.Position()
		return fmt.Sprintf("%s: %v", position{line: line, column: column}, t)
	}
	if len(text) > 0 {
		return fmt.Sprintf("%s: %v", findContradiction(text), err)
	}
	return err.Error()
}

// findContradiction finds the expression that contradicts an earlier one, as a key that is there twice does: go-toml gives no position
// for these. It is the first that cannot be decoded together with all before it.
func findContradiction(text []byte) position {
	var found []position
	var p unstable.Parser
	for p.Reset(text); p.NextExpression(); {
		found = append(found, start(&p, p.Expression()))
	}
	return found[sort.Search(len(found)-1, func(i int) bool {
		next := found[i+1]
		var empty map[string]any
		return toml.Unmarshal(text[:next.offset-next.column+1], &empty) != nil
	})]
}

// check holds every key against the table of settings and notes its position.
func (f *file) check(text []byte) error {
	c := &checker{file: f, names: map[string]bool{}, tables: map[string]bool{}}
	for _, row := range Table() {
		c.names[row.Name] = true
		if table, _, ok := strings.Cut(row.Name, "."); ok {
			c.tables[table] = true
		}
	}
	f.positions, f.other = map[string]position{}, map[string]string{}
	var table []string
	var header position // of a table that has had no key yet
	for c.parser.Reset(text); c.parser.NextExpression(); {
		var err error
		switch e, at := c.parser.Expression(), start(&c.parser, c.parser.Expression()); e.Kind {
		case unstable.KeyValue:
			header, err = position{}, c.keyValue(table, e)
		case unstable.ArrayTable:
			err = c.unknownError("[["+formatKey(keys(e))+"]]", at)
		default:
			err = c.emptyTable(table, header)
			table, header = keys(e), at
		}
		if err != nil {
			return err
		}
	}
	return c.emptyTable(table, header)
}

type checker struct {
	*file
	names, tables map[string]bool // that settings have
	parser        unstable.Parser
}

func (c *checker) unknownError(name string, at position) error { return unknownError(name, c.path, at) }

// emptyTable refuses a table without keys whose name no setting has. Without a position there is none to refuse.
func (c *checker) emptyTable(name []string, at position) error {
	if at == (position{}) || c.tables[formatKey(name)] {
		return nil
	}
	return c.unknownError(formatKey(name), at)
}

func (c *checker) keyValue(table []string, e *unstable.Node) error {
	parts, at, value := append(slices.Clone(table), keys(e)...), start(&c.parser, e), e.Value()
	name := formatKey(parts)
	if value.Kind == unstable.InlineTable {
		it := value.Children()
		if !it.Next() {
			return c.emptyTable(parts, at)
		}
		for ok := true; ok; ok = it.Next() {
			if err := c.keyValue(parts, it.Node()); err != nil {
				return err
			}
		}
		return nil
	}
	if !c.names[name] {
		return c.unknownError(name, at)
	}
	c.positions[name] = at
	switch value.Kind {
	case unstable.String, unstable.Bool, unstable.Integer, unstable.Array:
	default:
		c.other[name] = string(value.Data)
	}
	return nil
}

func start(p *unstable.Parser, e *unstable.Node) position {
	it := e.Key()
	it.Next()
	at := p.Shape(it.Node().Raw).Start
	return position{at.Line, at.Column, at.Offset}
}

func keys(e *unstable.Node) []string {
	var parts []string
	for it := e.Key(); it.Next(); {
		parts = append(parts, string(it.Node().Data))
	}
	return parts
}

// formatKey is a key as TOML writes it: "script.memory" in quotes is one name and not the key memory of the table script.
func formatKey(parts []string) string {
	shown := make([]string, len(parts))
	for i, part := range parts {
		if shown[i] = part; part == "" || strings.ContainsFunc(part, func(r rune) bool {
			return r != '-' && r != '_' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
		}) {
			shown[i] = fmt.Sprintf("%q", part)
		}
	}
	return strings.Join(shown, ".")
}
