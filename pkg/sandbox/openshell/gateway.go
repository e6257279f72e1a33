package openshell

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/product"
)

// Bounds of one call.
const (
	readWithin   = 10 * time.Second
	createWithin = 30 * time.Second
	deleteWithin = 30 * time.Second
	mostPages    = 100
)

// client is one gateway.
type client struct {
	reg  Registration
	talk dialect

	mu      sync.Mutex // guards what follows
	link    *link
	gateway Gateway
	refused error // set once the generation has changed
	closed  bool

	images sync.Map // by id, for the sentence about one that cannot be pulled
	runs   sync.Map // by id: which run of its main process was seen ready

	// opening lets one caller connect and the others wait for it.
	opening chan struct{}
}

// Connect reaches the gateway of a registration, asks for its version, and
// chooses how to speak to it. Nothing but that was asked of it.
func Connect(ctx context.Context, reg Registration) (Client, error) {
	l, err := open(ctx, reg)
	if err != nil {
		return nil, err
	}
	talk, err := choose(reg, l.health.Version)
	if err != nil {
		l.cc.Close()
		return nil, err
	}
	c := &client{reg: reg, talk: talk, link: l, opening: make(chan struct{}, 1)}
	c.gateway = Gateway{Name: reg.Name, Endpoint: reg.Endpoint, Workspace: reg.Workspace, Auth: reg.Auth,
		Version: l.health.Version, Generation: talk.generation()}
	return c, nil
}

// Oldest release of 0.0.x that does what is asked here: an older one ignores
// the main process that a request names.
const leastPatch = 111

// choose finds the way of speaking for a version, or says why there is none.
func choose(reg Registration, version string) (dialect, error) {
	number, _, _ := strings.Cut(version, "-")
	number, _, _ = strings.Cut(number, "+")
	parts := strings.Split(number, ".")
	var n [3]int
	valid := len(parts) == len(n)
	for i := range n {
		if valid {
			v, err := strconv.ParseUint(parts[i], 10, 16)
			valid, n[i] = err == nil, int(v)
		}
	}
	switch {
	case !valid:
		return nil, &Error{Code: NotAGateway, Sentence: fmt.Sprintf("%s answers, but with the version %q, which no gateway has", reg.title(), version),
			Advice: "look at what listens there: " + product.CommandStatus}
	case n[0] == 0 && n[1] == 0 && (n[2] >= leastPatch || n[2] == 0): // built from source without a tag: 0.0.0
		return dialect00{}, nil
	case n[0] == 0 && n[1] == 1:
		return dialect01{}, nil
	case n[0] == 0 && n[1] == 0:
		return nil, &Error{Code: VersionUnsupported, Sentence: fmt.Sprintf("%s is version %s, which is too old: 0.0.%d is the oldest supported", reg.title(), version, leastPatch),
			Advice: "upgrade OpenShell"}
	}
	return nil, &Error{Code: VersionUnsupported, Sentence: fmt.Sprintf("%s is version %s; this version of the node speaks to 0.0.x and 0.1.x only", reg.title(), version),
		Advice: "install OpenShell 0.1.x, or a version of mojoup-node that knows this one"}
}

func (c *client) Gateway() Gateway {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gateway
}

func (c *client) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	return c.link.cc.Close()
}

// now is a connection to the gateway that is known to be of the same
// generation: the one there is, or a new one.
func (c *client) now(ctx context.Context) (*link, error) {
	if l, err := c.have(); l != nil || err != nil {
		return l, err
	}
	select {
	case c.opening <- struct{}{}:
		defer func() { <-c.opening }()
	case <-ctx.Done():
		return nil, c.ended(ctx)
	}
	if l, err := c.have(); l != nil || err != nil {
		return l, err
	}
	l, err := open(ctx, c.reg)
	if err != nil {
		return nil, err
	}
	if err := c.admit(l.health); err != nil {
		l.cc.Close()
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.link
	c.link = l
	old.cc.Close()
	if c.closed {
		l.cc.Close()
	}
	return l, nil
}

func (c *client) have() (*link, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.refused != nil:
		return nil, c.refused
	case c.closed:
		return nil, &Error{Code: Unreachable, Sentence: "the connection to " + c.reg.title() + " was closed by this node"}
	case c.link.alive():
		return c.link, nil
	}
	return nil, nil
}

// admit takes a version that the gateway names now. Another generation ends
// this client.
func (c *client) admit(h Health) error {
	talk, err := choose(c.reg, h.Version)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil && talk.generation() == c.gateway.Generation {
		c.gateway.Version = h.Version
		return nil
	}
	c.refused = &Error{Code: VersionChanged, Err: err,
		Sentence: fmt.Sprintf("%s was version %s and now says that it is %s", c.reg.title(), c.gateway.Version, h.Version),
		Advice:   "restart the node, so that it looks at the gateway anew; sandboxes of the old version must be deleted with it"}
	return c.refused
}

func (c *client) Health(ctx context.Context) (Health, error) {
	l, err := c.now(ctx)
	if err != nil {
		return Health{}, err
	}
	h, err := l.ask(ctx, c.reg)
	if err != nil {
		return Health{}, err
	}
	return h, c.admit(h)
}

// do makes a call that may be made twice: where the connection turns out to be
// dead, it is made again on a new one.
func do[T any](ctx context.Context, c *client, within time.Duration, k call[T]) (T, error) {
	var none T
	for attempt := 0; ; attempt++ {
		l, err := c.now(ctx)
		if err != nil {
			return none, err
		}
		err = l.invoke(ctx, c.reg, within, k.method, k.in, k.out)
		if err == nil {
			return k.read(), nil
		}
		if attempt > 0 || l.alive() || !errors.Is(err, Unreachable) || ctx.Err() != nil {
			return none, err
		}
	}
}

func (c *client) Info(ctx context.Context) (Info, error) {
	return do(ctx, c, readWithin, c.talk.info())
}

func (c *client) Get(ctx context.Context, name string) (Record, error) {
	r, err := do(ctx, c, readWithin, c.talk.get(name, c.reg.Workspace))
	if err != nil {
		return Record{}, err
	}
	return r, c.sane(r, name)
}

// sane refuses a record that cannot be the answer.
func (c *client) sane(r Record, name string) error {
	if r.Name != name || !validID(r.ID) {
		return &Error{Code: Nonsense, Sentence: fmt.Sprintf("%s was asked for the sandbox %s and answered with %q, id %q", c.reg.title(), name, word(r.Name), word(r.ID))}
	}
	return nil
}

// validID takes what can be an id, and what can stand in a file's name.
func validID(id string) bool {
	return id != "" && len(id) <= mostWord && !strings.ContainsFunc(id, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_'
	})
}

func (c *client) List(ctx context.Context, labels map[string]string) ([]Record, error) {
	var pairs []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		pairs = append(pairs, key+"="+labels[key])
	}
	var (
		out  []Record
		seen = map[string]bool{}
		at   page
	)
	for range mostPages {
		got, err := do(ctx, c, readWithin, c.talk.list(strings.Join(pairs, ","), c.reg.Workspace, at))
		if err != nil {
			return nil, err
		}
		fresh := 0
		for _, r := range got.records {
			if !validID(r.ID) || seen[r.ID] {
				continue
			}
			seen[r.ID] = true
			fresh++
			// What does not bear the labels is somebody else's, whatever the
			// gateway says.
			if bears(r.Labels, labels) {
				out = append(out, r)
			}
		}
		last := got.token == ""
		if got.counted {
			last = len(got.records) < mostPage
		}
		if last || fresh == 0 {
			return out, nil
		}
		at = page{offset: at.offset + len(got.records), token: got.token}
	}
	return nil, &Error{Code: TooLarge, Sentence: fmt.Sprintf("%s lists more than %d sandboxes", c.reg.title(), mostPages*mostPage)}
}

func bears(have, want map[string]string) bool {
	for key, value := range want {
		if got, ok := have[key]; !ok || got != value {
			return false
		}
	}
	return true
}

func (c *client) Create(ctx context.Context, r Request) (Record, error) {
	if err := r.check(); err != nil {
		return Record{}, err
	}
	attempt := newUUID()
	k := c.talk.create(r, c.reg.Workspace, attempt)
	if err := small(k.in); err != nil {
		return Record{}, err
	}
	var err error
	for range 2 {
		var l *link
		if l, err = c.now(ctx); err != nil {
			return Record{}, err
		}
		if err = l.invoke(ctx, c.reg, createWithin, k.method, k.in, k.out); !unsent(err) {
			break
		}
	}
	if err == nil {
		got := k.read()
		if err = c.sane(got, r.Name); err == nil {
			c.images.Store(got.ID, r.Image)
			return got, nil
		}
	}
	switch {
	case sayer(err) == codes.AlreadyExists:
		// Perhaps by this very request, whose first answer was lost below us.
		if got, gerr := c.Get(ctx, r.Name); gerr == nil && got.Labels[LabelAttempt] == attempt {
			return got, nil
		}
		return Record{}, &Error{Code: NameTaken, Err: err,
			Sentence: fmt.Sprintf("%s already has a sandbox called %s", c.reg.title(), r.Name),
			Advice:   "if no session uses it: " + product.CommandDelete + " " + r.Name}
	case errors.Is(err, Nonsense), unanswered(err):
		return c.look(ctx, r.Name, attempt, err)
	}
	return Record{}, c.refusal(r, err)
}

// lookWithin is how long is looked for what may have been made: a gateway that
// went away with the answer may be restarting.
const lookWithin = 3 * time.Second

// look finds out whether a request was taken whose answer was lost.
func (c *client) look(ctx context.Context, name, attempt string, lost error) (Record, error) {
	// The caller may have gone; the sandbox may not.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookWithin)
	defer cancel()
	for absent := 0; absent < 3 && ctx.Err() == nil; {
		got, err := c.Get(ctx, name)
		switch {
		case err == nil && got.Labels[LabelAttempt] == attempt:
			return got, nil
		case err == nil, errors.Is(err, VersionChanged), errors.Is(err, Nonsense):
			absent = 3
		case errors.Is(err, NotFound):
			absent++ // or it is still being written down
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	return Record{}, &Error{Code: Uncertain, Err: lost,
		Sentence: fmt.Sprintf("whether %s has made the sandbox %s is not known: %s", c.reg.title(), name, lost),
		Advice:   "it is deleted when it is found: see " + product.CommandSandboxes}
}

func (c *client) Delete(ctx context.Context, ref Ref) error {
	c.images.Delete(ref.ID)
	c.runs.Delete(ref.ID)
	// Both generations delete by name, so whose it is now must be known.
	got, err := c.Get(ctx, ref.Name)
	if errors.Is(err, NotFound) || err == nil && got.ID != ref.ID {
		return nil
	}
	if err != nil {
		return err
	}
	if got.Phase == Deleting {
		return nil
	}
	said, err := do(ctx, c, deleteWithin, c.talk.remove(ref, c.reg.Workspace))
	switch {
	case errors.Is(err, NotFound):
		return nil
	case err != nil:
		return err
	case said == removalUnsaid:
		return &Error{Code: Nonsense, Sentence: fmt.Sprintf("%s does not say whether it deletes the sandbox %s", c.reg.title(), ref.Name)}
	}
	return nil
}

// newUUID is a random UUID as the gateway wants request ids.
func newUUID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
