//go:build linux

package gatewaytest

import (
	"context"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/product"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/wire"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/wire/v00"
)

// face00 speaks 0.0.x.
type face00 struct{ g *Gateway }

var service00 = &grpc.ServiceDesc{
	ServiceName: product.Service,
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{
		unary(wire.Health, func(f *face00, _ context.Context, _ *v00.HealthRequest) (*v00.HealthResponse, error) {
			f.g.mu.Lock()
			defer f.g.mu.Unlock()
			return &v00.HealthResponse{Status: v00.ServiceStatus_SERVICE_STATUS_HEALTHY, Version: f.g.version}, nil
		}),
		unary(wire.GetGatewayInfo, func(f *face00, _ context.Context, _ *v00.GetGatewayInfoRequest) (*v00.GetGatewayInfoResponse, error) {
			return &v00.GetGatewayInfoResponse{Status: v00.ServiceStatus_SERVICE_STATUS_HEALTHY, GatewayVersion: f.g.o.Version,
				ComputeDrivers: []*v00.ComputeDriverInfo{{Name: f.g.o.Driver, Capabilities: &v00.ComputeDriverCapabilities{DriverName: f.g.o.Driver, DriverVersion: "double"}}}}, nil
		}),
		unary(wire.CreateSandbox, (*face00).create),
		unary(wire.GetSandbox, (*face00).get),
		unary(wire.ListSandboxes, (*face00).list),
		unary(wire.DeleteSandbox, (*face00).remove),
	},
	Streams: []grpc.StreamDesc{
		stream(wire.WatchSandbox, false, (*face00).watch),
		stream(wire.ExecOnce, false, (*face00).execOnce),
		stream(wire.Exec, true, (*face00).exec),
	},
}

func (f *face00) create(_ context.Context, in *v00.CreateSandboxRequest) (*v00.SandboxResponse, error) {
	spec := in.GetSpec()
	if spec == nil {
		return nil, status.Error(codes.InvalidArgument, "spec is required")
	}
	r := Request{Name: in.GetName(), Workspace: in.GetWorkspace(), Image: spec.GetTemplate().GetImage(), Labels: in.GetLabels(),
		TemplateLabels: spec.GetTemplate().GetLabels(), Env: spec.GetEnvironment(), Command: spec.GetCommand(),
		Mounts: mountsOf(spec.GetTemplate().GetDriverConfig())}
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
					Skip: e.GetTls() == "skip", Enforce: e.GetEnforcement() == "enforce"})
			}
		}
	}
	b, err := f.g.create(r)
	if err != nil {
		return nil, err
	}
	return &v00.SandboxResponse{Sandbox: f.show(b)}, nil
}

func (f *face00) get(_ context.Context, in *v00.GetSandboxRequest) (*v00.SandboxResponse, error) {
	b, err := f.g.byName(or(in.GetWorkspace(), product.DefaultWorkspace), in.GetName())
	if err != nil {
		return nil, err
	}
	return &v00.SandboxResponse{Sandbox: f.show(b)}, nil
}

func (f *face00) list(_ context.Context, in *v00.ListSandboxesRequest) (*v00.ListSandboxesResponse, error) {
	found, err := f.g.list(in.GetWorkspace(), in.GetLabelSelector())
	if err != nil {
		return nil, err
	}
	out := &v00.ListSandboxesResponse{}
	for i, b := range found {
		if i >= int(in.GetOffset()) && (in.GetLimit() == 0 || len(out.Sandboxes) < int(in.GetLimit())) {
			out.Sandboxes = append(out.Sandboxes, f.show(b))
		}
	}
	return out, nil
}

func (f *face00) remove(_ context.Context, in *v00.DeleteSandboxRequest) (*v00.DeleteSandboxResponse, error) {
	b, err := f.g.byName(or(in.GetWorkspace(), product.DefaultWorkspace), in.GetName())
	if err != nil {
		return nil, err
	}
	// Not deleted is what a real one says whose container somebody else took away.
	there := f.g.driver.there(b)
	f.g.remove(b)
	return &v00.DeleteSandboxResponse{Deleted: there}, nil
}

func (f *face00) watch(s grpc.ServerStream) error {
	in := &v00.WatchSandboxRequest{}
	if err := s.RecvMsg(in); err != nil {
		return err
	}
	b, err := f.g.byID(in.GetId())
	if err != nil {
		return err
	}
	return f.g.watch(s.Context(), b, in.GetFollowStatus(), in.GetFollowEvents(), func(b *box, st *step) error {
		e := &v00.SandboxStreamEvent{}
		if b != nil {
			e.Payload = &v00.SandboxStreamEvent_Sandbox{Sandbox: f.show(b)}
		} else {
			e.Payload = &v00.SandboxStreamEvent_Event{Event: &v00.PlatformEvent{Source: "docker", Type: "Normal", Reason: st.reason, Message: st.message}}
		}
		return s.SendMsg(e)
	})
}

func (f *face00) execOnce(s grpc.ServerStream) error {
	in := &v00.ExecSandboxRequest{}
	if err := s.RecvMsg(in); err != nil {
		return err
	}
	return f.run(s, in, nil)
}

func (f *face00) exec(s grpc.ServerStream) error {
	first := &v00.ExecSandboxInput{}
	if err := s.RecvMsg(first); err != nil {
		return status.Error(codes.InvalidArgument, "empty stream: expected start message")
	}
	start, ok := first.GetPayload().(*v00.ExecSandboxInput_Start)
	if !ok {
		return status.Error(codes.InvalidArgument, "first message must be a start payload")
	}
	messages := make(chan message)
	go func() {
		defer close(messages)
		for {
			in := &v00.ExecSandboxInput{}
			err := s.RecvMsg(in)
			m := message{}
			switch p := in.GetPayload().(type) {
			case *v00.ExecSandboxInput_Stdin:
				m.input = append([]byte{}, p.Stdin...)
			case *v00.ExecSandboxInput_Resize:
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

func (f *face00) run(s grpc.ServerStream, in *v00.ExecSandboxRequest, messages <-chan message) error {
	b, err := f.g.byID(in.GetSandboxId())
	if err != nil {
		return err
	}
	c := command{argv: in.GetCommand(), dir: in.GetWorkdir(), env: in.GetEnvironment(), tty: in.GetTty(), cols: in.GetCols(), rows: in.GetRows(),
		input: in.GetStdin(), messages: messages, within: time.Duration(in.GetTimeoutSeconds()) * time.Second}
	return f.g.run(s.Context(), b, c, func(stdout, stderr []byte, exit *int32) error {
		e := &v00.ExecSandboxEvent{}
		switch {
		case exit != nil:
			e.Payload = &v00.ExecSandboxEvent_Exit{Exit: &v00.ExecSandboxExit{ExitCode: *exit}}
		case stderr != nil:
			e.Payload = &v00.ExecSandboxEvent_Stderr{Stderr: &v00.ExecSandboxStderr{Data: stderr}}
		default:
			e.Payload = &v00.ExecSandboxEvent_Stdout{Stdout: &v00.ExecSandboxStdout{Data: stdout}}
		}
		return s.SendMsg(e)
	})
}

// show is a record as this generation shows it.
func (f *face00) show(b *box) *v00.Sandbox {
	v := f.g.view(b)
	st := &v00.SandboxStatus{Phase: v00.SandboxPhase(v.phase), MainProcessInstanceId: v.instance, ExitCode: v.exit}
	condition := &v00.SandboxCondition{Type: "Ready", Status: "False", Reason: v.reason, Message: v.message}
	if v.phase == ready {
		condition.Status = "True"
	}
	st.Conditions = append(st.Conditions, condition)
	return &v00.Sandbox{Status: st, Metadata: &v00.ObjectMeta{Id: v.id, Name: v.Name, Labels: v.Labels, Workspace: v.Workspace, CreatedAtMs: v.created.UnixMilli()}}
}
