package imagecache

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/laufwerk/laufwerk/internal/dockerengine"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/inside"
	"github.com/laufwerk/laufwerk/internal/lazyregexp"
	"github.com/laufwerk/laufwerk/internal/redact"
)

// leastNode and leastPNPM are the oldest major versions that can install and read the lockfile.
const (
	leastNode = 22
	leastPNPM = 9
)

// Settings are for the installation alone: they reach the container through the stdin and the environment of single commands,
// and are in no layer, no configuration and no log.
type Settings struct {
	CA    []byte            // certificates that are trusted in addition, PEM
	NPMRC []byte            // a configuration of npm's
	Env   map[string]string // proxies, npm_config_registry and the like
}

// password is one in an address; secretSetting is the name of a setting of npm whose value is secret.
var (
	password      = lazyregexp.Regexp{Pattern: `://[^/@\s]*:([^/@\s]+)@`}
	secretSetting = lazyregexp.Regexp{Pattern: `_auth|token|password|key$`}
)

// secrets are what must not get into the log.
func (s Settings) secrets() *redact.Secrets {
	out := redact.NewSecrets()
	for _, v := range s.Env {
		for _, m := range password.FindAllStringSubmatch(v, -1) {
			out.Add(m[1])
		}
	}
	for line := range strings.Lines(string(s.NPMRC)) {
		name, value, ok := strings.Cut(line, "=")
		if name = strings.ToLower(strings.TrimSpace(name)); ok && secretSetting.MatchString(name) {
			out.Add(strings.Trim(strings.TrimSpace(value), `"'`))
		}
		for _, m := range password.FindAllStringSubmatch(line, -1) {
			out.Add(m[1])
		}
	}
	return out
}

func (s Settings) env(work string) []string {
	out := []string{
		"CI=1", "HOME=" + work, "npm_config_cache=" + path.Join(work, "npm"), "npm_config_store_dir=" + path.Join(work, "store"),
		"npm_config_update_notifier=false", "COREPACK_ENABLE_DOWNLOAD_PROMPT=0",
	}
	if len(s.CA) > 0 {
		for _, name := range []string{"NODE_EXTRA_CA_CERTS", "npm_config_cafile"} {
			out = append(out, name+"="+path.Join(privateDir, "ca.pem"))
		}
	}
	if len(s.NPMRC) > 0 {
		out = append(out, "npm_config_userconfig="+path.Join(privateDir, "npmrc"))
	}
	for k, v := range s.Env {
		out = append(out, k+"="+v)
	}
	slices.Sort(out)
	return out
}

// npmInstall are the arguments with which npm brings a pnpm.
func npmInstall() []string {
	return []string{"npm", "install", "--ignore-scripts", "--no-save", "--no-audit", "--no-fund", "--no-progress", "--loglevel=error", "pnpm@" + pnpmVersion}
}

// installer installs into one container.
type installer struct {
	c       Cache
	e       *dockerengine.Engine
	id      string
	image   string // for messages
	set     Settings
	work    string // a directory in the container that is thrown away with it
	log     io.Writer
	secrets *redact.Secrets
	say     func(format string, args ...any)
}

// Install installs the program into a started container of an image, at the prefix. Everything that its commands print goes
// to log. What the image lacks is a failure of kind NotReady that names all of it.
func (c Cache) Install(ctx context.Context, e *dockerengine.Engine, id, image string, set Settings, log io.Writer, say func(format string, args ...any)) error {
	in := installer{c: c, e: e, id: id, image: image, set: set, work: path.Join(path.Dir(path.Dir(c.Prefix)), ".prepare"), log: log, secrets: set.secrets(), say: say}
	pnpm, err := in.tools(ctx)
	if err != nil {
		return err
	}
	for _, f := range c.Program.Files {
		if err := in.put(ctx, path.Join(c.Prefix, f.Path), uint32(f.Mode), f.Data); err != nil {
			return err
		}
	}
	for name, data := range map[string][]byte{"ca.pem": set.CA, "npmrc": set.NPMRC} {
		if len(data) > 0 {
			if err := in.put(ctx, path.Join(privateDir, name), 0o600, data); err != nil {
				return err
			}
		}
	}
	if pnpm == nil {
		if pnpm, err = in.bringPNPM(ctx); err != nil {
			return err
		}
	}
	say("installing %s %s in a container of %s\n", c.Program.Title, c.Program.Version, image)
	return in.run(ctx, "install "+c.Program.Title+" "+c.Program.Version, c.Prefix, append(pnpm, c.Program.Install...))
}

// tools looks for what sessions and the installation need. The command is nil where npm has to bring a pnpm.
func (in installer) tools(ctx context.Context) (pnpm []string, err error) {
	var out bytes.Buffer
	code, _, err := in.e.Exec(ctx, in.id, dockerengine.Command{Argv: inside.Probe(), User: root, Dir: "/"}, &out, io.Discard)
	if err != nil {
		return nil, failure.Wrap(err, failure.Failed, "look what the image %s has", in.image)
	}
	p, err := inside.ReadProbe(out.Bytes())
	if err != nil || code != 0 {
		return nil, failure.New(failure.NotReady, "our own program does not run in a container of %s (exit code %d)", in.image, code)
	}
	fmt.Fprintf(in.log, "%s has %v\n", in.image, p.Tools)
	var lacks []string
	for _, name := range slices.Concat([]string{"bash", "git", "setsid"}, in.c.Layout.Tools) {
		if _, ok := p.Tools[name]; !ok {
			lacks = append(lacks, name)
		}
	}
	node, ok := p.Tools["node"]
	switch {
	case !ok:
		lacks = append(lacks, "node")
	case major(node.Version) < leastNode:
		lacks = append(lacks, fmt.Sprintf("node %d or newer (it has %s)", leastNode, node.Version))
	}
	if tool, ok := p.Tools["pnpm"]; ok && major(tool.Version) >= leastPNPM {
		pnpm = []string{tool.Path}
	} else if !in.has(ctx, "npm", "--version") {
		lacks = append(lacks, "pnpm (npm would do)")
	}
	if len(lacks) > 0 {
		return nil, failure.New(failure.NotReady, "the image %s lacks %s: agents in containers need Node.js %d or newer, pnpm or npm, %s", in.image, strings.Join(lacks, ", "), leastNode, in.c.needs()).
			WithHint("%s --image %s", in.c.Prepare, DefaultBase)
	}
	return pnpm, nil
}

// needs are programs of the image, in words.
func (c Cache) needs() string {
	if len(c.Layout.Tools) == 0 {
		return "git, bash and setsid"
	}
	return "git, bash, setsid and " + strings.Join(c.Layout.Tools, ", ")
}

var majorVersion = lazyregexp.Regexp{Pattern: `^v?(\d+)\.`}

// major is the major version of what a program prints: "v22.1.0", "10.34.9".
func major(version string) int {
	m := majorVersion.FindStringSubmatch(version)
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(m[1])
	return n
}

func (in installer) has(ctx context.Context, argv ...string) bool {
	code, _, err := in.e.Exec(ctx, in.id, dockerengine.Command{Argv: argv, User: root, Dir: "/"}, io.Discard, io.Discard)
	return err == nil && code == 0
}

// put writes a file through a command's stdin.
func (in installer) put(ctx context.Context, name string, mode uint32, data []byte) error {
	var said bytes.Buffer
	c := dockerengine.Command{Argv: inside.Put(name, fs.FileMode(mode), len(data)), User: root, Dir: "/", Stdin: bytes.NewReader(data)}
	code, _, err := in.e.Exec(ctx, in.id, c, io.Discard, &said)
	if err == nil && code != 0 {
		err = failure.New(failure.NotReady, "%s", strings.TrimSpace(said.String()))
	}
	return failure.Wrap(err, failure.NotReady, "write %s in a container of %s", name, in.image)
}

// bringPNPM installs the pinned pnpm beside the tree.
func (in installer) bringPNPM(ctx context.Context) ([]string, error) {
	dir := path.Join(in.work, "pnpm")
	if err := in.put(ctx, path.Join(dir, "package.json"), 0o644, []byte(`{"private":true}`+"\n")); err != nil {
		return nil, err
	}
	in.say("installing pnpm %s, which the image %s has not\n", pnpmVersion, in.image)
	if err := in.run(ctx, "install pnpm "+pnpmVersion, dir, npmInstall()); err != nil {
		return nil, err
	}
	return []string{"node", path.Join(dir, "node_modules/pnpm/bin/pnpm.cjs")}, nil
}

var certificateFailure = lazyregexp.Regexp{Pattern: `SELF_SIGNED_CERT|UNABLE_TO_(GET_ISSUER|VERIFY)|certificate`}

// run runs a command of the installation to its end.
func (in installer) run(ctx context.Context, what, dir string, argv []string) error {
	out := &output{log: in.log, stream: in.secrets.Stream(), say: in.say}
	_, _ = fmt.Fprintf(in.log, "$ %s\n", strings.Join(argv, " "))
	code, _, err := in.e.Exec(ctx, in.id, dockerengine.Command{Argv: argv, Env: in.set.env(in.work), User: root, Dir: dir}, out, out)
	out.end()
	if ctx.Err() != nil {
		return failure.Wrap(context.Cause(ctx), failure.Cancelled, "%s; %s takes it up", what, in.c.Prepare)
	}
	if err != nil {
		return failure.Wrap(err, failure.Failed, "%s in a container of %s", what, in.image)
	}
	if code == 0 {
		return nil
	}
	said := strings.TrimSpace(out.tail.String())
	e := failure.New(failure.NotReady, "%s could not %s in a container of %s (exit code %d): %s", path.Base(argv[0]), what, in.image, code, redact.Terminal(said)).
		WithHint("%s", in.c.Prepare)
	if certificateFailure.MatchString(said) {
		e.Hint = in.c.Prepare + " --ca /path/to/your/ca-bundle.pem"
	}
	return e
}

// output goes to the log without secrets; lines that tell how far it is are told.
type output struct {
	log    io.Writer
	stream *redact.Stream
	say    func(format string, args ...any)
	tail   bytes.Buffer // the last lines
	line   string
}

// tailSize is how much of a command's output is in a failure's message, in bytes.
const tailSize = 2000

func (o *output) Write(p []byte) (int, error) {
	o.take(o.stream.Feed(string(p)))
	return len(p), nil
}

func (o *output) end() { o.take(o.stream.Rest() + "\n") }

func (o *output) take(text string) {
	_, _ = io.WriteString(o.log, text)
	o.tail.WriteString(text)
	if n := o.tail.Len() - tailSize; n > 0 {
		o.tail.Next(n)
	}
	o.line += text
	for {
		line, rest, ok := strings.Cut(o.line, "\n")
		if !ok {
			if len(o.line) > tailSize {
				o.line = ""
			}
			return
		}
		if strings.HasPrefix(line, "Progress:") {
			o.say("%s\n", redact.Line(line))
		}
		o.line = rest
	}
}
