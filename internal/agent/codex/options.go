package codex

import (
	"encoding/json"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/laufwerk/laufwerk/internal/lazyregexp"
	"github.com/laufwerk/laufwerk/internal/options"
)

// config is the normalised form of createCodex's options.
type config struct {
	Model     string                     `json:"model,omitempty"`
	Effort    string                     `json:"reasoningEffort,omitempty"`
	WebSearch bool                       `json:"webSearch,omitempty"`
	Config    map[string]json.RawMessage `json:"config,omitempty"`
}

var modelName = lazyregexp.Regexp{Pattern: `^[A-Za-z0-9][A-Za-z0-9._:/-]{0,99}$`}

// Validate holds the rules of createCodex. Its own normalised form is valid and stays as it is.
func (*Program) Validate(given json.RawMessage) (json.RawMessage, error) {
	fields, err := options.Fields("", given, "model", "reasoningEffort", "webSearch", "config")
	if err != nil {
		return nil, err
	}
	var c config
	if raw := fields["model"]; !options.Absent(raw) {
		const expected = "the name of a model"
		if c.Model, err = options.String("model", raw, expected); err != nil {
			return nil, err
		}
		if !modelName.MatchString(c.Model) {
			return nil, options.Invalid("model", "expected %s, got %q", expected, c.Model)
		}
	}
	if raw := fields["reasoningEffort"]; !options.Absent(raw) { // Codex itself sends on whatever it is given
		if c.Effort, err = options.OneOf("reasoningEffort", raw, "none", "minimal", "low", "medium", "high", "xhigh", "max", "ultra"); err != nil {
			return nil, err
		}
	}
	if raw := fields["webSearch"]; !options.Absent(raw) {
		if options.Kind(raw) != "a boolean" || json.Unmarshal(raw, &c.WebSearch) != nil {
			return nil, options.Invalid("webSearch", "expected true or false, got %s", options.Show(raw))
		}
	}
	if c.Config, err = settings(fields["config"]); err != nil {
		return nil, err
	}
	return json.Marshal(c)
}

// maxValue bounds one value of config, in bytes.
const maxValue = 4 << 10

// settingName is a key of Codex's config.toml, with dots between those of its tables.
var settingName = lazyregexp.Regexp{Pattern: `^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`}

// settings are further settings of Codex. Names that Codex does not know do nothing.
func settings(raw json.RawMessage) (map[string]json.RawMessage, error) {
	const path = "config"
	if options.Absent(raw) {
		return nil, nil
	}
	var given map[string]json.RawMessage
	if json.Unmarshal(raw, &given) != nil {
		return nil, options.Invalid(path, "expected an object of Codex's settings, got %s", options.Show(raw))
	}
	for _, key := range slices.Sorted(maps.Keys(given)) {
		at, v := options.Join(path, key), given[key]
		if !settingName.MatchString(key) {
			return nil, options.Invalid(path, "expected names such as model_verbosity or model_providers.mine.base_url, got %q", key)
		}
		switch options.Kind(v) {
		case "a string", "a number", "a boolean":
		default:
			return nil, options.Invalid(at, "expected a string, a number or a boolean, got %s", options.Kind(v))
		}
		if len(v) > maxValue {
			return nil, options.Invalid(at, "expected at most %d bytes, got %d", maxValue, len(v))
		}
		if why := refused(key); why != "" {
			return nil, options.Invalid(at, "%s", why)
		}
		if strings.HasSuffix(key, "base_url") {
			if err := address(at, v); err != nil {
				return nil, err
			}
		}
	}
	if raw, ok := given["model_provider"]; ok {
		p, err := options.String("config.model_provider", raw, "the name of a model provider")
		if err != nil {
			return nil, err
		}
		if _, own := given["model_providers."+p+".base_url"]; p != "openai" && !own {
			return nil, options.Invalid("config.model_provider", "expected \"openai\", or a provider whose model_providers.%s.base_url is here too: others bring logins of their own, and a run uses your subscription", p)
		}
	}
	if len(given) == 0 {
		return nil, nil
	}
	return given, nil
}

// refused says why a setting is not the user's to make here, "" where it is.
func refused(key string) string {
	first, rest, _ := strings.Cut(key, ".")
	switch first {
	case "model", "model_reasoning_effort", "web_search", "developer_instructions", "instructions":
		return "is refused here: it has an option of its own (model, reasoningEffort, webSearch; instructions of .agent())"
	case "approval_policy", "approvals_reviewer", "sandbox_mode", "sandbox_workspace_write", "sandbox_permissions", "sandbox", "permissions",
		"default_permissions", "auto_review", "tools", "allow_login_shell":
		return "is refused: what the agent may do is permissionMode of .agent()"
	case "shell_environment_policy":
		return "is refused: laufwerk sets which variables tools see, so that they see no secrets"
	case "projects", "project_root_markers":
		return "is refused: configuration that comes with a repository is never trusted"
	case "mcp_servers", "plugins", "marketplaces", "apps", "notify", "hooks", "skills", "mcp_oauth_credentials_store", "mcp_oauth_callback_port":
		return "is refused: it lets programs run beside the agent, outside of its permissions"
	case "forced_login_method", "preferred_auth_method", "cli_auth_credentials_store", "auth", "oss_provider":
		return "is refused: a run uses the subscription that the target's credentials name"
	case "profile", "profiles", "log_dir", "sqlite_home", "history", "otel", "analytics", "feedback", "check_for_update_on_startup", "ghost_snapshot":
		return "is refused: laufwerk keeps the agent's home private, and lets it talk to nobody but the model"
	case "features":
		if rest == "" || slices.Contains(disabledFeatures(), rest) {
			return "is refused: laufwerk switches it off, so that nothing runs that nobody asked for and nothing is retried for ever"
		}
	case "model_providers":
		id, field, _ := strings.Cut(rest, ".")
		if id == "" || !slices.Contains(providerFields(), field) {
			return "is refused: of a model provider there can be " + strings.Join(providerFields(), ", ") + "; it has no login of its own: a run uses your subscription and never falls back to billing by use"
		}
	}
	return ""
}

func providerFields() []string {
	return []string{"name", "base_url", "wire_api", "requires_openai_auth", "request_max_retries", "stream_max_retries", "stream_idle_timeout_ms"}
}

// address keeps a login from going over a network in the clear.
func address(at string, raw json.RawMessage) error {
	const expected = "an https address (http only to this machine), without a login in it"
	s, err := options.String(at, raw, expected)
	if err != nil {
		return err
	}
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" && (u.Scheme != "http" || !loopback(u.Hostname())) {
		return options.Invalid(at, "expected %s", expected)
	}
	return nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
