package gateway

import (
	"encoding/json"
	"math"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/laufwerk/laufwerk/internal/openshell/wire"
)

func invalid(format string, args ...any) error {
	return status.Errorf(codes.InvalidArgument, format, args...)
}
func refused(format string, args ...any) error {
	return status.Errorf(codes.FailedPrecondition, format, args...)
}

var (
	namePattern     = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)                                   //nolint:gochecknoglobals // constant
	labelPart       = regexp.MustCompile(`^[\pL\pN]([\pL\pN_.-]*[\pL\pN])?$`)                                 //nolint:gochecknoglobals // constant
	labelPrefix     = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$`) //nolint:gochecknoglobals // constant
	variablePattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)                                          //nolint:gochecknoglobals // constant
)

// admit checks a request in the order of the gateway, up to what the driver has to say of it.
func (l *life) admit(req *wire.CreateSandboxRequest) error {
	spec, template := req.GetSpec(), req.GetSpec().GetTemplate()
	if spec == nil {
		return invalid("spec is required")
	}
	if err := validName(req.GetName()); err != nil {
		return err
	}
	if n := len(spec.GetProviders()); n > 32 {
		return invalid("providers list exceeds maximum (%d > 32)", n)
	}
	if len(spec.GetLogLevel()) > 32 {
		return invalid("log_level exceeds maximum length")
	}
	for what, env := range map[string]map[string]string{"spec.environment": spec.GetEnvironment(), "template.environment": template.GetEnvironment()} {
		if err := validEnvironment(what, env, 256, 8192); err != nil {
			return err
		}
	}
	for what, text := range map[string]string{"image": template.GetImage(), "runtime_class_name": template.GetRuntimeClassName(), "agent_socket": template.GetAgentSocket()} {
		if len(text) > 1024 {
			return invalid("template.%s exceeds maximum length (%d > 1024)", what, len(text))
		}
	}
	for what, m := range map[string]proto.Message{"resources": template.GetResources(), "driver_config": template.GetDriverConfig()} {
		if n := proto.Size(m); n > 65536 {
			return invalid("template.%s exceeds maximum size (%d > 65536)", what, n)
		}
	}
	if n := proto.Size(spec.GetPolicy()); n > 262144 {
		return invalid("policy exceeds maximum size (%d > 262144)", n)
	}
	size := 0
	for _, word := range spec.GetCommand() {
		size += len(word)
	}
	if len(spec.GetCommand()) > 256 || size > 256<<10 {
		return invalid("command exceeds its limits (256 arguments, 262144 bytes)")
	}
	for what, labels := range map[string]map[string]string{"labels": req.GetLabels(), "template.labels": template.GetLabels()} {
		if err := validLabels(what, labels); err != nil {
			return err
		}
	}
	if len(req.GetAnnotations()) > 128 {
		return invalid("annotations exceed maximum entries")
	}
	if err := workspace(req.GetWorkspace()); err != nil {
		return err
	}
	if err := l.g.exposable(spec.GetProviders()); err != nil {
		return err
	}
	if unsafe := unsafePolicy(spec.GetPolicy()); unsafe != "" {
		return invalid("policy contains unsafe content: %s", unsafe)
	}
	return nil
}

func validName(name string) error {
	switch {
	case name == "":
		return nil
	case len(name) > 19:
		return invalid("name exceeds maximum length (%d > 19)", len(name))
	case !namePattern.MatchString(name) || strings.Contains(name, "--"):
		return invalid("name '%s' is not valid: lower-case letters, digits and single hyphens, none at either end", name)
	}
	return nil
}

func validEnvironment(what string, env map[string]string, maxKey, maxValue int) error {
	total := 0
	for k, v := range env {
		switch {
		case !variablePattern.MatchString(k) || len(k) > maxKey:
			return invalid("%s key '%s' is not valid", what, k)
		case strings.HasPrefix(k, "OPENSHELL_") && k != "OPENSHELL_PYFUNC_B64":
			return invalid("%s key '%s' is reserved", what, k)
		case len(v) > maxValue:
			return invalid("%s value of '%s' exceeds maximum length (%d > %d)", what, k, len(v), maxValue)
		case strings.ContainsAny(v, "\x00\r\n"):
			return invalid("%s value of '%s' contains control characters", what, k)
		}
		total += len(k) + len(v)
	}
	if len(env) > 128 || total > 256<<10 {
		return invalid("%s exceeds its limits (128 entries, 262144 bytes)", what)
	}
	return nil
}

func validLabels(what string, labels map[string]string) error {
	for k, v := range labels {
		prefix, name, ok := strings.Cut(k, "/")
		if !ok {
			prefix, name = "", k
		}
		switch {
		case len(k) > 253 || len(name) > 63 || !labelPart.MatchString(name) || ok && !labelPrefix.MatchString(prefix):
			return invalid("%s key '%s' is not valid", what, k)
		case len(v) > 63 || v != "" && !labelPart.MatchString(v):
			return invalid("%s value '%s' of '%s' is not valid", what, v, k)
		}
	}
	return nil
}

// mount is one of the driver's configuration.
type mount struct {
	Type     string `json:"type"`
	Source   string `json:"source"`
	Target   string `json:"target"`
	ReadOnly *bool  `json:"read_only"`
	SELinux  string `json:"selinux_label"`
}

// readOnly is the default.
func (m mount) readOnly() bool { return m.ReadOnly == nil || *m.ReadOnly }

type limits struct{ nanoCPUs, memory int64 }

// plan is what the docker driver makes of a request, or why it does not.
func (l *life) plan(req *wire.CreateSandboxRequest) (blueprint, error) {
	template := req.GetSpec().GetTemplate()
	b := blueprint{labels: map[string]string{}}
	if req.GetSpec().GetResourceRequirements().GetGpu() != nil {
		return b, refused("docker GPU sandboxes require CDI, which is not available")
	}
	if template.GetAgentSocket() != "" {
		return b, refused("docker compute driver does not support template.agent_socket")
	}
	if template.GetRuntimeClassName() != "" || len(template.GetAnnotations()) > 0 || template.UserNamespaces != nil {
		return b, refused("docker compute driver does not support template.platform_config")
	}
	for k, v := range template.GetLabels() {
		b.labels[k] = v
	}
	var err error
	if b.limits, err = readLimits(template.GetResources()); err != nil {
		return b, err
	}
	b.mounts, err = l.readMounts(template.GetDriverConfig())
	return b, err
}

var reserved = []string{ //nolint:gochecknoglobals // constant
	"/opt/openshell", "/etc/openshell", "/etc/openshell-tls", "/run/openshell", "/run/openshell-sidecar", "/run/netns", "/var/run/netns",
}

func (l *life) readMounts(config *structpb.Struct) ([]mount, error) {
	block, ok := config.GetFields()["docker"] // that of another driver is not looked at
	if !ok {
		return nil, nil
	}
	if block.GetStructValue() == nil {
		return nil, invalid("driver_config.docker must be an object")
	}
	text, err := block.MarshalJSON()
	if err != nil {
		return nil, invalid("invalid docker driver_config: %v", err)
	}
	var docker struct {
		CDI    []string `json:"cdi_devices"`
		Mounts []mount  `json:"mounts"`
	}
	d := json.NewDecoder(strings.NewReader(string(text)))
	d.DisallowUnknownFields()
	if err := d.Decode(&docker); err != nil {
		return nil, invalid("invalid docker driver_config: %v", err)
	}
	var targets []string
	for _, m := range docker.Mounts {
		switch {
		case m.Type != "bind":
			return nil, invalid("invalid docker driver_config: the gateway for tests has no mounts of type %q", m.Type)
		case l.g.options.NoBindMounts:
			return nil, refused("docker bind mounts require enable_bind_mounts = true in [openshell.drivers.docker]")
		case !path.IsAbs(m.Source) || strings.TrimSpace(m.Source) != m.Source:
			return nil, refused("docker bind mount source '%s' must be an absolute path", m.Source)
		case !path.IsAbs(m.Target) || path.Clean(m.Target) != m.Target || m.Target == "/":
			return nil, refused("mount target '%s' must be a normalized absolute path", m.Target)
		case slices.Contains(targets, m.Target):
			return nil, refused("duplicate mount target '%s'", m.Target)
		}
		for _, dir := range reserved {
			if within(m.Target, dir) || within(dir, m.Target) {
				return nil, refused("mount target '%s' overlaps the reserved path '%s'", m.Target, dir)
			}
		}
		targets = append(targets, m.Target)
	}
	return docker.Mounts, nil
}

// within says whether a path is another one or below it.
func within(name, dir string) bool {
	return name == dir || strings.HasPrefix(name, strings.TrimSuffix(dir, "/")+"/")
}

// readLimits takes strings only, and nothing but limits.
func readLimits(resources *structpb.Struct) (limits, error) {
	var out limits
	elsewhere := refused("docker compute driver does not support template.platform_config")
	for group, value := range resources.GetFields() {
		if group == "requests" {
			return out, refused("docker compute driver does not support resources.requests")
		}
		if group != "limits" || value.GetStructValue() == nil {
			return out, elsewhere
		}
		for what, quantity := range value.GetStructValue().GetFields() {
			text, isText := quantity.GetKind().(*structpb.Value_StringValue)
			if !isText {
				return out, elsewhere
			}
			var err error
			switch what {
			case "cpu":
				out.nanoCPUs, err = cpus(text.StringValue)
			case "memory":
				out.memory, err = bytesOf(text.StringValue)
			default:
				return out, elsewhere
			}
			if err != nil {
				return out, err
			}
		}
	}
	return out, nil
}

func cpus(text string) (int64, error) {
	if milli, ok := strings.CutSuffix(text, "m"); ok {
		if n, err := strconv.ParseInt(milli, 10, 32); err == nil && n > 0 {
			return n * 1e6, nil
		}
	} else if n, err := strconv.ParseFloat(text, 64); err == nil && n > 0 && n < 1e6 {
		return int64(math.Round(n * 1e9)), nil
	}
	return 0, refused("invalid docker cpu_limit '%s'", text)
}

func bytesOf(text string) (int64, error) {
	digits := strings.TrimRight(text, "KMGTPEi")
	factor, known := map[string]float64{
		"": 1, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "Pi": 1 << 50, "Ei": 1 << 60, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18,
	}[text[len(digits):]]
	n, err := strconv.ParseFloat(digits, 64)
	if err != nil || !known || n <= 0 {
		return 0, refused("invalid docker memory_limit '%s'", text)
	}
	return int64(n * factor), nil
}
