package openshell

import (
	"strconv"

	"google.golang.org/protobuf/proto"

	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/wire"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/wire/v01"
)

// dialect01 speaks 0.1.x, which goes by name and workspace everywhere.
type dialect01 struct{}

func (dialect01) generation() Generation { return V01 }

func (dialect01) info() call[Info] {
	out := &v01.GetGatewayInfoResponse{}
	return call[Info]{wire.GetGatewayInfo, &v01.GetGatewayInfoRequest{}, out, func() Info {
		i := Info{Version: word(out.GetGatewayVersion())}
		for _, d := range out.GetComputeDrivers() {
			i.Drivers = append(i.Drivers, Driver{Name: word(d.GetName()), Version: word(d.GetCapabilities().GetDriverVersion())})
		}
		return i
	}}
}

func (dialect01) create(r Request, workspace, attempt string) call[Record] {
	labels := labelsOf(r, attempt)
	in := &v01.CreateSandboxRequest{
		Name:           r.Name,
		Labels:         labels,
		WorkspaceScope: in01(workspace),
		// A gateway that gets this twice answers the second as it did the first.
		RequestId: attempt,
		Spec: &v01.SandboxSpec{
			Environment:   r.Env,
			Command:       r.Command,
			Policy:        v01Policy(r),
			RestartPolicy: v01.SandboxRestartPolicy_SANDBOX_RESTART_POLICY_NEVER,
			Template: &v01.SandboxTemplate{
				Image: r.Image,
				// The driver puts only these on the container.
				Labels:       labels,
				Resources:    resources(r),
				DriverConfig: driverConfig(r),
			},
		},
	}
	out := &v01.SandboxResponse{}
	return call[Record]{wire.CreateSandbox, in, out, func() Record { return v01Record(out.GetSandbox()) }}
}

// v01Policy is complete: an image may carry one of its own, which would
// otherwise hold.
func v01Policy(r Request) *v01.SandboxPolicy {
	rules := map[string]*v01.NetworkPolicyRule{}
	for i, way := range r.Ways {
		rules[ruleName(i)] = &v01.NetworkPolicyRule{
			Name: ruleName(i),
			Endpoints: []*v01.NetworkEndpoint{{
				Host: way.Host, Port: uint32(way.Port),
				// Opaque, or the gateway would read what is meant for another
				// proxy; enforced, since it would only log otherwise.
				Tls: v01.NetworkTlsMode_NETWORK_TLS_MODE_SKIP, Enforcement: v01.NetworkEnforcementMode_NETWORK_ENFORCEMENT_MODE_ENFORCE,
			}},
			Binaries: []*v01.NetworkBinary{{Path: way.Program}},
		}
	}
	return &v01.SandboxPolicy{
		Version:         policyVersion,
		Filesystem:      &v01.FilesystemPolicy{IncludeWorkdir: r.Workspace, ReadOnly: r.ReadOnly, ReadWrite: r.ReadWrite},
		Landlock:        &v01.LandlockPolicy{Compatibility: hardRequirement},
		Process:         &v01.ProcessPolicy{RunAsUser: strconv.Itoa(r.UID), RunAsGroup: strconv.Itoa(r.GID)},
		NetworkPolicies: rules,
	}
}

func (dialect01) get(name, workspace string) call[Record] {
	out := &v01.SandboxResponse{}
	return call[Record]{wire.GetSandbox, &v01.GetSandboxRequest{Name: name, WorkspaceScope: in01(workspace)}, out,
		func() Record { return v01Record(out.GetSandbox()) }}
}

func (dialect01) list(selector, workspace string, p page) call[listing] {
	out := &v01.ListSandboxesResponse{}
	in := &v01.ListSandboxesRequest{PageSize: mostPage, PageToken: p.token, LabelSelector: selector, WorkspaceScope: in01(workspace)}
	return call[listing]{wire.ListSandboxes, in, out, func() listing {
		l := listing{token: out.GetNextPageToken()}
		for _, s := range out.GetSandboxes() {
			l.records = append(l.records, v01Record(s))
		}
		return l
	}}
}

func (dialect01) remove(ref Ref, workspace string) call[removal] {
	out := &v01.DeleteSandboxResponse{}
	in := &v01.DeleteSandboxRequest{Name: ref.Name, WorkspaceScope: in01(workspace), AllowMissing: true}
	return call[removal]{wire.DeleteSandbox, in, out, func() removal {
		switch out.GetOutcome() {
		case v01.DeletionOutcome_DELETION_OUTCOME_COMPLETED, v01.DeletionOutcome_DELETION_OUTCOME_ACCEPTED:
			return removalDone
		case v01.DeletionOutcome_DELETION_OUTCOME_ALREADY_ABSENT:
			return removalAbsent
		}
		return removalUnsaid
	}}
}

func (dialect01) watch(ref Ref, workspace string) (proto.Message, func() watchEvent) {
	in := &v01.WatchSandboxRequest{Sandbox: ref.Name, WorkspaceScope: in01(workspace), FollowStatus: true, FollowEvents: true, EventTail: watchTail}
	return in, func() watchEvent {
		e := &v01.SandboxStreamEvent{}
		return watchEvent{out: e, read: func() watched {
			switch p := e.GetPayload().(type) {
			case *v01.SandboxStreamEvent_Sandbox:
				r := v01Record(p.Sandbox)
				return watched{record: &r}
			case *v01.SandboxStreamEvent_Event:
				return watched{step: stepOf(p.Event.GetReason(), p.Event.GetMessage())}
			}
			return watched{}
		}}
	}
}

func (dialect01) exec(ref Ref, workspace string, c Command) execution {
	start := &v01.ExecSandboxRequest{Sandbox: ref.Name, WorkspaceScope: in01(workspace), NoLoginShell: true, Command: c.Argv, Workdir: c.Dir, Environment: c.Env, Stdin: c.Input}
	if c.TTY != nil {
		start.Tty, start.Cols, start.Rows = true, uint32(c.TTY.Columns), uint32(c.TTY.Rows)
	}
	return execution{
		once:  start,
		start: &v01.ExecSandboxInput{Payload: &v01.ExecSandboxInput_Start{Start: start}},
		stdin: func(b []byte) proto.Message {
			return &v01.ExecSandboxInput{Payload: &v01.ExecSandboxInput_Stdin{Stdin: b}}
		},
		resize: func(s Size) proto.Message {
			return &v01.ExecSandboxInput{Payload: &v01.ExecSandboxInput_Resize{
				Resize: &v01.ExecSandboxWindowResize{Cols: uint32(s.Columns), Rows: uint32(s.Rows)}}}
		},
		event: func() (proto.Message, func() execEvent) {
			e := &v01.ExecSandboxEvent{}
			return e, func() execEvent {
				switch p := e.GetPayload().(type) {
				case *v01.ExecSandboxEvent_Stdout:
					return execEvent{stdout: p.Stdout.GetData()}
				case *v01.ExecSandboxEvent_Stderr:
					return execEvent{stderr: p.Stderr.GetData()}
				case *v01.ExecSandboxEvent_Exit:
					return execEvent{exited: true, code: exitCode(p.Exit.GetExitCode())}
				}
				return execEvent{}
			}
		},
	}
}

func v01Record(s *v01.Sandbox) Record {
	m, st := s.GetMetadata(), s.GetStatus()
	r := Record{
		Ref:       Ref{ID: m.GetId(), Name: m.GetName()},
		Workspace: m.GetWorkspace(),
		Labels:    m.GetLabels(),
		Phase:     v01Phase(st.GetPhase()),
		Instance:  word(st.GetMainProcessInstanceId()),
		Created:   m.GetCreatedTime().AsTime(),
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

func v01Phase(p v01.SandboxPhase) Phase {
	switch p {
	case v01.SandboxPhase_SANDBOX_PHASE_PROVISIONING:
		return Provisioning
	case v01.SandboxPhase_SANDBOX_PHASE_READY:
		return ReadyPhase
	case v01.SandboxPhase_SANDBOX_PHASE_ERROR:
		return Failed
	case v01.SandboxPhase_SANDBOX_PHASE_DELETING:
		return Deleting
	case v01.SandboxPhase_SANDBOX_PHASE_STOPPING:
		return Stopping
	case v01.SandboxPhase_SANDBOX_PHASE_STOPPED:
		return Stopped
	case v01.SandboxPhase_SANDBOX_PHASE_STARTING:
		return Starting
	case v01.SandboxPhase_SANDBOX_PHASE_COMPLETED:
		return Completed
	}
	return Unclear
}

func in01(workspace string) *v01.WorkspaceSelector {
	return &v01.WorkspaceSelector{Selection: &v01.WorkspaceSelector_Workspace{Workspace: workspace}}
}
