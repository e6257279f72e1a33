package native

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/sandbox/native/child"
)

// A toldCall is one system call of a row that the node is told of.
type toldCall struct {
	name   string
	when   []condition
	answer syscall.Errno
	tried  string
}

// holds says whether the filter, which compares as this does, refused a call
// for this row.
func (t toldCall) holds(args [6]uint64) bool {
	return !slices.ContainsFunc(t.when, func(c condition) bool { return !c.holds(args) })
}

// teller answers the calls that the filter holds up, each as the filter would
// have done by itself, and counts them. None of them is ever carried out: what
// a program has in memory could be another by then.
type teller struct {
	calls    map[int][]toldCall
	pace     pace
	recent   lookup
	checking atomic.Bool // what the helper's own process tries is the self-check's
	alone    atomic.Bool // there is no other process yet

	mu    sync.Mutex // guards what follows
	kinds map[kind]int
	seen  []sandbox.Refusal // by kinds, in the order of their first
	news  chan struct{}     // closed and replaced when a kind is added
}

// A kind is what is counted together.
type kind struct{ program, call, tried string }

// mostKinds bounds what a session can have counted: programs may call
// themselves what they like. Beyond it a refusal is nobody's.
const mostKinds = 64

func newTeller(calls map[int][]toldCall, floods *atomic.Int64) *teller {
	return &teller{calls: calls, pace: pace{floods: floods, left: burst}, kinds: map[kind]int{}, news: make(chan struct{})}
}

// serve answers until no process has the filter any more, or done is closed.
func (t *teller) serve(n *child.Notifier, done <-chan struct{}) {
	defer n.Close()
	defer t.pace.rest()
	for {
		next := n.Next
		if t.alone.Load() { // it tries several refused calls in a row
			next = n.NextSoon
		}
		c, err := next()
		if err != nil {
			return
		}
		t.take(n, c)
		if !t.pace.wait(done) {
			return
		}
	}
}

func (t *teller) take(n *child.Notifier, c child.Notified) {
	if t.alone.Load() { // nobody has to be looked up
		_ = n.Refuse(c, t.row(c).answer)
		return
	}
	row := t.row(c)
	who := t.caller(c.Thread)
	if !n.Waits(c) { // the number may be somebody else's
		who = caller{}
	}
	// Counted first: who is answered may ask at once.
	if !t.checking.Load() || who.program != child.Name {
		t.count(row, who)
	}
	_ = n.Refuse(c, row.answer) // else the sandbox has ended, and Next says so
}

// row is what refuses a call.
func (t *teller) row(c child.Notified) toldCall {
	// What the table does not have, the filter does not ask.
	row := toldCall{name: "system call " + strconv.Itoa(c.Call), answer: unix.EPERM, tried: "make a system call"}
	if i := slices.IndexFunc(t.calls[c.Call], func(r toldCall) bool { return r.holds(c.Args) }); i >= 0 {
		row = t.calls[c.Call][i]
	}
	return row
}

// checked says that the self-check is over.
func (b *box) checked() {
	if b.notifier != nil {
		b.notifier.InTurn(false)
	}
	b.teller.alone.Store(false)
	b.teller.checking.Store(false)
}

// caller is who waits. In a flood a thread is not looked up each time.
func (t *teller) caller(thread int) caller {
	if !t.pace.slow {
		return whoIs(thread)
	}
	return t.recent.find(thread, time.Now())
}

func (t *teller) count(row toldCall, who caller) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	k := kind{who.program, row.name, row.tried}
	i, known := t.kinds[k]
	if !known && len(t.seen) >= mostKinds {
		k.program, who.pid = "", 0
		i, known = t.kinds[k]
	}
	if known {
		t.seen[i].Count++
		t.seen[i].Last = now
		return
	}
	t.kinds[k] = len(t.seen)
	t.seen = append(t.seen, sandbox.Refusal{
		Program: k.program, PID: who.pid, Call: row.name, Tried: row.tried, Answer: unix.ErrnoName(row.answer), Count: 1, First: now, Last: now,
	})
	close(t.news)
	t.news = make(chan struct{})
}

func (t *teller) refusals() ([]sandbox.Refusal, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.seen), t.news
}

// listen answers the filter's questions, where it asks any.
func (b *box) listen(n *child.Notifier) {
	if b.notifier = n; n != nil {
		n.InTurn(b.teller.alone.Load())
		b.owned.Go(func() { b.teller.serve(n, b.helper.Done()) })
	}
}

// Refusals are the system calls that were refused inside so far.
func (b *box) Refusals() ([]sandbox.Refusal, <-chan struct{}) { return b.teller.refusals() }

// A caller is the process that made a call.
type caller struct {
	program string
	pid     int // inside
}

// lookup remembers for a moment who is who.
type lookup struct {
	seen  map[int]caller
	until time.Time
}

func (l *lookup) find(thread int, now time.Time) caller {
	if l.seen == nil || now.After(l.until) {
		l.seen, l.until = map[int]caller{}, now.Add(100*time.Millisecond)
	}
	who, known := l.seen[thread]
	if !known {
		who = whoIs(thread)
		l.seen[thread] = who
	}
	return who
}

// whoIs looks a thread up while it waits: its process, by the name of that
// one's first thread, as ps shows it. Programs choose their names.
func whoIs(thread int) caller {
	at := "/proc/" + strconv.Itoa(thread)
	status := readSmall(at + "/status")
	process, _ := strconv.Atoi(field(status, "Tgid:"))
	inside, _ := strconv.Atoi(field(status, "NStgid:"))
	if process > 0 {
		at = "/proc/" + strconv.Itoa(process)
	}
	program := strings.TrimSuffix(readSmall(at+"/comm"), "\n")
	if _, err := strconv.Atoi(program); err == nil || program == "exe" {
		// Started by a link of /proc, as browsers start themselves: the kernel
		// takes that one's name.
		if file, err := os.Readlink(at + "/exe"); err == nil {
			program = strings.TrimSuffix(filepath.Base(file), " (deleted)")
		}
	}
	return caller{program: printable(program), pid: inside}
}

// readSmall reads the beginning of a file of /proc, with as few calls as that
// takes; nothing where there is none.
func readSmall(name string) string {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	var buf [2048]byte
	n, err := unix.Read(fd, buf[:])
	if err != nil {
		return ""
	}
	return string(buf[:n])
}

// field is the last word on the line of a status that begins with name.
func field(status, name string) string {
	_, line, found := strings.Cut(status, "\n"+name)
	if !found {
		return ""
	}
	line, _, _ = strings.Cut(line, "\n")
	return line[strings.LastIndexAny(line, "\t ")+1:]
}

// printable has a mark for every byte that a terminal might obey.
func printable(name string) string {
	return strings.Map(func(r rune) rune {
		if !strconv.IsPrint(r) {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(name, "?"))
}

const (
	// burst is how many refused calls in a row are answered at once.
	burst = 512
	// steady is how many each second after that. What floods waits.
	steady = 1000
	// together is the same for all that flood at the same time: a tenth of
	// a processor.
	together = 2000
	// handful is how many are answered between two waits.
	handful = 8
)

// pace keeps a session that makes refused calls without end from taking the
// node's time. Before a call is taken, that is: its caller can then still be
// interrupted.
type pace struct {
	floods *atomic.Int64 // of the engine: how many wait like this
	left   float64
	at     time.Time
	slow   bool
}

// wait lets the session wait where it is too quick, and is false where done was
// closed meanwhile.
func (p *pace) wait(done <-chan struct{}) bool {
	pause := p.next(time.Now())
	if pause == 0 {
		return true
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-done:
		return false
	}
}

// next counts one call and is how long to wait before the next.
func (p *pace) next(now time.Time) time.Duration {
	rate := steady / 1.0
	if n := p.floods.Load(); n > 0 {
		rate = min(rate, together/float64(n))
	}
	if !p.at.IsZero() {
		p.left = min(burst, p.left+now.Sub(p.at).Seconds()*rate)
	}
	p.at = now
	p.left--
	if p.left > burst/2 {
		p.rest()
	}
	if p.left >= 0 {
		return 0
	}
	if !p.slow {
		p.slow = true
		p.floods.Add(1)
	}
	return time.Duration(handful / rate * float64(time.Second))
}

// rest says that the session does not flood any more.
func (p *pace) rest() {
	if p.slow {
		p.slow = false
		p.floods.Add(-1)
	}
}
