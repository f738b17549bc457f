package local

import (
	"maps"
	"net/url"
	"slices"
	"strings"
)

// passedVariables are the variables of the worker that every command gets: who and where the user is, language, and where
// developer tools lie and keep their caches. None of them is made to hold a secret or leads to an agent, a cloud, Docker or
// Kubernetes.
func passedVariables() []string {
	return []string{
		"HOME", "PATH", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR",
		"XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME",
		"SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "GIT_SSL_CAINFO",
		"http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY",
		"GOPATH", "GOROOT", "GOCACHE", "GOMODCACHE", "GOFLAGS", "GOPROXY", "GOPRIVATE", "GONOSUMDB", "GOTOOLCHAIN",
		"CARGO_HOME", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN",
		"NVM_DIR", "NVM_BIN", "VOLTA_HOME", "PNPM_HOME", "BUN_INSTALL", "DENO_DIR", "COREPACK_HOME",
		"JAVA_HOME", "MAVEN_HOME", "GRADLE_USER_HOME", "ANDROID_HOME", "ANDROID_SDK_ROOT", "DOTNET_ROOT",
		"PYENV_ROOT", "VIRTUAL_ENV", "CONDA_PREFIX", "RBENV_ROOT", "GEM_HOME", "GEM_PATH", "ASDF_DIR", "MISE_DATA_DIR",
		"NIX_PATH", "NIX_PROFILES", "NIX_SSL_CERT_FILE", "PKG_CONFIG_PATH", "LD_LIBRARY_PATH", "CC", "CXX",
	}
}

// allowedVariables are the worker's variables that are passed on, as NAME=value, sorted. A value that is an address with a password
// in it stays out, as proxies and module proxies can have one.
func allowedVariables(host map[string]string) []string {
	names := passedVariables()
	var out []string
	for _, name := range slices.Sorted(maps.Keys(host)) {
		if (slices.Contains(names, name) || strings.HasPrefix(name, "LC_")) && !hasPassword(host[name]) {
			out = append(out, name+"="+host[name])
		}
	}
	return out
}

func hasPassword(value string) bool {
	for _, part := range strings.FieldsFunc(value, func(r rune) bool { return r == ',' || r == '|' || r == ' ' }) {
		if !strings.Contains(part, "@") {
			continue
		}
		if !strings.Contains(part, "://") {
			part = "//" + part
		}
		if u, err := url.Parse(part); err != nil || u.User != nil {
			return true
		}
	}
	return false
}
