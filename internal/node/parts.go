package node

import (
	"slices"

	"github.com/mojoup/mojoup-node/internal/terminal"
	"github.com/mojoup/mojoup-node/pkg/console/api"
)

// part is output of one stream, or a notice, on its way to a viewer.
type part struct {
	kind api.FrameKind
	data []byte
}

// partSize is up to which size parts of one stream are joined: few enough
// allocations, and no more than that is moved at once when old ones go.
const partSize = 16 << 10

// parts is output in order, of which only the newest limit bytes are kept.
type parts struct {
	limit int
	list  []part
	size  int
	cut   func(part) // what is given up, oldest first; may be nil
}

// add puts p at the end. Notices are never joined.
func (q *parts) add(kind api.FrameKind, p []byte) {
	if over := len(p) - q.limit; over > 0 {
		q.give(q.size)
		if q.cut != nil {
			q.cut(part{kind, p[:over]})
		}
		p = p[over:]
	}
	if last := len(q.list) - 1; last >= 0 && kind != api.FrameNotice && q.list[last].kind == kind && len(q.list[last].data)+len(p) <= partSize {
		q.list[last].data = append(q.list[last].data, p...)
	} else if len(p) > 0 {
		q.list = append(q.list, part{kind, slices.Clone(p)})
	}
	q.size += len(p)
	q.give(q.size - q.limit)
}

// give gives up n bytes of the oldest.
func (q *parts) give(n int) {
	for n > 0 {
		oldest := &q.list[0]
		k := min(n, len(oldest.data))
		if q.cut != nil {
			q.cut(part{oldest.kind, oldest.data[:k]})
		}
		oldest.data = oldest.data[k:]
		n, q.size = n-k, q.size-k
		if len(oldest.data) == 0 {
			*oldest = part{}
			q.list = q.list[1:]
		}
	}
}

// take takes the oldest part out.
func (q *parts) take() (part, bool) {
	if len(q.list) == 0 {
		return part{}, false
	}
	p := q.list[0]
	q.list[0] = part{}
	q.list, q.size = q.list[1:], q.size-len(p.data)
	if len(q.list) == 0 {
		q.list = nil
	}
	return p, true
}

// tailLimit is how much of a session's newest output is kept for those who
// attach later, in bytes.
const tailLimit = 256 << 10

// tail is a session's newest output, and the state in which a terminal was
// before it.
type tail struct {
	parts
	terminal bool
	before   terminal.Modes
}

func newTail(isTerminal bool) *tail {
	t := &tail{parts: parts{limit: tailLimit}, terminal: isTerminal}
	t.cut = func(p part) {
		if t.terminal {
			_, _ = t.before.Write(p.data)
		}
	}
	return t
}

// replay is what brings a viewer to where the others are. For a terminal it is
// one part that begins between two characters and asks the terminal nothing.
func (t *tail) replay() []part {
	if !t.terminal {
		out := make([]part, 0, len(t.list))
		for _, p := range t.list {
			out = append(out, part{p.kind, slices.Clone(p.data)})
		}
		return out
	}
	var all []byte
	for _, p := range t.list {
		all = append(all, p.data...)
	}
	if len(all) == 0 {
		return nil
	}
	before := t.before.Clone()
	for len(all) > 0 && !before.Between() {
		_, _ = before.Write(all[:1])
		all = all[1:]
	}
	return []part{{api.FrameStdout, append(before.Set(), terminal.Quiet(all)...)}}
}
