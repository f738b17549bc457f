package gateway

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/laufwerk/laufwerk/internal/openshell/wire"
)

// row is a sandbox as the gateway has stored it, and what its present run knows of it. It is changed under g.mu.
type row struct {
	sandbox *wire.Sandbox
	policy  *wire.SandboxPolicy // in force, which the supervisor may have enlarged
	halted  bool                // the gateway itself has stopped the container

	abort     func() // of what brings it up
	busy      bool   // something brings it up or down
	connected bool   // its supervisor answers
	missing   bool   // its container was not there at the last look
}

func (r *row) id() string                      { return r.sandbox.GetMetadata().GetId() }
func (r *row) phase() wire.SandboxPhase        { return r.sandbox.GetStatus().GetPhase() }
func (r *row) snapshot() *wire.Sandbox         { return proto.CloneOf(r.sandbox) }
func (r *row) response() *wire.SandboxResponse { return &wire.SandboxResponse{Sandbox: r.snapshot()} }

// stuck rows are those that only the time of grace ends, when they have no container.
func (r *row) stuck() bool {
	switch r.phase() {
	case wire.SandboxPhase_SANDBOX_PHASE_DELETING, wire.SandboxPhase_SANDBOX_PHASE_ERROR:
		return !r.busy
	case wire.SandboxPhase_SANDBOX_PHASE_PROVISIONING:
		return !r.busy && !r.connected
	default:
		return false
	}
}

// set gives a row its phase, with the condition Ready. ERROR stays. g.mu is held.
func (l *life) set(r *row, phase wire.SandboxPhase, reason, message string) {
	if r.phase() == wire.SandboxPhase_SANDBOX_PHASE_ERROR && phase != wire.SandboxPhase_SANDBOX_PHASE_DELETING {
		return
	}
	ready := "False"
	if phase == wire.SandboxPhase_SANDBOX_PHASE_READY {
		ready = "True"
	}
	r.sandbox.Status.Phase = phase
	r.sandbox.Status.Conditions = []*wire.SandboxCondition{{
		Type: "Ready", Status: ready, Reason: reason, Message: message, LastTransitionTime: time.Now().UTC().Format(time.RFC3339),
	}}
	r.sandbox.Metadata.ResourceVersion++
}

func (l *life) Health(context.Context, *wire.HealthRequest) (*wire.HealthResponse, error) {
	return &wire.HealthResponse{Status: wire.ServiceStatus_SERVICE_STATUS_HEALTHY, Version: l.g.options.Version}, nil
}

func (l *life) GetGatewayInfo(context.Context, *wire.GetGatewayInfoRequest) (*wire.GetGatewayInfoResponse, error) {
	out := &wire.GetGatewayInfoResponse{Status: wire.ServiceStatus_SERVICE_STATUS_HEALTHY, GatewayVersion: l.g.options.Version}
	for _, name := range l.g.options.Drivers {
		out.ComputeDrivers = append(out.ComputeDrivers, &wire.ComputeDriverInfo{Name: name, Capabilities: &wire.ComputeDriverCapabilities{
			DriverName: name, DriverVersion: l.g.back.version(),
		}})
	}
	return out, nil
}

// workspace is the one that is meant; there is none but "default".
func workspace(named string) error {
	if named != "" && named != "default" {
		return status.Errorf(codes.NotFound, "workspace '%s' not found", named)
	}
	return nil
}

func notFound() error { return status.Error(codes.NotFound, "sandbox not found") }

func (l *life) CreateSandbox(ctx context.Context, req *wire.CreateSandboxRequest) (*wire.SandboxResponse, error) {
	if err := l.admit(req); err != nil {
		return nil, err
	}
	made, err := l.plan(req)
	if err != nil {
		return nil, err
	}
	name := req.GetName()
	if name == "" {
		name = "petname-" + random(4)
	}
	sandbox := &wire.Sandbox{
		Metadata: &wire.ObjectMeta{
			Id: newID(), Name: name, CreatedAtMs: time.Now().UnixMilli(), Labels: req.GetLabels(), Annotations: req.GetAnnotations(), Workspace: "default",
		},
		Spec:   proto.CloneOf(req.GetSpec()),
		Status: &wire.SandboxStatus{SandboxName: name, CurrentPolicyVersion: 1, MainProcessInstanceId: newID()},
	}
	if len(sandbox.Spec.Command) == 0 {
		sandbox.Spec.Command, sandbox.Spec.Tty = []string{"/bin/bash", "-l"}, true
	}
	r := &row{sandbox: sandbox, policy: proto.CloneOf(req.GetSpec().GetPolicy()), busy: true}
	if ctx.Err() != nil { // the client has gone: whatever is not begun is not
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	up, cancel := context.WithCancel(l.ctx)
	r.abort = cancel
	if !l.change(func() {
		if l.g.rows[name] != nil {
			err = status.Errorf(codes.AlreadyExists, "sandbox '%s' already exists", name)
			return
		}
		l.g.rows[name] = r
		l.set(r, wire.SandboxPhase_SANDBOX_PHASE_PROVISIONING, "Starting", "the sandbox is being provisioned")
		made.sandbox, made.env = r.snapshot(), l.environment(r)
	}) {
		err = broken()
	}
	if err != nil {
		cancel()
		return nil, err
	}
	l.moment(Stored)
	if ctx.Err() != nil { // its row stays, and nothing provisions it
		cancel()
		l.change(func() { r.busy = false })
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	var told *wire.SandboxResponse
	if !l.change(func() { told = r.response() }) || !l.begins(func() {
		defer cancel()
		l.provision(up, r, made)
	}) {
		cancel()
		return nil, broken()
	}
	return told, nil
}

// provision brings a sandbox up. It ends with READY, with ERROR, or by a deletion, which a request to the engine may outlive:
// the container is there then, and the gateway knows nothing of it.
func (l *life) provision(ctx context.Context, r *row, made blueprint) {
	l.moment(Landing)
	if !l.alive() {
		return // the request was never sent
	}
	if err := l.g.back.create(made); err != nil {
		l.fail(r, err)
		return
	}
	if ctx.Err() != nil {
		return
	}
	if err := l.g.back.start(r.id()); err != nil {
		if ctx.Err() == nil {
			l.fail(r, err)
		}
		return
	}
	l.connect(ctx, r)
}

// connect waits for the supervisor, with which a sandbox is READY.
func (l *life) connect(ctx context.Context, r *row) {
	l.change(func() {
		if r.phase() == wire.SandboxPhase_SANDBOX_PHASE_PROVISIONING {
			l.set(r, wire.SandboxPhase_SANDBOX_PHASE_PROVISIONING, "SupervisorNotConnected", "waiting for the supervisor of the sandbox")
		}
	})
	for ctx.Err() == nil {
		attempt, cancel := context.WithTimeout(ctx, l.g.options.Poll)
		err := l.g.back.connect(attempt, r.id())
		cancel()
		if err == nil {
			break
		}
		seen, err := l.g.back.inspectAll()
		if at := seen[r.id()]; err == nil && at.state == exited {
			l.fail(r, &unfit{"ContainerExited", fmt.Sprintf("the container of the sandbox exited with code %d", at.code)})
			return
		}
	}
	if ctx.Err() != nil {
		return
	}
	l.change(func() {
		if r.phase() != wire.SandboxPhase_SANDBOX_PHASE_PROVISIONING {
			return
		}
		if r.enrich() {
			r.sandbox.Status.CurrentPolicyVersion = 2
		}
		r.busy, r.connected, r.halted = false, true, false
		l.set(r, wire.SandboxPhase_SANDBOX_PHASE_READY, "DependenciesReady", "the sandbox is ready")
	})
}

// fail ends the bringing up of a sandbox, for good.
func (l *life) fail(r *row, err error) {
	why, ok := err.(*unfit) //nolint:errorlint // nobody wraps it
	if !ok {
		why = &unfit{"ContainerCreateFailed", err.Error()}
	}
	l.change(func() {
		if r.phase() != wire.SandboxPhase_SANDBOX_PHASE_DELETING {
			r.busy = false
			l.set(r, wire.SandboxPhase_SANDBOX_PHASE_ERROR, why.reason, why.message)
		}
	})
}

// ended is the end of a main process, which ends its sandbox.
func (l *life) ended(r *row, code int) {
	l.change(func() {
		switch r.phase() {
		case wire.SandboxPhase_SANDBOX_PHASE_READY, wire.SandboxPhase_SANDBOX_PHASE_PROVISIONING:
			r.sandbox.Status.ExitCode = proto.Int32(int32(code)) //nolint:gosec // at most 255
			r.busy = false
			l.set(r, wire.SandboxPhase_SANDBOX_PHASE_ERROR, "MainProcessExited", fmt.Sprintf("the main process exited with code %d", code))
		default:
		}
	})
}

func (l *life) GetSandbox(_ context.Context, req *wire.GetSandboxRequest) (*wire.SandboxResponse, error) {
	if req.GetName() == "" {
		return nil, status.Error(codes.InvalidArgument, "name is required")
	}
	if err := workspace(req.GetWorkspace()); err != nil {
		return nil, err
	}
	l.g.mu.Lock()
	defer l.g.mu.Unlock()
	if r := l.g.rows[req.GetName()]; r != nil {
		return r.response(), nil
	}
	return nil, notFound()
}

func (l *life) ListSandboxes(_ context.Context, req *wire.ListSandboxesRequest) (*wire.ListSandboxesResponse, error) {
	if req.GetAllWorkspaces() && req.GetWorkspace() != "" {
		return nil, status.Error(codes.InvalidArgument, "all_workspaces and workspace exclude each other")
	}
	if err := workspace(req.GetWorkspace()); err != nil {
		return nil, err
	}
	want, err := selector(req.GetLabelSelector())
	if err != nil {
		return nil, err
	}
	l.g.mu.Lock()
	defer l.g.mu.Unlock()
	var rows []*row
	for _, r := range l.g.rows {
		labels, fits := r.sandbox.GetMetadata().GetLabels(), true
		for k, v := range want {
			got, there := labels[k]
			fits = fits && there && got == v
		}
		if fits {
			rows = append(rows, r)
		}
	}
	slices.SortFunc(rows, func(a, b *row) int {
		m, n := a.sandbox.GetMetadata(), b.sandbox.GetMetadata()
		return cmp.Or(cmp.Compare(m.GetCreatedAtMs(), n.GetCreatedAtMs()), strings.Compare(m.GetName(), n.GetName()))
	})
	limit := min(int(req.GetLimit()), 1000)
	if limit == 0 {
		limit = 100
	}
	rows = rows[min(int(req.GetOffset()), len(rows)):]
	out := &wire.ListSandboxesResponse{}
	for _, r := range rows[:min(limit, len(rows))] {
		out.Sandboxes = append(out.Sandboxes, r.snapshot())
	}
	return out, nil
}

// selector reads "key=value,key=value".
func selector(text string) (map[string]string, error) {
	out := map[string]string{}
	for part := range strings.SplitSeq(strings.TrimRight(text, ", "), ",") {
		if part = strings.TrimSpace(part); part == "" && len(out) == 0 && strings.Trim(text, ", ") == "" {
			continue
		}
		k, v, ok := strings.Cut(part, "=")
		if !ok || strings.TrimSpace(k) == "" || strings.ContainsAny(v, "=!") || strings.HasSuffix(k, "!") {
			return nil, status.Errorf(codes.InvalidArgument, "invalid label selector '%s': expected 'key=value'", part)
		}
		out[strings.TrimSpace(k)] = strings.TrimSpace(v)
	}
	if len(out) > 64 {
		return nil, status.Error(codes.InvalidArgument, "label selector exceeds 64 pairs")
	}
	return out, nil
}

// DeleteSandbox goes on when its client has gone.
func (l *life) DeleteSandbox(ctx context.Context, req *wire.DeleteSandboxRequest) (*wire.DeleteSandboxResponse, error) {
	if req.GetName() == "" {
		return nil, status.Error(codes.InvalidArgument, "name is required")
	}
	if err := workspace(req.GetWorkspace()); err != nil {
		return nil, err
	}
	var r *row
	var before *wire.SandboxStatus
	var coming, connected bool
	already := false
	if !l.change(func() {
		if r = l.g.rows[req.GetName()]; r == nil || ctx.Value(forgets{}) != nil {
			return
		}
		if already = r.phase() == wire.SandboxPhase_SANDBOX_PHASE_DELETING; already {
			return
		}
		before, coming, connected = r.snapshot().GetStatus(), r.busy, r.connected
		r.busy, r.connected = true, false
		r.abort()
		r.sandbox.Metadata.DeletionTimestampMs = time.Now().UnixMilli()
		l.set(r, wire.SandboxPhase_SANDBOX_PHASE_DELETING, "Deleting", "the sandbox is being deleted")
	}) {
		return nil, broken()
	}
	switch {
	case r == nil:
		return nil, notFound()
	case already, ctx.Value(forgets{}) != nil:
		return &wire.DeleteSandboxResponse{Deleted: true}, nil
	}
	type outcome struct {
		deleted bool
		err     error
	}
	done := make(chan outcome, 1)
	l.begins(func() {
		l.moment(Removing)
		if !l.alive() {
			return
		}
		found, err := l.g.back.remove(r.id())
		if err != nil {
			l.change(func() {
				r.busy, r.connected = false, connected
				r.sandbox.Metadata.DeletionTimestampMs = 0
				r.sandbox.Metadata.ResourceVersion++
				r.sandbox.Status = before
			})
			done <- outcome{err: status.Errorf(codes.Internal, "delete sandbox failed: %v", err)}
			return
		}
		if !found && !coming {
			l.change(func() { l.drop(r) })
			done <- outcome{}
			return
		}
		done <- outcome{deleted: true}
		l.moment(Vanishing)
		l.change(func() { l.drop(r) })
	})
	select {
	case o := <-done:
		return &wire.DeleteSandboxResponse{Deleted: o.deleted}, o.err
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	case <-l.ctx.Done():
		return nil, broken()
	}
}

func (l *life) GetSandboxConfig(_ context.Context, req *wire.GetSandboxConfigRequest) (*wire.GetSandboxConfigResponse, error) {
	l.g.mu.Lock()
	defer l.g.mu.Unlock()
	r := l.g.byID(req.GetSandboxId())
	if r == nil {
		return nil, notFound()
	}
	out := &wire.GetSandboxConfigResponse{
		Policy: proto.CloneOf(r.policy), Version: r.sandbox.GetStatus().GetCurrentPolicyVersion(), PolicyHash: hash(r.policy),
		PolicySource: wire.PolicySource_POLICY_SOURCE_SANDBOX,
	}
	if l.g.options.GlobalPolicy {
		out.PolicySource = wire.PolicySource_POLICY_SOURCE_GLOBAL
	}
	return out, nil
}

// byID finds a row. g.mu is held.
func (g *Gateway) byID(id string) *row {
	for _, r := range g.rows {
		if r.id() == id {
			return r
		}
	}
	return nil
}

// newID is a random UUID.
func newID() string {
	b := []byte(random(16))
	b[12], b[16] = '4', "89ab"[b[16]&3]
	return fmt.Sprintf("%s-%s-%s-%s-%s", b[:8], b[8:12], b[12:16], b[16:20], b[20:])
}
