package prepare

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
	"github.com/laufwerk/laufwerk/internal/guest"
	"github.com/laufwerk/laufwerk/internal/imagecache"
	"github.com/laufwerk/laufwerk/internal/lazyregexp"
	"github.com/laufwerk/laufwerk/internal/redact"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/system/files"
)

// leastPNPM is the oldest major version that reads the lockfile.
const leastPNPM = 9

// installSettings are for the installation alone: they reach the container through the stdin and the environment of single commands,
// and are in no layer, no configuration and no log.
type installSettings struct {
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
func (s installSettings) secrets() *redact.Secrets {
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

func (s installSettings) env(work string) []string {
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

type installer struct {
	*preparation
	container string
	work      string // a directory in the container that is thrown away with it
	log       io.Writer
	secrets   *redact.Secrets
}

// install installs the program into a started container of the base image, at the prefix. Everything that its commands print goes
// to log. What the image lacks is a failure of kind NotReady that names all of it.
func (p *preparation) install(ctx context.Context, container string, log io.Writer) error {
	in := installer{preparation: p, container: container, work: path.Join(path.Dir(path.Dir(p.Cache.Prefix)), ".prepare"), log: log, secrets: p.Settings.secrets()}
	pnpm, err := in.findTools(ctx)
	if err != nil {
		return err
	}
	program := p.Cache.Program
	for _, f := range program.Files {
		if err := in.put(ctx, path.Join(p.Cache.Prefix, f.Path), uint32(f.Mode), f.Data); err != nil {
			return err
		}
	}
	for name, data := range map[string][]byte{"ca.pem": p.Settings.CA, "npmrc": p.Settings.NPMRC} {
		if len(data) > 0 {
			if err := in.put(ctx, path.Join(privateDir, name), 0o600, data); err != nil {
				return err
			}
		}
	}
	if pnpm == nil {
		if pnpm, err = in.installPNPM(ctx); err != nil {
			return err
		}
	}
	p.Say("installing %s %s in a container of %s\n", program.Title, program.Version, p.Image)
	return in.run(ctx, "install "+program.Title+" "+program.Version, p.Cache.Prefix, append(pnpm, program.Install...))
}

// findTools looks for what sessions and the installation need. The command is nil where npm has to bring a pnpm.
func (in installer) findTools(ctx context.Context) (pnpm []string, err error) {
	var out bytes.Buffer
	code, _, err := in.engine.Exec(ctx, in.container, dockerengine.Command{Argv: guest.Probe(), User: root, Dir: "/"}, &out, io.Discard)
	if err != nil {
		return nil, failure.Wrap(err, failure.Failed, "check which programs the image %s has", in.Image)
	}
	p, err := guest.ReadProbe(out.Bytes())
	if err != nil || code != 0 {
		return nil, failure.New(failure.NotReady, "our own program does not run in a container of %s (exit code %d)", in.Image, code)
	}
	fmt.Fprintf(in.log, "%s has %v\n", in.Image, p.Tools)
	var lacks []string
	for _, name := range slices.Concat([]string{"bash", "git", "setsid"}, in.Cache.Layout.Tools) {
		if _, ok := p.Tools[name]; !ok {
			lacks = append(lacks, name)
		}
	}
	node, ok := p.Tools["node"]
	switch {
	case !ok:
		lacks = append(lacks, "node")
	case node.Version == "":
		lacks = append(lacks, fmt.Sprintf("a node that prints its version within %s", guest.VersionLimit))
	case major(node.Version) < leastNode:
		lacks = append(lacks, fmt.Sprintf("node %d or newer (it has %s)", leastNode, node.Version))
	}
	if tool, ok := p.Tools["pnpm"]; ok && major(tool.Version) >= leastPNPM {
		pnpm = []string{tool.Path}
	} else if has, err := in.hasNPM(ctx); err != nil {
		return nil, err
	} else if !has && ok && tool.Version == "" { // which it may do another time: that it is there is known
		lacks = append(lacks, fmt.Sprintf("a pnpm that prints its version within %s (npm would do)", guest.VersionLimit))
	} else if !has {
		lacks = append(lacks, "pnpm (npm would do)")
	}
	if len(lacks) > 0 {
		return nil, failure.New(failure.NotReady, "the image %s lacks %s: agents in containers need Node.js %d or newer, pnpm or npm, %s", in.Image, strings.Join(lacks, ", "), leastNode, neededTools(in.Cache)).
			WithHint("%s --image %s", in.Cache.Prepare, imagecache.DefaultBase)
	}
	return pnpm, nil
}

// neededTools are programs of the image, in words.
func neededTools(c imagecache.Cache) string {
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

func (in installer) hasNPM(ctx context.Context) (bool, error) {
	c := dockerengine.Command{Argv: []string{"npm", "--version"}, User: root, Dir: "/"}
	code, done, err := in.engine.Exec(ctx, in.container, c, io.Discard, io.Discard)
	if err != nil && done != resource.NotDone { // an engine that does not start it says so: it is not there
		return false, failure.Wrap(err, failure.Failed, "check which programs the image %s has", in.Image)
	}
	return err == nil && code == 0, nil
}

// put writes a file through a command's stdin.
func (in installer) put(ctx context.Context, name string, mode uint32, data []byte) error {
	var said bytes.Buffer
	c := dockerengine.Command{Argv: guest.PutFile(name, fs.FileMode(mode), len(data)), User: root, Dir: "/", Stdin: bytes.NewReader(data)}
	code, _, err := in.engine.Exec(ctx, in.container, c, io.Discard, &said)
	if err == nil && code != 0 {
		err = failure.New(failure.NotReady, "%s", strings.TrimSpace(said.String()))
	}
	return failure.Wrap(err, failure.NotReady, "write %s in a container of %s", name, in.Image)
}

// installPNPM installs the pinned pnpm beside the tree.
func (in installer) installPNPM(ctx context.Context) ([]string, error) {
	dir := path.Join(in.work, "pnpm")
	if err := in.put(ctx, path.Join(dir, "package.json"), 0o644, []byte(`{"private":true}`+"\n")); err != nil {
		return nil, err
	}
	in.Say("installing pnpm %s, which the image %s has not\n", imagecache.PNPMVersion, in.Image)
	if err := in.run(ctx, "install pnpm "+imagecache.PNPMVersion, dir, imagecache.NPMInstallsPNPM()); err != nil {
		return nil, err
	}
	return []string{"node", path.Join(dir, "node_modules/pnpm/bin/pnpm.cjs")}, nil
}

var certificateFailure = lazyregexp.Regexp{Pattern: `SELF_SIGNED_CERT|UNABLE_TO_(GET_ISSUER|VERIFY)|certificate`}

func (in installer) run(ctx context.Context, what, dir string, argv []string) error {
	out := &installOutput{log: in.log, stream: in.secrets.Stream(), say: in.Say}
	_, _ = fmt.Fprintf(in.log, "$ %s\n", strings.Join(argv, " "))
	code, _, err := in.engine.Exec(ctx, in.container, dockerengine.Command{Argv: argv, Env: in.Settings.env(in.work), User: root, Dir: dir}, out, out)
	out.end()
	if ctx.Err() != nil {
		return failure.Wrap(context.Cause(ctx), failure.Cancelled, "%s; %s takes it up", what, in.Cache.Prepare)
	}
	if err != nil {
		return failure.Wrap(err, failure.Failed, "%s in a container of %s", what, in.Image)
	}
	if code == 0 {
		return nil
	}
	said := strings.TrimSpace(out.tail.String())
	e := failure.New(failure.NotReady, "%s could not %s in a container of %s (exit code %d): %s", path.Base(argv[0]), what, in.Image, code, redact.Terminal(said)).
		WithHint("%s", in.Cache.Prepare)
	if certificateFailure.MatchString(said) {
		e.Hint = in.Cache.Prepare + " --ca /path/to/your/ca-bundle.pem"
	}
	return e
}

// installOutput goes to the log without secrets; lines that tell how far it is are said.
type installOutput struct {
	log    io.Writer
	stream *redact.Stream
	say    func(format string, args ...any)
	tail   bytes.Buffer // the last lines
	line   string
}

// tailSize is how much of a command's output is in a failure's message, in bytes.
const tailSize = 2000

func (o *installOutput) Write(p []byte) (int, error) {
	o.take(o.stream.Feed(string(p)))
	return len(p), nil
}

func (o *installOutput) end() { o.take(o.stream.Rest() + "\n") }

func (o *installOutput) take(text string) {
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

// InstallationSettings are what a user says of an installation in a container.
type InstallationSettings struct {
	CA       string // a file of certificates, PEM; "" takes the one that Node.js or npm use here
	NPMRC    string // a configuration of npm's; "" is none: the user's own may hold logins
	Registry string // the URL of an npm registry
	Proxy    string // the URL of an HTTP proxy
}

// settingsLimit is how large a file for an installation may be, in bytes.
const settingsLimit = 4 << 20

// read makes the settings of an installation from files and this process's environment: proxies, and what npm is told by
// variables, logins left out. Paths are absolute. Failures: InputInvalid for a named file.
func (s InstallationSettings) read(vars map[string]string) (installSettings, error) {
	out := installSettings{Env: map[string]string{}}
	for k, v := range vars {
		switch name := strings.ToLower(k); {
		case v == "":
		case name == "http_proxy" || name == "https_proxy" || name == "no_proxy":
			out.Env[k] = v
		case strings.HasPrefix(name, "npm_config_") && isPortable(strings.TrimPrefix(name, "npm_config_")):
			out.Env[name] = v
		}
	}
	if s.Registry != "" {
		out.Env["npm_config_registry"] = s.Registry
	}
	if s.Proxy != "" {
		for _, name := range []string{"http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "npm_config_proxy", "npm_config_https_proxy"} {
			out.Env[name] = s.Proxy
		}
	}
	var err error
	if s.CA != "" {
		out.CA, err = readSetting("--ca", s.CA)
	} else {
		for _, name := range []string{"npm_config_cafile", "NPM_CONFIG_CAFILE", "NODE_EXTRA_CA_CERTS"} {
			if vars[name] != "" {
				if out.CA, err = readSetting(name, vars[name]); err != nil {
					return out, err
				}
				break
			}
		}
	}
	if err == nil && s.NPMRC != "" {
		out.NPMRC, err = readSetting("--npmrc", s.NPMRC)
	}
	return out, err
}

// isPortable says which of npm's settings make sense inside a container: no paths of this host, and no logins.
func isPortable(name string) bool {
	switch name {
	case "registry", "proxy", "https_proxy", "http_proxy", "noproxy", "strict_ssl", "fetch_retries", "fetch_timeout",
		"fetch_retry_mintimeout", "fetch_retry_maxtimeout", "maxsockets", "network_concurrency":
		return true
	}
	return strings.HasPrefix(name, "@") && strings.HasSuffix(name, ":registry")
}

func readSetting(name, path string) ([]byte, error) {
	info, err := files.Stat(path)
	switch {
	case err == nil && !info.Mode().IsRegular():
		return nil, failure.New(failure.InputInvalid, "%s: %s is no file", name, path).WithPaths(path)
	case err == nil && info.Size() > settingsLimit:
		return nil, failure.New(failure.InputInvalid, "%s: %s has %d bytes, more than %d", name, path, info.Size(), settingsLimit).WithPaths(path)
	case err == nil:
		var b []byte
		if b, err = files.Read(path); err == nil {
			return b, nil
		}
	}
	return nil, failure.New(failure.InputInvalid, "%s: %s cannot be read", name, path).WithPaths(path).WithCause(err)
}
