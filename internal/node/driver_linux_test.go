package node

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mojoup/mojoup-node/internal/client"
	"github.com/mojoup/mojoup-node/internal/plan"
	"github.com/mojoup/mojoup-node/internal/residue"
	"github.com/mojoup/mojoup-node/internal/session"
	"github.com/mojoup/mojoup-node/pkg/console/api"
	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/sandbox/kerneltest"
)

// driven is how many slots the driver's node has.
const driven = 3

// TestDriver_SoakAndShort does what people and accidents do to sessions, in an
// order that a seed decides, and asks after each step whether slots, states
// and what is left are as they must be. MOJOUP_DRIVER_SEED repeats a run;
// MOJOUP_SOAK, a duration, makes it long.
func TestDriver_SoakAndShort(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if given := os.Getenv("MOJOUP_DRIVER_SEED"); given != "" {
		var err error
		seed, err = strconv.ParseUint(given, 10, 64)
		must(t, err)
	}
	steps, until := 12, time.Time{}
	if !kerneltest.ShortOfLong() {
		steps = 60
	}
	if long, err := time.ParseDuration(os.Getenv("MOJOUP_SOAK")); err == nil {
		steps, until = 1<<30, time.Now().Add(long/4)
	}
	d := newDriver(t, seed)
	defer func() {
		t.Logf("counted: %d steps of seed %d: %s", len(d.log), seed, d.tally())
		if t.Failed() {
			t.Logf("MOJOUP_DRIVER_SEED=%d; what it did:\n%s", seed, strings.Join(d.log, "\n"))
		}
	}()
	for i := 0; i < steps && (until.IsZero() || time.Now().Before(until)); i++ {
		d.step()
		if d.check(); t.Failed() {
			return
		}
	}
	d.settle()
}

// A driver is a node in a process of its own with whoever uses it.
type driver struct {
	*world
	t      *testing.T
	random *rand.Rand
	engine sandbox.Engine
	before []string
	client *client.Client
	node   *exec.Cmd
	log    []string
	people []*person
	states map[string]session.State // as last seen
}

// A person is one client of a session.
type person struct {
	name    string
	id      string // once it has started
	viewer  bool
	gone    context.CancelFunc
	leave   chan struct{}
	left    bool
	sizes   chan api.Size
	started chan string
	ended   chan string // in words
}

func newDriver(t *testing.T, seed uint64) *driver {
	t.Helper()
	w := newWorld(t)
	must(t, os.MkdirAll(w.paths.State, 0o700))
	w.paths.Config = filepath.Join(w.paths.State, "none") // as doomed has it
	// Without spares: what runs is then what the sessions say.
	must(t, os.WriteFile(w.paths.Config, []byte(fmt.Sprintf("node.sandbox.max_sessions = %d\nnode.sandbox.spares = 0\n", driven)), 0o600))
	d := &driver{
		world: &w, t: t, random: rand.New(rand.NewPCG(seed, 0)), engine: nativeEngine(t), client: client.New(w.paths.Socket()),
		states: map[string]session.State{},
	}
	d.before = tree(t, w.repo)
	d.serve()
	t.Cleanup(func() {
		for _, p := range d.people {
			p.gone()
			<-p.ended
		}
	})
	return d
}

func (d *driver) serve() { d.node = d.doomedNode(d.t, "never") }

func (d *driver) tally() string {
	n := map[string]int{}
	for _, line := range d.log {
		what, _, _ := strings.Cut(line, " ")
		n[what]++
	}
	var out []string
	for _, what := range slices.Sorted(maps.Keys(n)) {
		out = append(out, fmt.Sprintf("%s %d", what, n[what]))
	}
	return strings.Join(out, ", ")
}

// step does one thing. What cannot be done now is drawn again.
func (d *driver) step() {
	d.t.Helper()
	acts := []struct {
		name   string
		weight int
		do     func() (what string, done bool)
	}{
		{"start", 10, d.start}, {"attach", 4, d.attach}, {"detach", 3, d.detach}, {"exec", 4, d.exec}, {"stop", 3, d.stop},
		{"finish", 4, d.finish}, {"kill-client", 4, d.killClient}, {"kill-node", 1, d.killNode}, {"kill-leader", 3, d.killLeader},
		{"resize", 3, d.resize}, {"logs", 3, d.logs}, {"ports", 2, d.ports},
	}
	total := 0
	for _, a := range acts {
		total += a.weight
	}
	for {
		at := d.random.IntN(total)
		for _, a := range acts {
			if at -= a.weight; at < 0 {
				if what, done := a.do(); done {
					d.log = append(d.log, a.name+" "+what)
					return
				}
				break
			}
		}
	}
}

// pick is one of those that which lets through, or nil.
func (d *driver) pick(which func(*person) bool) *person {
	var some []*person
	for _, p := range d.people {
		if which(p) {
			some = append(some, p)
		}
	}
	if len(some) == 0 {
		return nil
	}
	return some[d.random.IntN(len(some))]
}

func runs(p *person) bool { return p.id != "" && !p.viewer }

// start starts a session where a slot is free: then it must begin.
func (d *driver) start() (string, bool) {
	if len(d.owners()) >= driven+1 {
		return "", false
	}
	name := fmt.Sprintf("s%d", len(d.log))
	p := &person{name: name, leave: make(chan struct{}), sizes: make(chan api.Size), started: make(chan string, 1), ended: make(chan string, 1)}
	req := api.RunRequest{
		Directory: d.repo, Env: plan.CallerEnv(os.Environ()), PolicyName: "own", Policy: limited,
		Command: []string{"sh", "-c", "echo up; while ! test -e end-" + name + "; do sleep 0.02; done; exit 7"},
	}
	if d.random.IntN(2) == 0 {
		req.Terminal = &api.Size{Columns: 80, Rows: 24}
	}
	full := len(d.owners()) >= driven
	d.join(p, func(ctx context.Context, s client.Streams) (api.Ended, error) { return d.client.Run(ctx, req, s) })
	if !full {
		d.await(p)
	}
	return name, true
}

// owners are the clients of sessions that have not ended, as far as is known.
func (d *driver) owners() (out []*person) {
	for _, p := range d.people {
		if !p.viewer {
			out = append(out, p)
		}
	}
	return out
}

func (d *driver) join(p *person, ask func(context.Context, client.Streams) (api.Ended, error)) {
	ctx, cancel := context.WithCancel(context.Background())
	p.gone = cancel
	d.people = append(d.people, p)
	reader, writer := io.Pipe()
	go func() {
		end, err := ask(ctx, client.Streams{
			Stdin: reader, Stdout: io.Discard, Stderr: io.Discard, Resizes: p.sizes, Leave: p.leave,
			Started: func(s api.Started) {
				select {
				case p.started <- s.Session.ID:
				default:
				}
			},
		})
		_ = writer.Close()
		p.ended <- fmt.Sprintf("%d %v %v", end.Code, end.Problem, err)
		close(p.ended)
	}()
}

// await waits until a client's session has started, or it has ended.
func (d *driver) await(p *person) {
	d.t.Helper()
	select {
	case p.id = <-p.started:
	case how := <-p.ended:
		d.t.Errorf("%s did not start: %s", p.name, how)
		d.forget(p)
	case <-time.After(enough):
		d.t.Errorf("%s does not start", p.name)
	}
}

func (d *driver) forget(p *person) {
	d.people = slices.DeleteFunc(d.people, func(o *person) bool { return o == p })
}

func (d *driver) attach() (string, bool) {
	of := d.pick(runs)
	if of == nil || len(d.people) > 8 {
		return "", false
	}
	p := &person{name: "viewer of " + of.name, id: of.id, viewer: true, leave: make(chan struct{}), sizes: make(chan api.Size), started: make(chan string, 1), ended: make(chan string, 1)}
	d.join(p, func(ctx context.Context, s client.Streams) (api.Ended, error) {
		return d.client.Attach(ctx, of.id, api.AttachRequest{Terminal: &api.Size{Columns: 100, Rows: 30}}, s)
	})
	return p.name, true
}

// detach leaves a session running, or stops looking at it.
func (d *driver) detach() (string, bool) {
	p := d.pick(func(p *person) bool { return p.id != "" && !p.left })
	if p == nil {
		return "", false
	}
	p.left = true
	close(p.leave)
	return p.name, true
}

func (d *driver) exec() (string, bool) {
	p := d.pick(runs)
	if p == nil {
		return "", false
	}
	var out bytes.Buffer
	end, err := d.client.Exec(context.Background(), p.id, api.ExecRequest{Command: []string{"sh", "-c", "echo in; exit 5"}}, client.Streams{Stdout: &out, Stderr: io.Discard})
	// Its session may have been about to end, which ends it too.
	over := slices.ContainsFunc(end.Notices, func(n string) bool { return strings.HasPrefix(n, "the session has ended, ") })
	if err != nil && !lost(err) || err == nil && end.Problem == nil && !over && (end.Code != 5 || out.String() != "in\n") {
		d.t.Errorf("exec in %s: %+v %v %q", p.name, end, err, out.String())
	}
	return p.name, true
}

// lost reports whether an error says that a node was killed.
func lost(err error) bool {
	_, silent := errors.AsType[*client.NoAnswerError](err)
	return silent || errors.Is(err, client.ErrLost) || errors.Is(err, client.ErrNotRunning) || errors.Is(err, client.ErrEnding)
}

func (d *driver) stop() (string, bool) {
	p := d.pick(runs)
	if p == nil {
		return "", false
	}
	if err := d.client.Stop(context.Background(), p.id); err != nil && d.state(p.id).Live() {
		d.t.Errorf("stopping %s: %v", p.name, err)
	}
	return p.name, true
}

// finish lets a command end by itself.
func (d *driver) finish() (string, bool) {
	p := d.pick(runs)
	if p == nil {
		return "", false
	}
	must(d.t, os.WriteFile(filepath.Join(d.repo, "end-"+p.name), nil, 0o600))
	return p.name, true
}

func (d *driver) killClient() (string, bool) {
	p := d.pick(func(p *person) bool { return !p.left })
	if p == nil {
		return "", false
	}
	p.gone()
	return p.name, true
}

func (d *driver) killNode() (string, bool) {
	_ = d.node.Process.Kill()
	_ = d.node.Wait()
	d.serve()
	return strconv.Itoa(d.node.Process.Pid), true
}

func (d *driver) killLeader() (string, bool) {
	p := d.pick(runs)
	if p == nil {
		return "", false
	}
	inside := d.random.IntN(2) == 0
	return fmt.Sprint(p.name, " inside ", inside, ": ", killHelper(session.ID(p.id), inside)), true
}

func (d *driver) resize() (string, bool) {
	p := d.pick(func(p *person) bool { return p.id != "" && !p.left })
	if p == nil {
		return "", false
	}
	size := api.Size{Columns: uint16(20 + d.random.IntN(200)), Rows: uint16(5 + d.random.IntN(80))}
	select {
	case p.sizes <- size:
	case <-time.After(100 * time.Millisecond): // it has ended
	}
	return fmt.Sprint(p.name, " ", size), true
}

func (d *driver) logs() (string, bool) {
	p := d.pick(runs)
	if p == nil {
		return "", false
	}
	if s, err := d.client.Session(context.Background(), p.id); err != nil || s.ID != p.id {
		d.t.Errorf("showing %s: %+v %v", p.name, s, err)
	}
	return p.name, true
}

func (d *driver) ports() (string, bool) {
	p := d.pick(runs)
	if p == nil {
		return "", false
	}
	if open, err := d.client.Ports(context.Background(), p.id, nil); err == nil && len(open) > 0 {
		d.t.Errorf("ports of %s, which has none: %v", p.name, open)
	}
	return p.name, true
}

func (d *driver) state(id string) session.State {
	s, err := d.client.Session(context.Background(), id)
	must(d.t, err)
	return session.State(s.State)
}

// check asks whether all is as it must be. Where something is on its way it is
// asked again, until it is so or never will be.
func (d *driver) check() {
	d.t.Helper()
	d.hear()
	var wrong string
	for late := time.Now().Add(enough); ; {
		if wrong = d.wrong(); wrong == "" || time.Now().After(late) {
			break
		}
		<-time.After(5 * time.Millisecond)
		d.hear()
	}
	if wrong != "" {
		d.t.Errorf("after %q: %s", d.log[len(d.log)-1], wrong)
		return
	}
	r, err := residue.Look(context.Background(), residue.Options{Paths: d.paths, OwnOnly: true, Engines: map[string]sandbox.Engine{"native": d.engine}})
	must(d.t, err)
	if len(r.Left) > 0 || len(r.Unknown) > 0 {
		d.t.Errorf("after %q: left %+v, unknown %q", d.log[len(d.log)-1], r.Left, r.Unknown)
	}
}

// hear takes note of clients whose sessions have started or ended.
func (d *driver) hear() {
	for _, p := range slices.Clone(d.people) {
		select {
		case id := <-p.started:
			p.id = cmp.Or(p.id, id)
		default:
		}
		select {
		case <-p.ended:
			if !p.left || p.viewer || p.id == "" || !d.state(p.id).Live() {
				d.forget(p)
				p.gone()
			}
		default:
		}
	}
}

// wrong is what is not as it must be at this moment, in words.
func (d *driver) wrong() string {
	status, err := d.client.Status(context.Background())
	if err != nil {
		return err.Error()
	}
	past, err := d.client.Sessions(context.Background(), true)
	if err != nil {
		return err.Error()
	}
	live := map[string]bool{}
	for _, s := range slices.Concat(status.Sessions, past) {
		if why := d.moved(s); why != "" {
			d.t.Error(why) // it will not get better
			return why
		}
		if session.State(s.State).Live() {
			live[s.ID] = true
		}
	}
	switch n := len(status.Sessions); {
	case n > driven:
		d.t.Errorf("%d sessions have %d slots", n, driven)
		return "a slot was given twice"
	case n < driven && len(status.Queue) > 0:
		return fmt.Sprintf("%d sessions run, and %d wait for one of %d slots", n, len(status.Queue), driven)
	}
	for _, s := range status.Sessions {
		if s.State != string(session.Running) {
			return fmt.Sprintf("session %s is still %s", s.ID, s.State)
		}
	}
	if got, want := strings.Join(sandboxes(d.node.Process.Pid), " "), strings.Join(slices.Sorted(maps.Keys(live)), " "); got != want {
		return fmt.Sprintf("the node's sandboxes are [%s], its sessions [%s]", got, want)
	}
	return ""
}

// moved wants that a session has come from where it was last seen by legal
// moves.
func (d *driver) moved(s api.Session) string {
	from, to := d.states[s.ID], session.State(s.State)
	d.states[s.ID] = to
	if from == "" || from == to || reachable(from, to) {
		return ""
	}
	return fmt.Sprintf("session %s went from %s to %s", s.ID, from, to)
}

func reachable(from, to session.State) bool {
	seen := map[session.State]bool{}
	var walk func(session.State) bool
	walk = func(at session.State) bool {
		if seen[at] {
			return false
		}
		seen[at] = true
		for _, next := range session.States() {
			if session.Move(at, next) == nil && (next == to || walk(next)) {
				return true
			}
		}
		return false
	}
	return walk(from)
}

// sandboxes are those whose outer process a node has started.
func sandboxes(node int) (ids []string) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		line, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		id, ours := strings.CutPrefix(strings.TrimRight(string(line), "\x00"), "mojoup-child\x00")
		if err != nil || !ours {
			continue
		}
		stat, _ := os.ReadFile(filepath.Join(dir, "stat"))
		after := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(after) > 1 && after[1] == strconv.Itoa(node) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// settle ends everything and wants all slots back: as many start at once, and
// nothing of all that was is left.
func (d *driver) settle() {
	d.t.Helper()
	status, err := d.client.Status(d.t.Context())
	must(d.t, err)
	for _, s := range status.Sessions {
		_ = d.client.Stop(d.t.Context(), s.ID)
	}
	for _, p := range d.people {
		p.gone()
	}
	d.log = append(d.log, "settle")
	d.check()
	var all sync.WaitGroup
	for range driven {
		all.Go(func() {
			end, err := d.client.Run(d.t.Context(), api.RunRequest{Directory: d.repo, Env: plan.CallerEnv(os.Environ()), Command: []string{"true"}}, client.Streams{Stdout: io.Discard, Stderr: io.Discard})
			if err != nil || end.Code != 0 || end.Problem != nil {
				d.t.Errorf("at the end: %+v %v", end, err)
			}
		})
	}
	all.Wait()
	must(d.t, d.node.Process.Signal(syscall.SIGKILL))
	_ = d.node.Wait()
	r := d.world.serve(d.t, d.options(d.t, d.engine))
	ends, _ := filepath.Glob(filepath.Join(d.repo, "end-*"))
	for _, file := range ends {
		must(d.t, os.Remove(file))
	}
	d.cleanBehind(d.t, r, d.engine, d.before)
}
