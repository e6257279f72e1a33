package node

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/mojoup/mojoup-node/internal/session"
	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/secrets"
	"github.com/mojoup/mojoup-node/pkg/secrets/source"
)

// What a key is read by, outside, and what a session has in its hands are two things,
// and neither may come to the other while it lasts. So each says what it has before it
// looks at the other: a reading notes its files and then looks at the sessions that
// live, a session notes its mounts and then looks at what is read now, and at what is
// set. Where both come at once, one of them sees the other at least.

// A reading is a key that is being read, by a file or a command.
type reading struct {
	kind  source.Kind
	paths []string
}

// readings are those of now. The zero value has none.
type readings struct {
	mu  sync.Mutex // guards now
	now map[*reading]struct{}
}

func (r *readings) begin(one *reading) (end func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.now == nil {
		r.now = map[*reading]struct{}{}
	}
	r.now[one] = struct{}{}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.now, one)
	}
}

func (r *readings) all() (out []*reading) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for one := range r.now {
		out = append(out, one)
	}
	return out
}

// A handsError says that what a key is read by is in the hands of a session.
type handsError struct {
	file, by string
	session  session.ID
}

func (e *handsError) Error() string {
	return fmt.Sprintf("it is read by %s, which the session %s has in its hands by %s", e.file, e.session, e.by)
}

// Hint is the next step for people.
func (e *handsError) Hint() string {
	return fmt.Sprintf("move that elsewhere, or end the session first: mojoup-node session stop %s", e.session)
}

// beginReading refuses to read a key by what a session that lives has in its hands.
// Until end is called no session gets that into its hands.
func (n *Node) beginReading(ref source.Reference, home, path string) (end func(), err error) {
	one := &reading{ref.Kind, ref.Paths(home, path)}
	if ref.Kind == source.Command { // where its shell looks for programs
		one.paths = append(one.paths, filepath.SplitList(path)...)
	}
	end = n.readings.begin(one)
	if err := n.inNoHands(one); err != nil {
		end()
		return nil, err
	}
	return end, nil
}

func (n *Node) inNoHands(one *reading) error {
	if len(one.paths) == 0 {
		return nil // it is in no file
	}
	for id, mounts := range n.inHands() {
		if file, by := inHand(one, mounts); file != "" {
			return &handsError{file, by, id}
		}
	}
	return nil
}

// read reads a key of the node's person, unless a session could have changed what it
// is read by.
func (n *Node) read(ctx context.Context, ref source.Reference, home string, reader source.Reader) (secrets.Value, error) {
	end, err := n.beginReading(ref, home, reader.Path)
	if err != nil {
		return secrets.Value{}, err
	}
	defer end()
	return reader.Read(ctx, ref)
}

// inHands are the directories and files of the host that live sessions have.
func (n *Node) inHands() map[session.ID][]sandbox.Mount {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := map[session.ID][]sandbox.Mount{}
	for id, l := range n.live {
		if has := l.has.Load(); has != nil {
			out[id] = *has
		}
	}
	return out
}

// inHand is a file by which a key is read and the mount by which a session could
// read it, or change what it runs; or nothing.
func inHand(one *reading, mounts []sandbox.Mount) (file, by string) {
	for _, file := range one.paths {
		above := sameAbove(file)
		for _, m := range mounts {
			if m.Kind != sandbox.Bind || one.kind != source.File && m.Access != sandbox.ReadWrite {
				continue
			}
			if rel, err := filepath.Rel(m.Source, file); err == nil && filepath.IsLocal(rel) || above(m.Source) {
				return file, m.Source
			}
		}
	}
	return "", ""
}

// sameAbove tells whether a path is a file, or a directory above it, by another name.
func sameAbove(file string) func(path string) bool {
	var all []os.FileInfo
	for at := file; ; at = filepath.Dir(at) {
		if info, err := os.Stat(at); err == nil {
			all = append(all, info)
		}
		if at == filepath.Dir(at) {
			break
		}
	}
	return func(path string) bool {
		info, err := os.Stat(path)
		for i := 0; err == nil && i < len(all); i++ {
			if os.SameFile(all[i], info) {
				return true
			}
		}
		return false
	}
}

// bound are the directories and files of the host that a sandbox has.
func bound(s sandbox.Spec) *[]sandbox.Mount {
	var out []sandbox.Mount
	for _, m := range s.Mounts {
		if m.Kind == sandbox.Bind {
			out = append(out, m)
		}
	}
	return &out
}

// writable are the directories of the host that live sessions can write.
func (n *Node) writable() (out []string) {
	for _, mounts := range n.inHands() {
		for _, m := range mounts {
			if m.Access == sandbox.ReadWrite {
				out = append(out, m.Source)
			}
		}
	}
	return out
}
