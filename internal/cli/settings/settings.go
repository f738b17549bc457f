// Package settings resolves what users may set. For every setting alike: the flag --set NAME=VALUE, else the environment
// variable LAUFWERK_NAME, else the settings file, else the default.
package settings

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/viper"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/suggest"
	"github.com/laufwerk/laufwerk/internal/system"
	"github.com/laufwerk/laufwerk/internal/system/files"
)

// FileEnv names another settings file than the usual one; that file must be there.
const FileEnv = "LAUFWERK_CONFIG"

// Value is a setting with what it is set to.
type Value struct {
	Setting
	Text   string // as it was written
	Origin string // "--set", "LAUFWERK_HOME", the path of the settings file, "default"
	parsed any
}

// Settings are all values.
type Settings struct {
	file   string
	values map[string]Value
	home   error // why there is no home directory, for who asks
}

// Resolve reads the layers. sets are the arguments of --set.
func Resolve(env *system.Env, sets []string) (*Settings, error) {
	layers, err := layersOf(env, sets)
	if err != nil {
		return nil, err
	}
	s := &Settings{file: layers.path, values: map[string]Value{}}
	for _, row := range Table() {
		v := Value{Setting: row, Origin: layers.origin(row)}
		raw := layers.viper.Get(row.Name)
		text, ok := asText(raw)
		v.Text = text
		if ok {
			v.parsed, ok = row.Kind.parse(text, env.Home())
		}
		if !ok {
			return nil, failure.New(failure.SettingsInvalid, "setting %s from %s is %q: expected %s", row.Name, v.Origin, text, row.Kind.Expected).
				WithHint("laufwerk help environment").WithPaths(row.Name)
		}
		s.values[row.Name] = v
	}
	if s.Text(Home) == "" {
		s.home = failure.New(failure.HomeInvalid, "there is no home directory: HOME is not set, and the user database names none").
			WithHint("export LAUFWERK_HOME=/path/to/a/directory/of/your/own")
	}
	return s, nil
}

// File is the settings file, whether or not it is there; "" where there is no home directory either.
func (s *Settings) File() string { return s.file }

// Values are all settings in the order of the table.
func (s *Settings) Values() []Value {
	out := make([]Value, 0, len(s.values))
	for _, row := range Table() {
		out = append(out, s.values[row.Name])
	}
	return out
}

// Home is $LAUFWERK_HOME, absolute.
func (s *Settings) Home() (string, error) {
	if s.home != nil {
		return "", s.home
	}
	return s.Text(Home), nil
}

// Text is the value of a Directory or a Choice.
func (s *Settings) Text(name string) string { return s.values[name].parsed.(string) }

// Bytes is the value of a size, in bytes.
func (s *Settings) Bytes(name string) int64 { return s.values[name].parsed.(int64) }

// Count is the value of a Count.
func (s *Settings) Count(name string) int { return int(s.values[name].parsed.(int64)) }

// Time is the value of a time.
func (s *Settings) Time(name string) time.Duration { return s.values[name].parsed.(time.Duration) }

// Bool is the value of a Bool.
func (s *Settings) Bool(name string) bool { return s.values[name].parsed.(bool) }

type layers struct {
	viper *viper.Viper
	flags map[string]bool // canonical names that --set gave
	vars  map[string]string
	path  string
}

func layersOf(env *system.Env, sets []string) (*layers, error) {
	l := &layers{viper: viper.New(), flags: map[string]bool{}, vars: env.Vars}
	for _, row := range Table() {
		l.viper.SetDefault(row.Name, row.Default)
	}
	if err := l.readFile(env); err != nil {
		return nil, err
	}
	for _, row := range Table() { // not viper's own reading of the environment: Env is the only door
		if v, ok := env.Vars[row.Env()]; ok {
			l.viper.Set(row.Name, v)
		}
	}
	for _, set := range sets {
		name, value, ok := strings.Cut(set, "=")
		row, known := lookup(name)
		if !ok || !known {
			return nil, unknown(name, "--set")
		}
		l.viper.Set(row.Name, value)
		l.flags[row.Name] = true
	}
	return l, nil
}

func (l *layers) origin(row Setting) string {
	switch _, inEnv := l.vars[row.Env()]; {
	case l.flags[row.Name]:
		return "--set"
	case inEnv:
		return row.Env()
	case l.viper.InConfig(row.Name):
		return l.path
	}
	return "default"
}

// readFile reads the settings file: TOML, of at most 1 MiB.
func (l *layers) readFile(env *system.Env) error {
	explicit := env.Var(FileEnv)
	l.path = explicit
	if l.path == "" {
		dir := env.Var("XDG_CONFIG_HOME")
		if !filepath.IsAbs(dir) { // the XDG specification: a relative one is to be ignored
			if env.Home() == "" {
				return nil
			}
			dir = filepath.Join(env.Home(), ".config")
		}
		l.path = filepath.Join(dir, "laufwerk", "config.toml")
	} else if !filepath.IsAbs(l.path) {
		l.path = filepath.Join(env.Dir, l.path)
	}
	info, err := files.Stat(l.path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && explicit == "":
		return nil
	case err == nil && !info.Mode().IsRegular():
		err = errors.New("not a file")
	case err == nil && info.Size() > 1<<20:
		err = errors.New("larger than 1 MiB")
	}
	var text []byte
	if err == nil {
		text, err = files.Read(l.path)
	}
	if err == nil {
		l.viper.SetConfigType("toml")
		err = l.viper.ReadConfig(bytes.NewReader(text))
	}
	if err != nil {
		return failure.New(failure.SettingsInvalid, "settings file %s: %s", l.path, reason(err)).WithPaths(l.path).
			WithHint("correct the file, or name another one in %s", FileEnv)
	}
	for _, key := range l.viper.AllKeys() {
		if _, known := lookup(key); !known {
			return unknown(key, l.path)
		}
	}
	return nil
}

// reason leaves out the path, which the message names already. A mistake in TOML has a place.
func reason(err error) string {
	var t interface{ Position() (line, column int) }
	if errors.As(err, &t) {
		line, column := t.Position()
		return fmt.Sprintf("line %d, column %d: %v", line, column, t)
	}
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err.Error()
	}
	return err.Error()
}

// lookup finds a setting by name; case does not count, since viper's keys have none.
func lookup(name string) (Setting, bool) {
	rows := Table()
	i := slices.IndexFunc(rows, func(s Setting) bool { return strings.EqualFold(s.Name, name) })
	if i < 0 {
		return Setting{}, false
	}
	return rows[i], true
}

func unknown(name, origin string) *failure.Error {
	if s, known := lookup(name); known {
		return failure.New(failure.Usage, "%s %s gives no value", origin, name).WithHint("laufwerk --set %s=VALUE …", s.Name)
	}
	kind := failure.SettingsInvalid
	if origin == "--set" {
		kind = failure.Usage
	}
	names := make([]string, 0, len(Table()))
	for _, row := range Table() {
		names = append(names, row.Name)
	}
	near := suggest.Closest(name, names)
	if near == "" {
		return failure.New(kind, "unknown setting %q from %s; the settings are %s", name, origin, strings.Join(names, ", ")).
			WithPaths(name).WithHint("laufwerk help environment")
	}
	e := failure.New(kind, "unknown setting %q from %s; did you mean %s?", name, origin, near).WithPaths(name)
	if origin == "--set" {
		return e.WithHint("laufwerk --set %s=VALUE …", near)
	}
	return e.WithHint("laufwerk help environment")
}

func asText(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case bool:
		return strconv.FormatBool(v), true
	case int64:
		return strconv.FormatInt(v, 10), true
	case int:
		return strconv.Itoa(v), true
	}
	return fmt.Sprint(v), false
}
