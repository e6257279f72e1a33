package node

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mojoup/mojoup-node/pkg/secrets"
	"github.com/mojoup/mojoup-node/pkg/secrets/signin"
)

// lent is a sign-in that a session has.
type lent struct {
	tool signin.Tool
	mode signin.Mode
	path string // of the person's file, as the tool names it, or ""
	// find finds it anew where it is in no file: in a keyring, or said by a program.
	find func(ctx context.Context) (*signin.SignIn, error)
	// standIn is what the session has of the token in mode standin.
	standIn string
	// owned notes a token that goes inside.
	owned func(*signin.SignIn) error
	// renews has it renewed where the tool keeps it, where that is due, or where
	// its token has the mark of one that a host did not take.
	renews func(ctx context.Context, rejected string) error

	missing   bool                        // at the last look, which only one goroutine takes
	following sync.Mutex                  // is held while its file is looked at
	seen      atomic.Pointer[fs.FileInfo] // of the file, when it was last taken over
	behind    atomic.Bool                 // its file inside is not what it is to be

	giving sync.Mutex // is held while it is given to the session, or taken from it; before mu

	mu sync.Mutex
	// mu guards what follows.
	found    *signin.SignIn
	refusers map[string]refuser // by host and path
	refused  int                // how often it was renewed for the sake of one
	asked    time.Time          // a keyring or a program, because its token was not taken
	// withdrawn is why the session has it no longer, or "".
	withdrawn string
}

// changed reports whether the file is another than the one that was last taken
// over.
func (o *lent) changed(now fs.FileInfo) bool {
	p := o.seen.Load()
	if p == nil {
		return true
	}
	before := *p
	return !os.SameFile(before, now) || !before.ModTime().Equal(now.ModTime()) || before.Size() != now.Size()
}

func (o *lent) now() *signin.SignIn {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.found
}

// staged is what of it goes inside.
func (o *lent) staged() (signin.Staged, error) { return o.now().Stage(o.mode, o.standIn) }

// stagedOf is what goes inside of several, but for those that are withdrawn.
func stagedOf(some []*lent) ([]signin.Staged, error) {
	var all []signin.Staged
	for _, one := range some {
		if one.isWithdrawn() {
			continue
		}
		s, err := one.staged()
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return signin.Merged(all), nil
}

// lend makes what the session gets.
func (l *life) lend(s *signin.SignIn, mode signin.Mode) (one *lent, err error) {
	one = &lent{tool: s.Tool, found: s, mode: mode, path: s.Named}
	one.owned = func(s *signin.SignIn) error { return l.own(one, s) }
	one.renews = func(ctx context.Context, rejected string) error {
		// A tool that replaces a link by a file leaves a token behind that is spent.
		path, err := filepath.EvalSymlinks(one.path)
		if err != nil {
			return err
		}
		return l.n.renew(ctx, Renewal{Tool: one.tool, Path: path, Rejected: rejected})
	}
	if mode == signin.StandIn {
		one.standIn, err = l.keys.ring.Add(secretOf(s))
	} else {
		err = l.own(one, s)
	}
	if err == nil {
		_, err = one.staged()
	}
	return one, err
}

// secretOf is its token as a key of a ring.
func secretOf(s *signin.SignIn) secrets.Secret {
	return secrets.Secret{Name: signInKey(s.Tool), Value: secrets.NewValue(s.Access().RevealForTheWire()), Lasting: true, Binding: s.Tool.Binding}
}

// signInKey names a sign-in among the session's keys. No secret of a policy can
// have that name.
func signInKey(t signin.Tool) string { return secrets.SignIn + t.Name + " " + t.Service }
