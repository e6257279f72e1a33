package openshell

import (
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/wire"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/wire/v00"
)

// dialect00 speaks 0.0.x, which goes by id in one place and by name in another.
type dialect00 struct{}

func (dialect00) generation() Generation { return V00 }

func (dialect00) info() call[Info] {
	out := &v00.GetGatewayInfoResponse{}
	return call[Info]{wire.GetGatewayInfo, &v00.GetGatewayInfoRequest{}, out, func() Info {
		i := Info{Version: word(out.GetGatewayVersion())}
		for _, d := range out.GetComputeDrivers() {
			i.Drivers = append(i.Drivers, Driver{Name: word(d.GetName()), Version: word(d.GetCapabilities().GetDriverVersion())})
		}
		return i
	}}
}

func (dialect00) create(r Request, workspace, attempt string) call[Record] {
	labels := labelsOf(r, attempt)
	in := &v00.CreateSandboxRequest{
		Name:      r.Name,
		Labels:    labels,
		Workspace: workspace,
		Spec: &v00.SandboxSpec{
			Environment: r.Env,
			Command:     r.Command,
			Policy:      v00Policy(r),

			Template: &v00.SandboxTemplate{
				Image: r.Image,
				// The driver puts only these on the container.
				Labels:       labels,
				Resources:    resources(r),
				DriverConfig: driverConfig(r),
			},
		},
	}
	out := &v00.SandboxResponse{}
	return call[Record]{wire.CreateSandbox, in, out, func() Record { return v00Record(out.GetSandbox()) }}
}

// v00Policy is complete: an image may carry one of its own, which would
// otherwise hold.
func v00Policy(r Request) *v00.SandboxPolicy {
	rules := map[string]*v00.NetworkPolicyRule{}
	for i, way := range r.Ways {
		rules[ruleName(i)] = &v00.NetworkPolicyRule{
			Name: ruleName(i),
			Endpoints: []*v00.NetworkEndpoint{{
				Host: way.Host, Port: uint32(way.Port),
				// Opaque, or the gateway would read what is meant for another
				// proxy; enforced, since it would only log otherwise.
				Tls: "skip", Enforcement: "enforce",
			}},
			Binaries: []*v00.NetworkBinary{{Path: way.Program}},
		}
	}
	return &v00.SandboxPolicy{
		Version:         policyVersion,
		Filesystem:      &v00.FilesystemPolicy{IncludeWorkdir: r.Workspace, ReadOnly: r.ReadOnly, ReadWrite: r.ReadWrite},
		Landlock:        &v00.LandlockPolicy{Compatibility: hardRequirement},
		Process:         &v00.ProcessPolicy{RunAsUser: strconv.Itoa(r.UID), RunAsGroup: strconv.Itoa(r.GID)},
		NetworkPolicies: rules,
	}
}

func (dialect00) get(name, workspace string) call[Record] {
	out := &v00.SandboxResponse{}
	return call[Record]{wire.GetSandbox, &v00.GetSandboxRequest{Name: name, Workspace: workspace}, out,
		func() Record { return v00Record(out.GetSandbox()) }}
}

func (dialect00) list(selector, workspace string, p page) call[listing] {
	out := &v00.ListSandboxesResponse{}
	in := &v00.ListSandboxesRequest{Limit: mostPage, Offset: uint32(p.offset), LabelSelector: selector, Workspace: workspace}
	return call[listing]{wire.ListSandboxes, in, out, func() listing {
		l := listing{counted: true}
		for _, s := range out.GetSandboxes() {
			l.records = append(l.records, v00Record(s))
		}
		return l
	}}
}

func (dialect00) remove(ref Ref, workspace string) call[removal] {
	out := &v00.DeleteSandboxResponse{}
	in := &v00.DeleteSandboxRequest{Name: ref.Name, Workspace: workspace}
	return call[removal]{wire.DeleteSandbox, in, out, func() removal {
		if out.GetDeleted() {
			return removalDone
		}
		// Its record is gone, and Docker had no container any more.
		return removalAbsent
	}}
}

func (dialect00) watch(ref Ref, workspace string) (proto.Message, func() watchEvent) {
	in := &v00.WatchSandboxRequest{Id: ref.ID, FollowStatus: true, FollowEvents: true, EventTail: watchTail}
	return in, func() watchEvent {
		e := &v00.SandboxStreamEvent{}
		return watchEvent{out: e, read: func() watched {
			switch p := e.GetPayload().(type) {
			case *v00.SandboxStreamEvent_Sandbox:
				r := v00Record(p.Sandbox)
				return watched{record: &r}
			case *v00.SandboxStreamEvent_Event:
				return watched{step: stepOf(p.Event.GetReason(), p.Event.GetMessage())}
			}
			return watched{}
		}}
	}
}

func (dialect00) exec(ref Ref, workspace string, c Command) execution {
	start := &v00.ExecSandboxRequest{SandboxId: ref.ID, Command: c.Argv, Workdir: c.Dir, Environment: c.Env, Stdin: c.Input}
	if c.TTY != nil {
		start.Tty, start.Cols, start.Rows = true, uint32(c.TTY.Columns), uint32(c.TTY.Rows)
	}
	return execution{
		once:  start,
		start: &v00.ExecSandboxInput{Payload: &v00.ExecSandboxInput_Start{Start: start}},
		stdin: func(b []byte) proto.Message {
			return &v00.ExecSandboxInput{Payload: &v00.ExecSandboxInput_Stdin{Stdin: b}}
		},
		resize: func(s Size) proto.Message {
			return &v00.ExecSandboxInput{Payload: &v00.ExecSandboxInput_Resize{
				Resize: &v00.ExecSandboxWindowResize{Cols: uint32(s.Columns), Rows: uint32(s.Rows)}}}
		},
		event: func() (proto.Message, func() execEvent) {
			e := &v00.ExecSandboxEvent{}
			return e, func() execEvent {
				switch p := e.GetPayload().(type) {
				case *v00.ExecSandboxEvent_Stdout:
					return execEvent{stdout: p.Stdout.GetData()}
				case *v00.ExecSandboxEvent_Stderr:
					return execEvent{stderr: p.Stderr.GetData()}
				case *v00.ExecSandboxEvent_Exit:
					return execEvent{exited: true, code: exitCode(p.Exit.GetExitCode())}
				}
				return execEvent{}
			}
		},
	}
}

func v00Record(s *v00.Sandbox) Record {
	m, st := s.GetMetadata(), s.GetStatus()
	r := Record{
		Ref:       Ref{ID: m.GetId(), Name: m.GetName()},
		Workspace: m.GetWorkspace(),
		Labels:    m.GetLabels(),
		Phase:     v00Phase(st.GetPhase()),
		Instance:  word(st.GetMainProcessInstanceId()),
		Created:   time.UnixMilli(m.GetCreatedAtMs()),
	}
	for _, c := range st.GetConditions() {
		if c.GetType() == readyCondition {
			r.Reason, r.Message = word(c.GetReason()), plain(c.GetMessage())
		}
	}
	if st != nil && st.ExitCode != nil {
		r.Exited, r.ExitCode = true, exitCode(st.GetExitCode())
	}
	return r
}

func v00Phase(p v00.SandboxPhase) Phase {
	switch p {
	case v00.SandboxPhase_SANDBOX_PHASE_PROVISIONING:
		return Provisioning
	case v00.SandboxPhase_SANDBOX_PHASE_READY:
		return ReadyPhase
	case v00.SandboxPhase_SANDBOX_PHASE_ERROR:
		return Failed
	case v00.SandboxPhase_SANDBOX_PHASE_DELETING:
		return Deleting
	case v00.SandboxPhase_SANDBOX_PHASE_STOPPING:
		return Stopping
	case v00.SandboxPhase_SANDBOX_PHASE_STOPPED:
		return Stopped
	case v00.SandboxPhase_SANDBOX_PHASE_STARTING:
		return Starting
	}
	return Unclear
}
