package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mojoup/mojoup-node/pkg/console/api"
	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/secrets"
	"github.com/mojoup/mojoup-node/pkg/secrets/signin"
)

// renewBefore is how long before its end a sign-in is renewed: earlier than any
// tool does it by itself, so that the two do not meet.
const renewBefore = 10 * time.Minute

// renewAgain is how long a renewal that failed is not tried again.
const renewAgain = time.Minute

// RenewalDue reports whether a sign-in is to be renewed now.
func RenewalDue(s *signin.SignIn) bool { return s.Left(time.Now()) < renewBefore }

// renewals has sign-ins renewed, each by one process at a time.
type renewals struct {
	mu  sync.Mutex // guards all
	now map[string]*renewal
}

// renewal is one that runs, or the last one of a file.
type renewal struct {
	over  chan struct{} // closed when err is set
	err   error
	until time.Time // not again before, where it failed
}

// renew has the sign-in at path renewed where it is due. Who comes while it
// runs waits for the same.
func (n *Node) renew(ctx context.Context, tool signin.Tool, path string) error {
	n.renewals.mu.Lock()
	r := n.renewals.now[path]
	if r == nil || r.done() && !time.Now().Before(r.until) {
		r = &renewal{over: make(chan struct{})}
		if n.renewals.now == nil {
			n.renewals.now = map[string]*renewal{}
		}
		n.renewals.now[path] = r
		// Whoever asked may leave; what has begun is brought to its end.
		go func() {
			r.err = n.o.Renew(context.WithoutCancel(ctx), tool, path)
			if r.err != nil {
				r.until = time.Now().Add(renewAgain)
				n.log.Warn("renewing a sign-in", "tool", tool.Name, "err", r.err)
			}
			close(r.over)
		}()
	}
	n.renewals.mu.Unlock()
	select {
	case <-r.over:
		return r.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (r *renewal) done() bool {
	select {
	case <-r.over:
		return true
	default:
		return false
	}
}

// keepSignIns follows the person's sign-ins as long as a session has them: what
// the tool, or another node, has renewed is the one that goes out next, and one
// that is about to expire is renewed.
func (l *life) keepSignIns(ctx context.Context, box sandbox.Sandbox, p prepared) {
	tick := time.NewTicker(l.n.o.Times.Keys)
	defer tick.Stop()
	seen, said := map[*lent]fs.FileInfo{}, map[*lent]string{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, one := range l.lent {
			if one.path == "" || one.mode == signin.Copy {
				continue
			}
			err := l.followOne(ctx, box, p, one, seen)
			if err != nil && ctx.Err() == nil && said[one] != err.Error() {
				said[one] = err.Error()
				l.diary.note(api.EventNotice, fmt.Sprintf("the sign-in of %s stays what it was: %v", one.tool.Title, err))
			}
		}
	}
}

// followOne looks at one of them once.
func (l *life) followOne(ctx context.Context, box sandbox.Sandbox, p prepared, one *lent, seen map[*lent]fs.FileInfo) error {
	var failed error
	if was := one.now(); was.Renews && RenewalDue(was) {
		failed = one.renews(ctx)
	}
	info, err := os.Stat(one.path)
	if err != nil {
		return errors.Join(failed, err)
	}
	if before := seen[one]; before != nil && os.SameFile(before, info) && before.ModTime().Equal(info.ModTime()) && before.Size() == info.Size() {
		return failed
	}
	fresh, err := one.tool.At(one.path)
	if err != nil {
		return errors.Join(failed, err) // half written, perhaps: it is looked at again
	}
	seen[one] = info
	was := one.now()
	switch {
	case fresh.Access().Equal(was.Access()):
		fresh.Wipe()
		return failed
	case !fresh.Same(was):
		fresh.Wipe()
		return errors.New("another account is signed in on the host now")
	}
	return l.handOver(ctx, box, p, one, fresh)
}

// handOver gives a session the new token.
func (l *life) handOver(ctx context.Context, box sandbox.Sandbox, p prepared, one *lent, fresh *signin.SignIn) error {
	one.mu.Lock()
	was := one.found
	one.found = fresh
	one.mu.Unlock()
	defer was.Wipe()
	if one.mode == signin.StandIn {
		return l.keys.ring.Rotate(signInKey(one.tool), secrets.NewValue(fresh.Access().RevealForTheWire()))
	}
	all, err := stagedOf(l.lent)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(s signin.Staged) bool { return s.Target == one.tool.Target && s.Target != "" })
	if i < 0 || l.inside.Load() == nil {
		return nil // a variable, or nothing runs there any more
	}
	return l.inSandbox(ctx, box, putScript(variableOf(p.spec.Env, "HOME"), all[i]))
}

// A renewalError is what the process that renews has said.
type renewalError struct{ sentence, hint string }

func (e *renewalError) Error() string { return e.sentence }

// Hint is the next step for people.
func (e *renewalError) Hint() string { return e.hint }

// RenewalSaid is the error in what the process that renews has written: a
// sentence, and a hint on a line of its own.
func RenewalSaid(text string) error {
	sentence, hint, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if sentence == "" {
		sentence = "the sign-in could not be renewed"
	}
	return &renewalError{sentence, hint}
}
