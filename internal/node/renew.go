package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/mojoup/mojoup-node/pkg/console/api"
	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/secrets"
	"github.com/mojoup/mojoup-node/pkg/secrets/signin"
)

// renewAgain is how long a renewal is not tried again that has failed, or after
// which the sign-in was due at once: its tokens hold for too short a time.
const renewAgain = time.Minute

// rejectedAgain is how long a sign-in is not renewed again because a host did
// not take its token: a host may mean something else by that, and a session may
// make it say so.
const rejectedAgain = 10 * time.Minute

// renewalDue reports whether a sign-in is to be renewed now.
func renewalDue(s *signin.SignIn) bool { return s.Due(time.Now()) }

// A Renewal is one sign-in that is to be renewed where its tool keeps it.
type Renewal struct {
	Tool signin.Tool
	Path string
	// Rejected is the mark of an access token that a host does not take, so that
	// it is renewed though it has not expired; see [signin.SignIn.Mark].
	Rejected string
}

// Renew renews where that is due by the time that it can. odd is told what was odd
// about an answer that was taken all the same.
func (r Renewal) Renew(ctx context.Context, odd func(string)) error {
	refresher := signin.Refresher{Client: &http.Client{}, Now: time.Now, Odd: odd}
	s, err := refresher.Refresh(ctx, r.Tool, r.Path, r.due)
	if s != nil {
		s.Wipe()
	}
	return err
}

func (r Renewal) due(s *signin.SignIn) bool {
	return renewalDue(s) || r.Rejected != "" && s.Mark() == r.Rejected
}

// stillDue reports whether what was renewed is due again.
func (r Renewal) stillDue() bool {
	s, err := r.Tool.At(r.Path)
	if err != nil {
		return false
	}
	defer s.Wipe()
	return renewalDue(s)
}

// RenewSignIn is what the process does that a node starts to renew a sign-in:
// it reads a [Renewal] and carries it out. Where that succeeds, what it says is what
// was odd.
func RenewSignIn(ctx context.Context, from io.Reader, to io.Writer) error {
	var r Renewal
	if err := json.NewDecoder(from).Decode(&r); err != nil {
		return fmt.Errorf("a node starts this, and says what is to be renewed: %w", err)
	}
	return r.Renew(ctx, func(sentence string) { fmt.Fprintln(to, sentence) })
}

// renewals has sign-ins renewed, each by one process at a time.
type renewals struct {
	running sync.WaitGroup
	leaving chan struct{} // closed when the node ends
	mu      sync.Mutex    // guards all
	now     map[string]*renewal
}

// renewal is one that runs, or the last one of a file.
type renewal struct {
	over  chan struct{} // closed when err is set
	err   error
	until time.Time // not again before, where it failed or was in vain
	// rejected is until when no other is renewed because a host did not take it.
	rejected time.Time
}

// renew has the sign-in at the path renewed where it is due. Who comes while it
// runs waits for the same.
func (n *Node) renew(ctx context.Context, what Renewal) error {
	n.renewals.mu.Lock()
	r := n.renewals.now[what.Path]
	if now := time.Now(); r == nil || r.done() && !now.Before(r.until) {
		var rejected time.Time
		if r != nil {
			rejected = r.rejected
		}
		if what.Rejected != "" {
			if now.Before(rejected) {
				n.renewals.mu.Unlock()
				return errors.New("it was renewed a moment ago, for the same reason")
			}
			rejected = now.Add(rejectedAgain)
		}
		r = n.beginLocked(ctx, what, rejected)
	}
	n.renewals.mu.Unlock()
	select {
	case <-r.over:
		return r.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// beginLocked begins a renewal. Whoever asked for it may leave; what has begun is
// brought to its end.
func (n *Node) beginLocked(ctx context.Context, what Renewal, rejected time.Time) *renewal {
	r := &renewal{over: make(chan struct{}), rejected: rejected}
	if n.renewals.now == nil {
		n.renewals.now = map[string]*renewal{}
	}
	n.renewals.now[what.Path] = r
	n.renewals.running.Go(func() {
		ctx, cancel := n.renewals.untilLeft(ctx)
		defer cancel()
		r.err = n.o.Renew(ctx, what)
		if r.err != nil || what.stillDue() {
			r.until = time.Now().Add(renewAgain)
		}
		if r.err != nil {
			n.log.Warn("renewing a sign-in", "tool", what.Tool.Name, "err", r.err)
		}
		close(r.over)
	})
	return r
}

// untilLeft is a context that ends with the node, and not with whoever asked.
func (r *renewals) untilLeft(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		select {
		case <-r.leaving:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// leave ends what waits, and waits for what has begun: half a minute at most.
func (r *renewals) leave() {
	close(r.leaving)
	r.running.Wait()
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
// the tool, or another node, has renewed is the one that goes out next, one that is
// about to expire is renewed, and one that the person has no longer is taken back.
// None of them waits for another.
func (l *life) keepSignIns(ctx context.Context, box sandbox.Sandbox, p prepared) {
	home := variableOf(p.spec.Env, "HOME")
	in := inSession{
		put:    func(s signin.Staged) error { return l.inSandbox(ctx, box, putScript(home, s)) },
		remove: func(target string) error { return l.inSandbox(ctx, box, removeScript(home, target)) },
	}
	var all sync.WaitGroup
	defer all.Wait()
	for _, one := range l.lent {
		all.Go(func() { l.keepSignIn(ctx, one, in) })
	}
}

func (l *life) keepSignIn(ctx context.Context, one *lent, in inSession) {
	tick := time.NewTicker(l.n.o.Times.Keys)
	defer tick.Stop()
	said := ""
	for turn := 1; ; turn++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := l.lookAfter(ctx, one, turn, in)
		if err != nil && ctx.Err() == nil && said != err.Error() {
			said = err.Error()
			l.diary.note(api.EventNotice, fmt.Sprintf("the sign-in of %s stays what it was: %v", one.tool.Title, err))
		}
	}
}

// lookAfter looks once after one sign-in, and tries again what could not be put
// inside, or removed there, the last time. Where the sign-in seems to be gone, nothing
// that a session may hold up comes before the look that takes it back.
func (l *life) lookAfter(ctx context.Context, one *lent, turn int, in inSession) error {
	owing := one.behind.Load()
	err := l.lookOnce(ctx, one, turn, in)
	if owing && one.behind.Load() && (!one.missing || one.isWithdrawn()) {
		err = errors.Join(err, l.restage(one, in))
	}
	return err
}

// lookOnce has the session have of a sign-in what its person has of it now.
func (l *life) lookOnce(ctx context.Context, one *lent, turn int, in inSession) error {
	if l.modeNow(one) == signin.Off {
		return l.takeBack(ctx, one, "its mode is off by the settings", "set it to "+string(one.mode), in)
	}
	var failed error
	if was := one.now(); one.mode != signin.Copy && !one.isWithdrawn() && was.Renews && one.path != "" && renewalDue(was) {
		failed = one.renews(ctx, "")
	}
	var err error
	switch {
	case one.path != "":
		err = l.takeOver(ctx, one, in)
	case one.find != nil && turn%keyringTurns == 0:
		err = l.findAgain(ctx, one, in)
	default:
		return failed
	}
	missing := signin.KindOf(err) == signin.None || signin.KindOf(err) == signin.Ended
	before := one.missing
	one.missing = missing
	switch {
	case missing && before:
		return l.takeBack(ctx, one, err.Error(), "sign in with "+one.tool.Name+" on the host again", in)
	case missing: // it may just be being replaced
		return failed
	}
	return errors.Join(failed, err)
}

// modeNow is how sessions get a sign-in now: of a person's own tool as its profile
// says now.
func (l *life) modeNow(one *lent) signin.Mode {
	tool := one.tool
	for _, now := range signin.Named(l.n.signInTools(l.n.home(l.req.Env)), tool.Name) {
		if now.Service == tool.Service {
			tool = now
		}
	}
	return l.n.signInMode(tool)
}

// takeOver takes over what stands in the person's file, where that has changed.
func (l *life) takeOver(ctx context.Context, one *lent, in inSession) error {
	one.following.Lock()
	defer one.following.Unlock()
	info, err := os.Stat(one.path)
	if err == nil && !one.changed(info) {
		return nil
	}
	fresh, err := one.tool.At(one.path)
	if err != nil {
		return err // half written, perhaps: it is looked at again
	}
	err = l.take(ctx, one, fresh, in)
	if errors.Is(err, errNotYet) {
		return nil
	}
	if info != nil { // else it came a moment ago
		one.seen.Store(&info)
	}
	if one.isWithdrawn() { // meanwhile: it is looked at when it may be there again
		one.seen.Store(nil)
	}
	return err
}

// findAgain takes over what is kept in no file, where that has changed.
func (l *life) findAgain(ctx context.Context, one *lent, in inSession) error {
	one.following.Lock()
	defer one.following.Unlock()
	fresh, err := one.find(ctx)
	if err != nil {
		return err
	}
	if err = l.take(ctx, one, fresh, in); errors.Is(err, errNotYet) {
		return nil
	}
	return err
}

// errNotYet says that a token cannot be given now, and is to be looked at again:
// nothing runs inside yet, or any more, or its person has taken it back.
var errNotYet = errors.New("it is looked at again")

// take gives a session what was found of its sign-in, where that is another token,
// or the session had lost it.
func (l *life) take(ctx context.Context, one *lent, fresh *signin.SignIn, in inSession) error {
	was, lost := one.now(), one.isWithdrawn()
	switch {
	case !fresh.Same(was):
		fresh.Wipe()
		return errors.New("another account is signed in on the host now")
	case !lost && (fresh.Access().Equal(was.Access()) || one.mode == signin.Copy):
		fresh.Wipe()
		return nil
	case one.mode != signin.StandIn && (in.put == nil || l.inside.Load() == nil):
		fresh.Wipe()
		return errNotYet
	case lost && l.modeNow(one) == signin.Off: // whoever asks: a request that waited for a renewal, too
		fresh.Wipe()
		return errNotYet
	}
	err := l.own(one, fresh)
	if err == nil {
		err = l.exchange(ctx, one, fresh, lost)
	}
	if err != nil {
		fresh.Wipe()
		return err
	}
	defer was.Wipe()
	if one.mode == signin.StandIn {
		return nil
	}
	return l.restage(one, in)
}

// exchange has the session have a new token, unless the sign-in was taken from it
// since it was looked at.
func (l *life) exchange(ctx context.Context, one *lent, fresh *signin.SignIn, lost bool) error {
	one.giving.Lock()
	defer one.giving.Unlock()
	if one.isWithdrawn() != lost {
		return errNotYet
	}
	if one.mode == signin.StandIn {
		err := l.keys.ring.Rotate(signInKey(one.tool), secrets.NewValue(fresh.Access().RevealForTheWire()))
		if err != nil {
			return err
		}
	}
	one.mu.Lock()
	one.found = fresh
	one.mu.Unlock()
	l.giveAgain(ctx, one)
	return nil
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
