package residue

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"sync"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// A look is one look.
type look struct {
	o       Options
	nodes   []*node
	parents map[int]int
	seen    map[Thing]bool

	mu     sync.Mutex // guards report.Unknown while nodes are asked
	report Report
}

func (o Options) look(ctx context.Context) Report {
	l := &look{o: o, seen: map[Thing]bool{}, report: Report{Left: []Thing{}, Nodes: []Node{}, Unknown: []string{}}}
	// First the marks, then who owns them: what begins in between has no mark
	// yet, and what ends in between is looked at again.
	marks := l.marks(ctx)
	l.findNodes(ctx)
	for _, n := range l.nodes {
		l.journal(ctx, n)
		l.places(n)
		l.report.Nodes = append(l.report.Nodes, n.Node)
	}
	l.unowned(marks)
	l.mounts()
	slices.SortFunc(l.report.Left, func(a, b Thing) int {
		return cmp.Or(cmp.Compare(a.Session, b.Session), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Path, b.Path))
	})
	return l.report
}

// found adds a thing once, however many ways lead to it.
func (l *look) found(t Thing) {
	key := Thing{Kind: t.Kind, Path: t.Path, PID: t.PID}
	if t.Kind == KindUndo || t.Kind == KindSession {
		key.Session = t.Session
	}
	if !l.seen[key] {
		l.seen[key] = true
		l.report.Left = append(l.report.Left, t)
	}
}

func (l *look) unknown(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if said := err.Error(); !slices.Contains(l.report.Unknown, said) {
		l.report.Unknown = append(l.report.Unknown, said)
	}
}

// marks are what engines find anywhere.
func (l *look) marks(ctx context.Context) (out []sandbox.Trace) {
	for _, name := range sorted(l.o.Engines) {
		w, ok := l.o.Engines[name].(sandbox.Witness)
		if !ok {
			continue
		}
		traces, err := w.Marked(ctx)
		if err != nil {
			l.unknown(err)
		}
		out = append(out, traces...)
	}
	return out
}

// unowned adds those marks that nobody alive stands for.
func (l *look) unowned(marks []sandbox.Trace) {
	owned := l.owned(marks)
	for _, m := range marks {
		if owned.has(m) || l.descends(m.PID) || slices.ContainsFunc(m.Holds, l.descends) {
			continue
		}
		by := l.whose(m.Sandbox)
		if l.o.OwnOnly && (by == nil || !by.own) {
			continue
		}
		t := thing(m)
		if by != nil {
			t.State = by.State
		}
		l.found(t)
	}
}

// owners are those who say of a sandbox that they carry it, by its id. The word
// of a user other than root and the one who looks, whose programs may answer as
// they like, counts for what is that user's only.
type owners map[string][]int

// anybody is whose word counts for everything.
const anybody = -1

func (o owners) add(id string, uid int) { o[id] = append(o[id], uid) }

func (o owners) has(m sandbox.Trace) bool {
	by := o[m.Sandbox]
	if m.Sandbox == "" || len(by) == 0 {
		return false
	}
	return slices.Contains(by, anybody) || slices.Contains(by, ownerOf(m))
}

// word is as whose a user's word counts.
func word(uid int) int {
	if uid == 0 || uid == os.Geteuid() {
		return anybody
	}
	return uid
}

// owned are the sandboxes that a living node carries.
func (l *look) owned(marks []sandbox.Trace) owners {
	owned := owners{}
	for _, n := range l.nodes {
		for id, by := range n.carries {
			owned[id] = append(owned[id], by...)
		}
	}
	for _, m := range marks {
		if l.descends(m.PID) {
			owned.add(m.Sandbox, word(ownerOf(m)))
		}
	}
	return owned
}

// whose is the node that knows of a session, nil for none.
func (l *look) whose(id string) *node {
	for _, n := range l.nodes {
		if n.knows[id] {
			return n
		}
	}
	return nil
}

// thing is a trace in words.
func thing(m sandbox.Trace) Thing {
	t := Thing{Kind: m.Kind, Session: m.Sandbox, Path: m.Path, PID: m.PID}
	if m.Spare {
		t.Session = ""
		t.Says = fmt.Sprintf("the %s %s is there, of a sandbox that was begun in advance, and no node carries that", m.Kind, cmp.Or(m.Path, strconv.Itoa(m.PID)))
		return t
	}
	switch m.Kind {
	case sandbox.TraceProcess:
		t.Says = fmt.Sprintf("process %d of session %s runs, and no node carries that session", m.PID, m.Sandbox)
	case sandbox.TraceGroup:
		t.Says = fmt.Sprintf("the control group %s of session %s is there, and no node carries that session", m.Path, m.Sandbox)
		if m.Sandbox == "" {
			t.Says = fmt.Sprintf("the control group %s is there, in which a system node served somebody, and nobody serves in it", m.Path)
		}
	case sandbox.TracePlaceholder:
		t.Says = fmt.Sprintf("%s holds a missing path for session %s, which is over", m.Path, m.Sandbox)
	case sandbox.TraceShelter:
		t.Says = fmt.Sprintf("%s shelters a file for session %s, which is over", m.Path, m.Sandbox)
	case sandbox.TraceContainer:
		t.Says = fmt.Sprintf("the container %s of session %s is there, and no node carries that session", m.Path, m.Sandbox)
		if m.Sandbox == "" {
			t.Says = fmt.Sprintf("the container %s is there, which a node made to try something, and who made it has ended", m.Path)
		}
	case sandbox.TraceRecord:
		t.Says = fmt.Sprintf("the gateway has the sandbox %s of session %s, and no node carries that session", m.Path, m.Sandbox)
		if m.Sandbox == "" {
			t.Says = fmt.Sprintf("the gateway has the sandbox %s, which a node made to try something, and who made it has ended", m.Path)
		}
	default:
		t.Says = fmt.Sprintf("%s %s of session %s is left", m.Kind, m.Path, m.Sandbox)
	}
	return t
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
