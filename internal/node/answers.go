package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/mojoup/mojoup-node/internal/config"
	"github.com/mojoup/mojoup-node/internal/fault"
	"github.com/mojoup/mojoup-node/internal/session"
	"github.com/mojoup/mojoup-node/internal/store"
	"github.com/mojoup/mojoup-node/pkg/capability"
	"github.com/mojoup/mojoup-node/pkg/console"
	"github.com/mojoup/mojoup-node/pkg/console/api"
)

// Status answers what the node is and which sessions live. It does not wait for
// the checks of the start: while they run the verdict is pending. Only a deputy
// does for a moment, since it was started for the very question.
func (n *Node) Status(ctx context.Context, c console.Caller) (api.Status, error) {
	if err := n.mayLook(c); err != nil {
		return api.Status{}, err
	}
	if n.o.Deputy != nil {
		n.awaitVerdict(ctx)
	}
	entries, err := n.leftovers(ctx)
	if err != nil {
		return api.Status{}, err
	}
	left := []string{}
	for _, e := range entries {
		left = append(left, strings.TrimSpace(fmt.Sprintf("session %s: %s %s", e.Session, e.Kind, e.Path)))
	}
	url, why := n.page.shown()
	n.mu.Lock()
	defer n.mu.Unlock()
	return api.Status{
		Node: api.Node{
			Running: true, PID: os.Getpid(), Since: n.since, Version: n.o.Version,
			Socket: n.socket(), Log: n.o.Log, Linger: n.o.Linger > 0 && n.o.Deputy == nil, System: n.o.Deputy != nil,
			Page: url, NoPage: why, Image: n.o.Settings.String(config.SandboxImage), Gateway: n.o.Settings.String(config.OpenShellGateway),
			Private: n.o.Settings.Prefixes(config.NetworkPrivate),
		},
		Verdict:  n.verdict(),
		Sessions: slices.DeleteFunc(n.liveLocked(), waits),
		Queue:    n.queue(),
		Repaired: n.repaired, Leftovers: left,
	}, nil
}

// socket is the one by which people reach this node.
func (n *Node) socket() string {
	if n.o.Deputy != nil {
		return n.o.Deputy.Socket
	}
	return n.o.Paths.Socket()
}

// verdictWithin is how long a question may wait for the checks of the start.
const verdictWithin = 3 * time.Second

func (n *Node) awaitVerdict(ctx context.Context) {
	late := time.NewTimer(verdictWithin)
	defer late.Stop()
	select {
	case <-n.examined:
	case <-late.C:
	case <-ctx.Done():
	}
}

func (n *Node) verdict() api.Verdict {
	select {
	case <-n.examined:
	default:
		return api.Verdict{Engine: string(n.configured()), Sentence: StillExamined, Pending: true}
	}
	return ShowVerdict(n.report.Verdict, n.o.Settings.Bool(config.RolesSandbox))
}

// StillExamined is the verdict of a node that has none yet.
const StillExamined = "the checks of this start still run"

// ShowVerdict is a verdict as status and page show it.
func ShowVerdict(v capability.Verdict, offered bool) api.Verdict {
	out := api.Verdict{Able: v.Able, Sentence: v.Sentence, Reason: v.Reason, Engine: v.Engine, Chosen: v.Chosen}
	if v.Able && !offered {
		out.Note = capability.NotOffered
	}
	return out
}

func waits(s api.Session) bool { return s.State == string(session.Queued) }

func (n *Node) liveLocked() []api.Session {
	out := make([]api.Session, 0, len(n.live))
	for _, l := range n.live {
		if s := l.show(); s.ID != "" { // else it has no name yet
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b api.Session) int { return a.Since.Compare(b.Since) })
	return out
}

// working are the sessions that have begun in a working tree and not ended.
func (n *Node) working(top string) (out []session.ID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range n.liveLocked() {
		if s.Repository == top && session.State(s.State).Live() && s.State != string(session.Stopping) {
			out = append(out, session.ID(s.ID))
		}
	}
	return out
}

// listed is how many past sessions a list has at most.
const listed = 200

// Sessions lists live or past sessions.
func (n *Node) Sessions(ctx context.Context, c console.Caller, past bool) ([]api.Session, error) {
	if err := n.mayLook(c); err != nil {
		return nil, err
	}
	if !past {
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.liveLocked(), nil
	}
	return n.past(ctx)
}

// Session shows one session, live or past, with its last thousand verdicts.
func (n *Node) Session(ctx context.Context, c console.Caller, id string) (api.Session, error) {
	if err := n.mayLook(c); err != nil {
		return api.Session{}, err
	}
	sid, err := n.called(ctx, id)
	if err != nil {
		return api.Session{}, err
	}
	s, err := n.find(ctx, sid)
	if err != nil {
		return api.Session{}, err
	}
	n.flush(ctx)
	if err := detail(ctx, n.store, &s); err != nil {
		return api.Session{}, err
	}
	if n.unwritable.Load() {
		s.Notices = append(s.Notices, "some verdicts may be missing here: "+unrecorded)
	}
	return s, nil
}

func (n *Node) find(ctx context.Context, id session.ID) (api.Session, error) {
	n.mu.Lock()
	l := n.live[id]
	n.mu.Unlock()
	if l != nil {
		if s := l.show(); s.ID != "" {
			s.Refused = l.refused()
			return s, nil
		}
	}
	row, err := n.rowOf(ctx, id)
	if _, ok := errors.AsType[*store.NotFoundError](err); ok {
		return api.Session{}, fault.UnknownSession(string(id))
	}
	return row.API(), err
}

// Stop asks a session to end. One that has ended is done.
func (n *Node) Stop(ctx context.Context, c console.Caller, id string) error {
	if err := n.mayLook(c); err != nil {
		return err
	}
	sid, l, err := n.carried(ctx, id)
	if err != nil {
		return err
	}
	if l != nil {
		l.stop(errStopped)
		return nil
	}
	_, err = n.find(ctx, sid)
	return err
}

// Shutdown asks the node to end, its sessions first.
func (n *Node) Shutdown(_ context.Context, c console.Caller) error {
	if err := n.mayAsk(c); err != nil {
		return err
	}
	if n.o.Deputy != nil {
		return &api.Problem{Code: "not-allowed", Sentence: "this node serves other people too: root ends it", Exit: 1,
			Hint: "`mojoup-node session stop ID` ends a session of yours"}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.end(errAsked)
	return nil
}
