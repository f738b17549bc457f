// Package settings resolves what users may set. For every setting alike: the flag --set NAME=VALUE, else the environment
// variable LAUFWERK_NAME, else the settings file, else the default.
package settings

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/viper"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/suggest"
	"github.com/laufwerk/laufwerk/internal/system"
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
	s := &Settings{file: layers.file.path, values: map[string]Value{}}
	for _, row := range Table() {
		v := Value{Setting: row, Origin: layers.origin(row)}
		text, ok := layers.value(row)
		v.Text = text
		if ok {
			v.parsed, ok = row.Kind.parse(text, env.Home())
		}
		if !ok {
			return nil, failure.New(failure.SettingsInvalid, "setting %s from %s is %q: expected %s%s", row.Name, v.Origin, text, row.Kind.Expected, layers.at(row).suffix()).
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

// layers are all that give values, joined by viper: --set before the environment before the file before the defaults.
type layers struct {
	viper *viper.Viper
	flags map[string]bool // canonical names that --set gave
	vars  map[string]string
	file  *file
}

func layersOf(env *system.Env, sets []string) (*layers, error) {
	l := &layers{viper: viper.New(), flags: map[string]bool{}, vars: env.Vars}
	for _, row := range Table() {
		l.viper.SetDefault(row.Name, row.Default)
	}
	var err error
	if l.file, err = readFile(env); err != nil {
		return nil, err
	}
	if err := l.viper.MergeConfigMap(l.file.tree); err != nil {
		return nil, failure.Wrap(err, failure.SettingsInvalid, "settings file %s", l.file.path)
	}
	if err := checkVariables(env.Vars); err != nil {
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
		if known && !ok {
			return nil, failure.New(failure.Usage, "--set %s gives no value", name).WithHint("laufwerk --set %s=VALUE …", row.Name)
		}
		if !known {
			return nil, unknownError(name, "--set", position{})
		}
		l.viper.Set(row.Name, value)
		l.flags[row.Name] = true
	}
	return l, nil
}

// value is what the nearest layer gives a setting, as text. It is not ok where no setting takes a value of that type.
func (l *layers) value(row Setting) (text string, ok bool) {
	if text, typed := l.file.other[row.Name]; typed && l.origin(row) == l.file.path {
		return text, false
	}
	return asText(l.viper.Get(row.Name))
}

func (l *layers) origin(row Setting) string {
	switch _, inEnv := l.vars[row.Env()]; {
	case l.flags[row.Name]:
		return "--set"
	case inEnv:
		return row.Env()
	case l.viper.InConfig(row.Name):
		return l.file.path
	}
	return "default"
}

// at is where the file gives the setting; the zero position where another layer does.
func (l *layers) at(row Setting) position {
	if l.origin(row) != l.file.path {
		return position{}
	}
	return l.file.positions[row.Name]
}

// checkVariables refuses a variable that is a slip of the keyboard away from one that would count. Others are not ours to judge:
// our own tests and a user's project have variables with the same prefix.
func checkVariables(vars map[string]string) error {
	const prefix = "LAUFWERK_"
	ours := []string{strings.TrimPrefix(FileEnv, prefix)}
	for _, row := range Table() {
		ours = append(ours, strings.TrimPrefix(row.Env(), prefix))
	}
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		rest, ok := strings.CutPrefix(name, prefix)
		if !ok || slices.Contains(ours, rest) {
			continue
		}
		if near := suggest.CorrectTypo(rest, ours); near != "" {
			return failure.New(failure.SettingsInvalid, "unknown variable %s; did you mean %s?", name, prefix+near).
				WithPaths(name).WithHint("unset %s", name)
		}
	}
	return nil
}

// lookup finds a setting by a name of --set, in which case does not count.
func lookup(name string) (Setting, bool) {
	rows := Table()
	i := slices.IndexFunc(rows, func(s Setting) bool { return strings.EqualFold(s.Name, name) })
	if i < 0 {
		return Setting{}, false
	}
	return rows[i], true
}

// unknownError is the error for a name that is no setting's, with its position where it has one.
func unknownError(name, origin string, at position) *failure.Error {
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
		return failure.New(kind, "unknown setting %q from %s%s; the settings are %s", name, origin, at.suffix(), strings.Join(names, ", ")).
			WithPaths(name).WithHint("laufwerk help environment")
	}
	e := failure.New(kind, "unknown setting %q from %s%s; did you mean %s?", name, origin, at.suffix(), near).WithPaths(name)
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
