//go:build linux

package gatewaytest

import (
	"context"
	"io"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/product"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/wire"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/wire/v01"
)

// face01 speaks 0.1.x.
type face01 struct{ g *Gateway }

var service01 = &grpc.ServiceDesc{
	ServiceName: product.Service,
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{
		unary(wire.Health, func(f *face01, _ context.Context, _ *v01.HealthRequest) (*v01.HealthResponse, error) {
			f.g.mu.Lock()
			defer f.g.mu.Unlock()
			return &v01.HealthResponse{Status: v01.ServiceStatus_SERVICE_STATUS_HEALTHY, Version: f.g.version}, nil
		}),
		unary(wire.GetGatewayInfo, func(f *face01, _ context.Context, _ *v01.GetGatewayInfoRequest) (*v01.GetGatewayInfoResponse, error) {
			return &v01.GetGatewayInfoResponse{Status: v01.ServiceStatus_SERVICE_STATUS_HEALTHY, GatewayVersion: f.g.o.Version,
				ComputeDrivers: []*v01.ComputeDriverInfo{{Name: f.g.o.Driver, Capabilities: &v01.ComputeDriverCapabilities{DriverName: f.g.o.Driver, DriverVersion: "double"}}}}, nil
		}),
		unary(wire.CreateSandbox, (*face01).create),
		unary(wire.GetSandbox, (*face01).get),
		unary(wire.ListSandboxes, (*face01).list),
		unary(wire.DeleteSandbox, (*face01).remove),
	},
	Streams: []grpc.StreamDesc{
		stream(wire.WatchSandbox, false, (*face01).watch),
		stream(wire.ExecOnce, false, (*face01).execOnce),
		stream(wire.Exec, true, (*face01).exec),
	},
}

func (f *face01) create(_ context.Context, in *v01.CreateSandboxRequest) (*v01.SandboxResponse, error) {
	spec := in.GetSpec()
	if spec == nil {
		return nil, status.Error(codes.InvalidArgument, "spec is required")
	}
	r := Request{Name: in.GetName(), Workspace: in.GetWorkspaceScope().GetWorkspace(), Image: spec.GetTemplate().GetImage(), Labels: in.GetLabels(),
		TemplateLabels: spec.GetTemplate().GetLabels(), Env: spec.GetEnvironment(), Command: spec.GetCommand(),
		Mounts: mountsOf(spec.GetTemplate().GetDriverConfig()), RequestID: in.GetRequestId()}
	r.CPU, r.Memory = limitsOf(spec.GetTemplate().GetResources())
	if p := spec.GetPolicy(); p != nil {
		r.Policy = Policy{Given: true, Workdir: p.GetFilesystem().GetIncludeWorkdir(), ReadOnly: p.GetFilesystem().GetReadOnly(),
			ReadWrite: p.GetFilesystem().GetReadWrite(), Landlock: p.GetLandlock().GetCompatibility(),
			User: p.GetProcess().GetRunAsUser(), Group: p.GetProcess().GetRunAsGroup()}
		for _, rule := range p.GetNetworkPolicies() {
			var programs []string
			for _, b := range rule.GetBinaries() {
				programs = append(programs, b.GetPath())
			}
			for _, e := range rule.GetEndpoints() {
				r.Policy.Rules = append(r.Policy.Rules, Rule{Host: e.GetHost(), Port: e.GetPort(), Programs: programs,
					Skip: e.GetTls() == v01.NetworkTlsMode_NETWORK_TLS_MODE_SKIP, Enforce: e.GetEnforcement() == v01.NetworkEnforcementMode_NETWORK_ENFORCEMENT_MODE_ENFORCE})
			}
		}
	}
	b, err := f.g.create(r)
	if err != nil {
		return nil, err
	}
	return &v01.SandboxResponse{Sandbox: f.show(b)}, nil
}

func (f *face01) get(_ context.Context, in *v01.GetSandboxRequest) (*v01.SandboxResponse, error) {
	b, err := f.g.byName(in.GetWorkspaceScope().GetWorkspace(), in.GetName())
	if err != nil {
		return nil, err
	}
	return &v01.SandboxResponse{Sandbox: f.show(b)}, nil
}

func (f *face01) list(_ context.Context, in *v01.ListSandboxesRequest) (*v01.ListSandboxesResponse, error) {
	workspace := in.GetWorkspaceScope().GetWorkspace()
	size, at := int(in.GetPageSize()), 0
	if workspace == "" || size < 0 {
		return nil, status.Error(codes.InvalidArgument, "workspace_scope is required, and page_size is not negative")
	}
	if size == 0 {
		size = 100
	}
	if token := in.GetPageToken(); token != "" {
		var err error
		if at, err = strconv.Atoi(token); err != nil || at < 0 {
			return nil, status.Error(codes.InvalidArgument, "invalid page_token")
		}
	}
	found, err := f.g.list(workspace, in.GetLabelSelector())
	if err != nil {
		return nil, err
	}
	out := &v01.ListSandboxesResponse{}
	for _, b := range found[min(at, len(found)):min(at+size, len(found))] {
		out.Sandboxes = append(out.Sandboxes, f.show(b))
	}
	if at+size < len(found) {
		out.NextPageToken = strconv.Itoa(at + size)
	}
	return out, nil
}

func (f *face01) remove(_ context.Context, in *v01.DeleteSandboxRequest) (*v01.DeleteSandboxResponse, error) {
	b, err := f.g.byName(in.GetWorkspaceScope().GetWorkspace(), in.GetName())
	if status.Code(err) == codes.NotFound && in.GetAllowMissing() {
		return &v01.DeleteSandboxResponse{Outcome: v01.DeletionOutcome_DELETION_OUTCOME_ALREADY_ABSENT}, nil
	}
	if err != nil {
		return nil, err
	}
	f.g.remove(b)
	return &v01.DeleteSandboxResponse{Outcome: v01.DeletionOutcome_DELETION_OUTCOME_ACCEPTED, SandboxId: b.id}, nil
}

func (f *face01) watch(s grpc.ServerStream) error {
	in := &v01.WatchSandboxRequest{}
	if err := s.RecvMsg(in); err != nil {
		return err
	}
	b, err := f.g.byName(in.GetWorkspaceScope().GetWorkspace(), in.GetSandbox())
	if err != nil {
		return err
	}
	return f.g.watch(s.Context(), b, in.GetFollowStatus(), in.GetFollowEvents(), func(b *box, st *step) error {
		e := &v01.SandboxStreamEvent{}
		if b != nil {
			e.Payload = &v01.SandboxStreamEvent_Sandbox{Sandbox: f.show(b)}
		} else {
			e.Payload = &v01.SandboxStreamEvent_Event{Event: &v01.PlatformEvent{Source: "docker", Type: "Normal", Reason: st.reason, Message: st.message}}
		}
		return s.SendMsg(e)
	})
}

func (f *face01) execOnce(s grpc.ServerStream) error {
	in := &v01.ExecSandboxRequest{}
	if err := s.RecvMsg(in); err != nil {
		return err
	}
	return f.run(s, in, nil)
}

func (f *face01) exec(s grpc.ServerStream) error {
	first := &v01.ExecSandboxInput{}
	if err := s.RecvMsg(first); err != nil {
		return status.Error(codes.InvalidArgument, "empty stream: expected start message")
	}
	start, ok := first.GetPayload().(*v01.ExecSandboxInput_Start)
	if !ok {
		return status.Error(codes.InvalidArgument, "first message must be a start payload")
	}
	messages := make(chan message)
	go func() {
		defer close(messages)
		for {
			in := &v01.ExecSandboxInput{}
			err := s.RecvMsg(in)
			m := message{}
			switch p := in.GetPayload().(type) {
			case *v01.ExecSandboxInput_Stdin:
				m.input = append([]byte{}, p.Stdin...)
			case *v01.ExecSandboxInput_Resize:
				m.cols, m.rows = p.Resize.GetCols(), p.Resize.GetRows()
			}
			if err != nil && err != io.EOF {
				return
			}
			select {
			case messages <- m:
			case <-s.Context().Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return f.run(s, start.Start, messages)
}

func (f *face01) run(s grpc.ServerStream, in *v01.ExecSandboxRequest, messages <-chan message) error {
	b, err := f.g.byName(in.GetWorkspaceScope().GetWorkspace(), in.GetSandbox())
	if err != nil {
		return err
	}
	c := command{argv: in.GetCommand(), dir: in.GetWorkdir(), env: in.GetEnvironment(), tty: in.GetTty(), cols: in.GetCols(), rows: in.GetRows(),
		input: in.GetStdin(), messages: messages, plain: in.GetNoLoginShell(), within: in.GetExecutionTimeout().AsDuration()}
	return f.g.run(s.Context(), b, c, func(stdout, stderr []byte, exit *int32) error {
		e := &v01.ExecSandboxEvent{}
		switch {
		case exit != nil:
			e.Payload = &v01.ExecSandboxEvent_Exit{Exit: &v01.ExecSandboxExit{ExitCode: *exit}}
		case stderr != nil:
			e.Payload = &v01.ExecSandboxEvent_Stderr{Stderr: &v01.ExecSandboxStderr{Data: stderr}}
		default:
			e.Payload = &v01.ExecSandboxEvent_Stdout{Stdout: &v01.ExecSandboxStdout{Data: stdout}}
		}
		return s.SendMsg(e)
	})
}

// show is a record as this generation shows it.
func (f *face01) show(b *box) *v01.Sandbox {
	v := f.g.view(b)
	st := &v01.SandboxStatus{Phase: v01.SandboxPhase(v.phase), MainProcessInstanceId: v.instance, ExitCode: v.exit}
	condition := &v01.SandboxCondition{Type: "Ready", Status: "False", Reason: v.reason, Message: v.message}
	if v.phase == ready {
		condition.Status = "True"
	}
	st.Conditions = append(st.Conditions, condition)
	return &v01.Sandbox{Status: st, Metadata: &v01.ObjectMeta{Id: v.id, Name: v.Name, Labels: v.Labels, Workspace: v.Workspace, CreatedTime: timestamppb.New(v.created)}}
}
