package openshell

import (
	"cmp"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/system/files"
)

// Registrations are the gateways that this user has registered: folders below $XDG_CONFIG_HOME/openshell/gateways that the
// openshell CLI writes. ~/.config stands for a variable that is unset, empty or relative.
type Registrations struct {
	Vars map[string]string // the environment
	Home string            // the user's, "" where there is none
}

// Registration is a gateway that can be spoken to: on this machine, with certificates that fit.
type Registration struct {
	Alias    string
	Dir      string // its folder
	Endpoint string // "https://127.0.0.1:17670"
	CA       string // sha256 of the authority's certificates, in hex

	host string             // of the endpoint
	tls  func() *tls.Config // not a value: it would be printed with its key
}

// Identity tells gateways apart, and the same one before and after it was set up anew. Intents record it.
func (r Registration) Identity() string {
	return fmt.Sprintf("openshell gateway %s at %s, CA sha256:%s", r.Alias, r.Endpoint, r.CA)
}

// Find reads the registration of an alias. It looks at files only. What laufwerk does not speak to, and what is missing, broken or
// readable by others, is a failure of kind NotReady; an alias that is none one of SettingsInvalid.
func (r Registrations) Find(alias string) (Registration, error) {
	if err := wellFormed(alias); err != nil {
		return Registration{}, err
	}
	gateways, err := r.folder()
	if err != nil {
		return Registration{}, err
	}
	dir := filepath.Join(gateways, alias)
	stated, err := r.metadata(gateways, alias)
	if err != nil {
		return Registration{}, err
	}
	found := Registration{Alias: alias, Dir: dir}
	if found.Endpoint, found.host, err = stated.endpoint(alias, filepath.Join(dir, metadataFile)); err != nil {
		return Registration{}, err
	}
	identity, err := readCredentials(alias, filepath.Join(dir, "mtls"))
	if err != nil {
		return Registration{}, err
	}
	found.CA = identity.fingerprint
	found.tls = func() *tls.Config { return identity.config(found.host) }
	return found, nil
}

// wellFormed refuses what is not the name of one folder.
func wellFormed(alias string) error {
	switch {
	case alias == "":
		return failure.New(failure.SettingsInvalid, "the gateway has no alias: it is the name of a folder of registered gateways").WithHint("openshell gateway list")
	case alias == "." || alias == ".." || strings.ContainsAny(alias, `/\`) || strings.ContainsFunc(alias, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return failure.New(failure.SettingsInvalid, "the gateway alias %q is outside the folder of registered gateways: an alias is the name of one folder", alias).
			WithHint("openshell gateway list")
	}
	return nil
}

func (r Registrations) folder() (string, error) {
	config := r.Vars["XDG_CONFIG_HOME"]
	if !filepath.IsAbs(config) {
		if !filepath.IsAbs(r.Home) {
			return "", failure.New(failure.NotReady, "there is no folder of registered OpenShell gateways: neither XDG_CONFIG_HOME nor HOME is an absolute path").
				WithHint(`export XDG_CONFIG_HOME="$HOME/.config"`)
		}
		config = filepath.Join(r.Home, ".config")
	}
	return filepath.Join(config, "openshell", "gateways"), nil
}

const metadataFile = "metadata.json"

type metadata struct {
	Endpoint   string `json:"gateway_endpoint"`
	Remote     bool   `json:"is_remote"`
	RemoteHost string `json:"remote_host"`
	Auth       string `json:"auth_mode"` // "" and "mtls" are client certificates
	EdgeTeam   string `json:"edge_team_domain"`
	EdgeURL    string `json:"edge_auth_url"`
	CFTeam     string `json:"cf_team_domain"` // the older names of the two above
	CFURL      string `json:"cf_auth_url"`
	Issuer     string `json:"oidc_issuer"`
}

func (r Registrations) metadata(gateways, alias string) (metadata, error) {
	dir := filepath.Join(gateways, alias)
	path := filepath.Join(dir, metadataFile)
	var m metadata
	if err := ownFolder(dir, 0o022); errors.Is(err, fs.ErrNotExist) {
		return m, r.missingError(gateways, alias)
	} else if err != nil {
		return m, err
	}
	b, err := ownFile(path, 0o022)
	if errors.Is(err, fs.ErrNotExist) {
		if system := r.system(alias); files.Exists(system) {
			return m, systemOnlyError(alias, system)
		}
		return m, failure.New(failure.NotReady, "the OpenShell gateway %q is not registered: its folder has no %s", alias, metadataFile).
			WithHint("%s", registerCommand(alias)).WithPaths(path)
	}
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(b, &m); err != nil {
		return m, failure.New(failure.NotReady, "the registration of the OpenShell gateway %q cannot be read: %s is not its JSON", alias, path).
			WithHint("%s", registerCommand(alias)).WithPaths(path).WithCause(err)
	}
	return m, nil
}

// system is where an administrator's registration of an alias would be.
func (r Registrations) system(alias string) string {
	dir := r.Vars["OPENSHELL_SYSTEM_GATEWAY_DIR"]
	if !filepath.IsAbs(dir) {
		dir = "/etc/openshell"
	}
	return filepath.Join(dir, "gateways", alias, metadataFile)
}

func systemOnlyError(alias, path string) error {
	return failure.New(failure.NotReady, "the OpenShell gateway %q is registered for the whole system only (%s): laufwerk speaks to gateways that the user has registered, with the user's own certificates", alias, path).
		WithHint("%s", registerCommand(alias)).WithPaths(path)
}

const shown = 10

func (r Registrations) missingError(gateways, alias string) error {
	if path := r.system(alias); files.Exists(path) {
		return systemOnlyError(alias, path)
	}
	has := "no gateway is registered there"
	names, _ := files.Names(gateways)
	names = slices.DeleteFunc(names, func(name string) bool { return strings.HasPrefix(name, ".") || wellFormed(name) != nil })
	if len(names) > shown {
		names = append(names[:shown], fmt.Sprintf("and %d more", len(names)-shown))
	}
	if len(names) > 0 {
		has = "registered there: " + strings.Join(names, ", ")
	}
	return failure.New(failure.NotReady, "there is no OpenShell gateway %q in %s (%s)", alias, gateways, has).
		WithHint("%s", registerCommand(alias)).WithPaths(filepath.Join(gateways, alias))
}

// registerCommand is the command that registers a gateway; the port is that of a gateway as it comes.
func registerCommand(alias string) string {
	return "openshell gateway add https://127.0.0.1:17670 --local --name " + failure.Quote(alias)
}

// endpoint is the address to speak to, in one spelling, and its host. All but client certificates to this machine is refused.
func (m metadata) endpoint(alias, path string) (endpoint, host string, err error) {
	refuse := func(format string, args ...any) (string, string, error) {
		return "", "", failure.New(failure.NotReady, "the OpenShell gateway %q %s", alias, fmt.Sprintf(format, args...)).
			WithHint("%s   # or name another gateway in the target", registerCommand(alias)).WithPaths(path)
	}
	const why = "laufwerk speaks to a gateway on this machine, over https with client certificates"
	u, err := url.Parse(m.Endpoint)
	switch {
	case m.Auth == "plaintext" || err == nil && u.Scheme == "http":
		return refuse("is registered in plain text, without authentication: %s", why)
	case m.Auth == "oidc" || m.Auth == "" && m.Issuer != "":
		return refuse("is registered with an OpenID login (oidc): %s", why)
	case m.Auth == "cloudflare_jwt" || m.Auth == "" && slices.ContainsFunc([]string{m.EdgeTeam, m.EdgeURL, m.CFTeam, m.CFURL}, func(s string) bool { return s != "" }):
		return refuse("is registered with a token for an edge proxy (cloudflare_jwt): %s", why)
	case m.Auth != "" && m.Auth != "mtls":
		return refuse("is registered with the authentication %q, which laufwerk does not know: %s", m.Auth, why)
	case m.Remote || m.RemoteHost != "":
		return refuse("is registered as a remote one: the folders that laufwerk mounts would be that machine's, not the workspace's")
	case err != nil || u.Scheme != "https" || u.Hostname() == "" || !validPort(u.Port()) || u.User != nil || u.Opaque != "" || u.RawQuery != "" || u.Fragment != "" || strings.Trim(u.Path, "/") != "":
		return "", "", failure.New(failure.NotReady, "the OpenShell gateway %q is registered at %q, which is not https://host:port", alias, m.Endpoint).
			WithHint("%s", registerCommand(alias)).WithPaths(path)
	case !loopback(u.Hostname()):
		return refuse("is registered at %s, which is not this machine's loopback: the folders that laufwerk mounts may be another machine's", m.Endpoint)
	}
	return "https://" + net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "443")), u.Hostname(), nil
}

// validPort says whether one can be connected to; "" is that of https.
func validPort(port string) bool {
	n, err := strconv.ParseUint(port, 10, 16)
	return port == "" || err == nil && n > 0
}

// loopback says whether a host's name can only mean this machine. What localhost resolves to is looked at when it is dialled.
func loopback(host string) bool {
	if a, err := netip.ParseAddr(host); err == nil {
		return a.Unmap().IsLoopback() && a.Zone() == ""
	}
	host = strings.ToLower(host)
	odd := strings.ContainsFunc(host, func(r rune) bool { return r != '-' && r != '.' && (r < 'a' || r > 'z') && (r < '0' || r > '9') })
	return !odd && (host == "localhost" || strings.HasSuffix(host, ".localhost"))
}
