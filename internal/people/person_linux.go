package people

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mojoup/mojoup-node/internal/client"
	"github.com/mojoup/mojoup-node/internal/fault"
	"github.com/mojoup/mojoup-node/pkg/console/api"
	"github.com/mojoup/mojoup-node/pkg/sandbox/native/cgroup"
)

// errRetired says that a deputy takes no more connections; errDead that it took
// none.
var (
	errRetired = errors.New("the deputy is about to end")
	errDead    = errors.New("the deputy has died")
)

// deputy is a broker's side of one process.
type deputy struct {
	b     *Broker
	who   Person
	log   *slog.Logger
	ready chan struct{} // closed once it answers or failed is set
	gone  chan struct{} // closed once nothing of it is left

	mends    bool        // it was started because another one died
	unserved atomic.Bool // the last look found that its person may not use the node
	failed   error       // why it never answered; read once ready is closed

	handing sync.Mutex // guards handed; before mu, and held while a packet is sent
	handed  int        // connections

	mu      sync.Mutex // guards what follows; others wait for it, so nothing slow happens under it
	link    *link      // nil until it has been started
	cmd     *exec.Cmd
	retired bool         // no more connections are handed over
	told    bool         // to end
	why     *api.Problem // it was, or nil
	peer    []int        // the groups with which its person has come, the last time
	knows   []string     // the settings that it was told
	tickets map[string]*ticket
}

func newDeputy(b *Broker, who Person) *deputy {
	return &deputy{
		b: b, who: who, log: b.log.With("user", who.Name), ready: make(chan struct{}), gone: make(chan struct{}),
		tickets: map[string]*ticket{},
	}
}

// startWithin is how long a deputy may take to answer. It waits for a
// predecessor that is still ending its sessions.
const startWithin = 90 * time.Second

// run carries a deputy from its start to where nothing is left of it.
func (d *deputy) run(ctx context.Context) {
	answered := sync.OnceFunc(func() { close(d.ready) })
	state, err := d.live(ctx, answered)
	switch {
	case err != nil:
		d.log.Error("deputy", "err", err)
		if d.failed == nil {
			d.failed = d.notStarted()
		}
	case state.Success():
		d.b.places.end(d.who)
	}
	d.mu.Lock()
	d.retired = true
	d.mu.Unlock()
	died := err == nil && !state.Success() && state.ExitCode() != ExitLeft
	if died {
		d.log.Error("deputy died", "state", state.String())
	}
	d.leave(ctx, died)
	answered()
	close(d.gone)
}

func (d *deputy) notStarted() *api.Problem {
	return &api.Problem{Code: "deputy-failed", Sentence: "the system node could not begin to serve " + d.who.Name, Exit: fault.ExitCannotRun,
		Hint: "the log of the system node has the details"}
}

// leave takes the deputy off the list. One that died while it served is followed
// by another, which undoes what it left; where that one dies too, the next is
// started by who asks for something.
func (d *deputy) leave(ctx context.Context, died bool) {
	d.b.mu.Lock()
	defer d.b.mu.Unlock()
	delete(d.b.deputies, d.who.UID)
	if died && !d.mends && !d.b.stopping {
		d.b.begin(ctx, d.who).mends = true
	}
}

// live starts the process and serves it until it has ended. An error says that
// it never answered.
func (d *deputy) live(ctx context.Context, answered func()) (*os.ProcessState, error) {
	group, hello, err := d.prepare()
	if err != nil {
		return nil, err
	}
	defer group.Release()
	cmd, l, err := start(d.who, group, d.log)
	if err != nil {
		return nil, err
	}
	defer l.close()
	d.started(cmd, l)
	dead := make(chan struct{})
	go func() { // waited for below
		_ = cmd.Wait() // its outcome is in ProcessState
		l.deaf()       // whoever may have taken the other end is nobody's deputy
		close(dead)
	}()
	late := time.AfterFunc(startWithin, func() {
		select {
		case <-d.ready:
		default:
			d.log.Error("deputy does not answer", "within", startWithin)
			_ = cmd.Process.Kill()
		}
	})
	defer late.Stop()
	served := false
	if err := l.send(message{Kind: kindHello, Hello: &hello}, nil); err == nil {
		served = d.serve(ctx, l, answered)
	}
	d.releaseAll()
	patient := time.AfterFunc(d.b.o.Patient, func() { _ = cmd.Process.Kill() })
	defer patient.Stop()
	<-dead
	if !served {
		return cmd.ProcessState, errors.Join(errDead, fmt.Errorf("it ended with %v", cmd.ProcessState))
	}
	return cmd.ProcessState, nil
}

// prepare makes what a deputy finds: its directories, its control group.
func (d *deputy) prepare() (*cgroup.Group, Hello, error) {
	o := d.b.o
	state, runtime, err := d.b.places.of(d.who)
	if err != nil {
		return nil, Hello{}, err
	}
	if err := d.b.places.begin(d.who); err != nil {
		return nil, Hello{}, err
	}
	group, err := d.b.groups.Delegate(d.groupName(), d.who.UID, d.who.GID)
	if err != nil {
		d.log.Warn("limits of this person will be weaker", "err", err)
	}
	hello := Hello{
		Person: d.who, State: state, Runtime: runtime, Config: o.Config, Socket: o.Socket,
		Private: o.Private, Settings: o.Settings, Live: d.b.liveSettings(), Linger: o.Linger,
	}
	d.mu.Lock()
	d.knows = hello.Live
	d.mu.Unlock()
	if hello.Page, _ = d.b.shownPage(); o.Page != nil {
		hello.PagePorts = o.Page.Ports()
	}
	return group, hello, nil
}

// groupName is the same at every start, so that what a dead deputy left is
// found, and another one for each system node of a machine.
func (d *deputy) groupName() string {
	of := fnv.New32a()
	_, _ = of.Write([]byte(d.b.o.State))
	return fmt.Sprintf("%d.%08x", d.who.UID, of.Sum32())
}

func (d *deputy) started(cmd *exec.Cmd, l *link) {
	d.mu.Lock()
	d.cmd, d.link = cmd, l
	told, why := d.told, d.why
	d.mu.Unlock()
	d.log.Info("deputy started", "pid", cmd.Process.Pid)
	if told { // meanwhile
		_ = l.send(message{Kind: kindEnd, Problem: why}, nil)
	}
}

// serve takes the deputy's packets until it is gone, and reports whether it ever
// answered.
func (d *deputy) serve(ctx context.Context, l *link, answered func()) (served bool) {
	r := l.reader(false)
	for {
		m, _, err := r.next()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				d.log.Error("deputy", "err", err)
				d.kill()
			}
			return served
		}
		switch m.Kind {
		case kindReady:
			served = true
			answered()
		case kindFailed:
			if d.failed == nil && !served && m.Problem != nil {
				d.failed = m.Problem
			}
		case kindEnter:
			d.enter(ctx, m)
		case kindLeave:
			d.drop(m.ID)
		case kindRetire:
			_ = l.send(message{Kind: kindRetire, Yes: d.retire(m.Count)}, nil)
		default:
			d.log.Error("deputy says what it may not", "kind", m.Kind)
			d.kill()
			return served
		}
	}
}

func (d *deputy) kill() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.retired = true
	if d.cmd != nil {
		_ = d.cmd.Process.Kill()
	}
}

func (d *deputy) ending() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.retired
}

// retire agrees to an end where everything that was handed over has arrived.
func (d *deputy) retire(received int) bool {
	d.handing.Lock()
	defer d.handing.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	if received != d.handed {
		return false
	}
	d.retired = true
	return true
}

// give hands a descriptor over. One that does not take it is dead or hangs.
func (d *deputy) give(f *os.File) error {
	d.handing.Lock()
	defer d.handing.Unlock()
	d.mu.Lock()
	l, retired := d.link, d.retired
	d.mu.Unlock()
	if retired {
		return errRetired
	}
	if err := l.send(message{Kind: kindConnection}, f); err != nil {
		d.kill()
		return errDead
	}
	d.handed++
	return nil
}

// tellEnd tells the deputy to end, and ends it where it does not. Its sessions are
// told why, where that is not nil: then somebody has lost a right, and a deputy that
// is stopped, as its person can have it, does not keep that for as long as one may
// take to end.
func (d *deputy) tellEnd(ctx context.Context, why *api.Problem) {
	d.mu.Lock()
	d.told, d.retired, d.why = true, true, why
	l := d.link
	d.mu.Unlock()
	if l != nil {
		_ = l.send(message{Kind: kindEnd, Problem: why}, nil)
	}
	patient, look := time.After(d.b.o.Patient), time.NewTicker(d.b.o.Look)
	defer look.Stop()
	for was := false; ; {
		select {
		case <-d.gone:
			return
		case <-ctx.Done():
			return
		case <-patient:
			d.log.Error("deputy does not end", "within", d.b.o.Patient)
			d.kill()
			return
		case <-look.C:
		}
		is := why != nil && d.stopped()
		if is && was {
			d.log.Error("deputy is stopped and does not end")
			d.kill()
			return
		}
		was = is
	}
}

// stopped reports whether its process is stopped by a signal, or by a debugger.
func (d *deputy) stopped() bool {
	d.mu.Lock()
	cmd := d.cmd
	d.mu.Unlock()
	if cmd == nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid))
	at := bytes.LastIndex(stat, []byte(") ")) // the name before it is the program's choice
	return err == nil && at >= 0 && bytes.ContainsAny(stat[at+2:at+3], "Tt")
}

func (d *deputy) answer(m message) {
	d.mu.Lock()
	l := d.link
	d.mu.Unlock()
	if l.send(m, nil) != nil {
		d.kill() // dead already, or it takes nothing
	}
}

// What is read of a deputy's answer: a thousand sessions with all that is known
// of each are a third of it.
const (
	longestAnswer = 8 << 20
	mostValues    = 200_000
)

// client asks this deputy as root.
func (d *deputy) client() *client.Client {
	return client.Over("the deputy of "+d.who.Name, func(context.Context) (net.Conn, error) {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return nil, fmt.Errorf("making a pair of sockets: %w", err)
		}
		theirs := os.NewFile(uintptr(fds[1]), "theirs")
		defer theirs.Close()
		conn, err := connOf(os.NewFile(uintptr(fds[0]), "ours"))
		if err != nil {
			return nil, err
		}
		if err := d.give(theirs); err != nil {
			_ = conn.Close()
			return nil, err
		}
		return conn, nil
	}).Bounded(longestAnswer, mostValues)
}
