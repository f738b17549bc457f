package prepare

import (
	"strings"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/system/files"
)

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

// readSetting reads the file that a flag or variable names.
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
	e := failure.New(failure.InputInvalid, "%s: %s cannot be read", name, path).WithPaths(path)
	e.Err = err
	return nil, e
}
