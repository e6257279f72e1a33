package people

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mojoup/mojoup-node/internal/client"
	"github.com/mojoup/mojoup-node/internal/fault"
	"github.com/mojoup/mojoup-node/internal/session"
	"github.com/mojoup/mojoup-node/pkg/console"
	"github.com/mojoup/mojoup-node/pkg/console/api"
)

// overview answers root about everybody, by asking their deputies. What one of
// them says is that person's word: it is shown under their name, and cut to a
// length.
type overview struct{ b *Broker }

// mostShown is how many sessions of one person are shown.
const mostShown = 1000

// atOnce is how many deputies are asked, or started to be asked, at a time.
const atOnce = 8

// each asks deputies, and says who gave no answer.
func each(deputies []*deputy, ask func(d *deputy, c *client.Client) error) (unheard []string) {
	var mu sync.Mutex
	var asking sync.WaitGroup
	turns := make(chan struct{}, atOnce)
	for _, d := range deputies {
		turns <- struct{}{}
		asking.Go(func() {
			defer func() { <-turns }()
			if err := ask(d, d.client()); err != nil {
				mu.Lock()
				defer mu.Unlock()
				unheard = append(unheard, d.who.Name+": "+fault.As(err).Sentence)
			}
		})
	}
	asking.Wait()
	slices.Sort(unheard)
	return unheard
}

// shown are a person's sessions as root is shown them.
func (d *deputy) shown(all []api.Session) []api.Session {
	all = slices.Clone(all[:min(len(all), mostShown)]) // and nothing of the rest is kept
	for i := range all {
		all[i].User, all[i].UID = d.who.Name, d.who.UID
	}
	return all
}

// named puts a name before lines.
func (d *deputy) named(lines []string) []string {
	out := []string{}
	for _, line := range lines[:min(len(lines), mostShown)] {
		out = append(out, d.who.Name+": "+line)
	}
	return out
}

// Status is the node, everybody's sessions and the queue.
func (o overview) Status(ctx context.Context, _ console.Caller) (api.Status, error) {
	s := o.b.o.Status()
	s.Node.Page, s.Node.NoPage = o.b.shownPage()
	s.Sessions, s.Repaired, s.Leftovers = []api.Session{}, []string{}, []string{}
	var mu sync.Mutex
	s.Unheard = each(o.b.live(), func(d *deputy, c *client.Client) error {
		one, err := c.Status(ctx)
		mu.Lock()
		defer mu.Unlock()
		s.Sessions = append(s.Sessions, d.shown(one.Sessions)...)
		s.Repaired = append(s.Repaired, d.named(one.Repaired)...)
		s.Leftovers = append(s.Leftovers, d.named(one.Leftovers)...)
		return err
	})
	slices.SortFunc(s.Sessions, func(a, b api.Session) int { return a.Since.Compare(b.Since) })
	s.Queue = o.b.queue()
	return s, nil
}

// queue is who waits, of everybody.
func (b *Broker) queue() []api.Waiting {
	out, names := []api.Waiting{}, map[int]string{}
	for _, w := range b.o.Door.Queue() {
		if names[w.User] == "" {
			names[w.User] = listed(w.User, w.User).Name
		}
		out = append(out, api.Waiting{
			ID: w.ID, Kind: string(w.Kind), User: names[w.User], UID: w.User, Since: w.Since,
			Place: w.Place.Number, Cause: string(w.Place.Cause), Reason: w.Place.Reason,
			Estimate: w.Place.Estimate.Round(time.Second).Seconds(),
		})
	}
	return out
}

// everybody are the deputies of all who have ever used the node: those that do
// not run are started.
func (b *Broker) everybody(ctx context.Context) ([]*deputy, error) {
	all, err := b.places.all()
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var out []*deputy
	var starting sync.WaitGroup
	turns := make(chan struct{}, atOnce)
	for _, who := range all {
		turns <- struct{}{}
		starting.Go(func() {
			defer func() { <-turns }()
			d, err := b.deputy(ctx, who)
			if err != nil {
				b.log.Error("asking about a person", "user", who.Name, "err", err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			out = append(out, d)
		})
	}
	starting.Wait()
	slices.SortFunc(out, func(a, b *deputy) int { return cmp.Compare(a.who.UID, b.who.UID) })
	return out, nil
}

// Sessions are everybody's.
func (o overview) Sessions(ctx context.Context, _ console.Caller, past bool) ([]api.Session, error) {
	deputies := o.b.live()
	if past {
		var err error
		if deputies, err = o.b.everybody(ctx); err != nil {
			return nil, err
		}
	}
	all := []api.Session{}
	var mu sync.Mutex
	unheard := each(deputies, func(d *deputy, c *client.Client) error {
		one, err := c.Sessions(ctx, past)
		mu.Lock()
		defer mu.Unlock()
		all = append(all, d.shown(one)...)
		return err
	})
	for _, line := range unheard {
		o.b.log.Error("asking for sessions", "said", line)
	}
	slices.SortFunc(all, func(a, b api.Session) int {
		if past {
			return b.Since.Compare(a.Since)
		}
		return a.Since.Compare(b.Since)
	})
	return all, nil
}

// A claim is a deputy's word that a session is its person's. The id is whole
// where the one that was asked for is the beginning of it.
type claim struct {
	*deputy
	id string
}

// claims are those of the deputies that run and hold the session's slot, or else
// of all: of a session that is over anybody may say that it was theirs. A
// session that some of them call by the same beginning of an id is not one.
func (b *Broker) claims(ctx context.Context, id string) ([]claim, error) {
	if _, err := session.Parse(id); err != nil {
		return nil, fault.UnknownSession(id)
	}
	found, err := claimed(ctx, b.live(), id)
	if len(found) > 0 && !slices.ContainsFunc(found, func(c claim) bool { return !c.holds(c.id) }) {
		return found, err
	}
	all, err := b.everybody(ctx)
	if err != nil {
		return nil, err
	}
	found, err = claimed(ctx, all, id)
	if len(found) == 0 && err == nil {
		err = fault.UnknownSession(id)
	}
	return found, err
}

// claimed asks some deputies. Where one has the very id, what others say of its
// beginning, or that it is none, counts for nothing.
func claimed(ctx context.Context, deputies []*deputy, id string) (found []claim, err error) {
	var mu sync.Mutex
	each(deputies, func(d *deputy, c *client.Client) error {
		s, serr := c.Session(ctx, id)
		mu.Lock()
		defer mu.Unlock()
		if p, ok := errors.AsType[*api.Problem](serr); ok && p.Code == api.CodeAmbiguousSession {
			err = p
		}
		if serr == nil && strings.HasPrefix(s.ID, id) {
			found = append(found, claim{d, s.ID})
		}
		return serr
	})
	if exact := slices.DeleteFunc(slices.Clone(found), func(c claim) bool { return c.id != id }); len(exact) > 0 {
		return exact, nil
	}
	for _, c := range found {
		if c.id != found[0].id && err == nil {
			err = fault.Negative("%q is the beginning of sessions of %s and of %s", id, found[0].who.Name, c.who.Name).WithCode(api.CodeAmbiguousSession).
				WithHint("give more of its id").Problem()
		}
	}
	return found, err
}

// holder is the one person whose session it is. Where two say so, one of them
// lies, and root is to know.
func (b *Broker) holder(ctx context.Context, id string) (Person, error) {
	found, err := b.claims(ctx, id)
	if err != nil {
		return Person{}, err
	}
	if len(found) > 1 {
		slices.SortFunc(found, func(a, b claim) int { return a.who.UID - b.who.UID }) // as they answered
		return Person{}, fault.Unknown("the parts of %s and of %s both call session %s theirs", found[0].who.Name, found[1].who.Name, id).Problem()
	}
	return found[0].who, nil
}

// Stop asks a session to end, of whoever says that it is theirs.
func (o overview) Stop(ctx context.Context, _ console.Caller, id string) error {
	found, err := o.b.claims(ctx, id)
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range found {
		errs = append(errs, c.client().Stop(ctx, c.id))
	}
	return errors.Join(errs...)
}

// Shutdown ends the node, everybody's sessions first.
func (o overview) Shutdown(context.Context, console.Caller) error {
	o.b.mu.Lock()
	defer o.b.mu.Unlock()
	o.b.end(errAsked)
	return nil
}

// What follows is never asked of the broker: route hands it to a deputy.

func elsewhere() error { return fmt.Errorf("BUG: that is a deputy's to answer") }

func (overview) Session(context.Context, console.Caller, string) (api.Session, error) {
	return api.Session{}, elsewhere()
}

func (overview) Events(context.Context, console.Caller, string, bool, func([]api.Event) error) error {
	return elsewhere()
}

func (overview) Recording(context.Context, console.Caller, string) (io.ReadCloser, error) {
	return nil, elsewhere()
}

func (overview) Secrets(context.Context, console.Caller) (api.Secrets, error) {
	return api.Secrets{}, elsewhere()
}

func (overview) SetSecret(context.Context, console.Caller, api.SecretRequest) (api.SecretSet, error) {
	return api.SecretSet{}, elsewhere()
}

func (overview) RemoveSecret(context.Context, console.Caller, string) (api.SecretRemoved, error) {
	return api.SecretRemoved{}, elsewhere()
}

func (overview) SignIns(context.Context, console.Caller, api.SignInsRequest) (api.SignIns, error) {
	return api.SignIns{}, elsewhere()
}

func (overview) Approval(context.Context, console.Caller, api.ApprovalRequest) (api.Approval, error) {
	return api.Approval{}, elsewhere()
}

func (overview) Run(context.Context, console.Caller, api.RunRequest, console.Stream) api.Ended {
	return never()
}

func (overview) Attach(context.Context, console.Caller, string, api.AttachRequest, console.Stream) api.Ended {
	return never()
}

func (overview) Exec(context.Context, console.Caller, string, api.ExecRequest, console.Stream) api.Ended {
	return never()
}

func (overview) Ports(context.Context, console.Caller, string, api.PortsRequest) ([]api.Port, error) {
	return nil, elsewhere()
}

func (overview) Diff(context.Context, console.Caller, string, api.DiffRequest, console.Stream) api.Ended {
	return never()
}

func never() api.Ended {
	p := fault.As(elsewhere()).Problem()
	return api.Ended{Code: p.Exit, Problem: p}
}
