package prepare

import (
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/laufwerk/laufwerk/internal/failure"
)

// What an installation is told: proxies and npm's addresses of this environment, what the flags say in their place, and none of
// the logins or paths that npm finds in variables.
func TestInstallationSettings(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	ca, npmrc, other := file("ca.pem", "ca"), file("npmrc", "rc"), file("other.pem", "other")
	host := map[string]string{
		"HTTPS_PROXY": "http://proxy:1", "no_proxy": "localhost", "http_proxy": "", "PATH": "/bin", "OPENAI_API_KEY": "canary",
		"npm_config_registry": "https://registry.example/", "NPM_CONFIG_FETCH_RETRIES": "1", "npm_config_@team:registry": "https://team.example/",
		"npm_config__authToken": "canary", "npm_config_//registry.example/:_authToken": "canary", "npm_config_userconfig": "/home/me/.npmrc", "npm_config_cache": "/home/me/.npm",
		"NODE_EXTRA_CA_CERTS": ca,
	}
	ofHost := map[string]string{
		"HTTPS_PROXY": "http://proxy:1", "no_proxy": "localhost", "npm_config_registry": "https://registry.example/", "npm_config_fetch_retries": "1",
		"npm_config_@team:registry": "https://team.example/",
	}
	with := func(more map[string]string) map[string]string {
		out := maps.Clone(ofHost)
		maps.Copy(out, more)
		return out
	}
	const proxy = "http://me:pw@proxy:3128"
	for name, c := range map[string]struct {
		given     InstallationSettings
		vars      map[string]string
		env       map[string]string
		ca, npmrc string
	}{
		"nothing":            {InstallationSettings{}, nil, map[string]string{}, "", ""},
		"of this machine":    {InstallationSettings{}, host, ofHost, "ca", ""},
		"npm's certificates": {InstallationSettings{}, map[string]string{"npm_config_cafile": other, "NODE_EXTRA_CA_CERTS": ca}, map[string]string{}, "other", ""},
		"a registry":         {InstallationSettings{Registry: "https://mine.example/"}, host, with(map[string]string{"npm_config_registry": "https://mine.example/"}), "ca", ""},
		"files":              {InstallationSettings{CA: other, NPMRC: npmrc}, host, ofHost, "other", "rc"},
		"a proxy": {InstallationSettings{Proxy: proxy}, host, with(map[string]string{
			"http_proxy": proxy, "https_proxy": proxy, "HTTP_PROXY": proxy, "HTTPS_PROXY": proxy, "npm_config_proxy": proxy, "npm_config_https_proxy": proxy,
		}), "ca", ""},
	} {
		got, err := c.given.read(c.vars)
		if err != nil || !maps.Equal(got.Env, c.env) || string(got.CA) != c.ca || string(got.NPMRC) != c.npmrc {
			t.Errorf("%s: %q, CA %q, npmrc %q, %v", name, got.Env, got.CA, got.NPMRC, err)
		}
	}
	for name, c := range map[string]struct {
		given InstallationSettings
		vars  map[string]string
	}{
		"not there":         {InstallationSettings{CA: filepath.Join(dir, "none")}, nil},
		"a directory":       {InstallationSettings{NPMRC: dir}, nil},
		"named by the host": {InstallationSettings{}, map[string]string{"NODE_EXTRA_CA_CERTS": filepath.Join(dir, "none")}},
		"too large":         {InstallationSettings{CA: file("large", string(make([]byte, settingsLimit+1)))}, nil},
	} {
		if _, err := c.given.read(c.vars); !failure.Is(err, failure.InputInvalid) || len(failure.As(err).Paths) != 1 {
			t.Errorf("%s: %v", name, err)
		}
	}
}
