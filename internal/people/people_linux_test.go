package people

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mojoup/mojoup-node/internal/admission"
	"github.com/mojoup/mojoup-node/pkg/console/api"
)

// Two people whom no list of the machine names.
const (
	ann = 70011
	bob = 70012
)

// TestMain is also the deputy and the client of these tests: a broker runs this
// same program as its people.
func TestMain(m *testing.M) {
	switch {
	case len(os.Args) == 2 && os.Args[1] == Command:
		os.Exit(falseDeputy())
	case len(os.Args) == 3 && os.Args[1] == "ask":
		os.Exit(askAt(os.Args[2]))
	}
	os.Exit(m.Run())
}

// askAt is one request of a person's; what comes back goes to stdout.
func askAt(socket string) int {
	c := http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
		DialContext: func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", socket) },
	}}
	resp, err := c.Get("http://mojoup-node/v1/status")
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer resp.Body.Close()
	_, _ = io.Copy(os.Stdout, resp.Body)
	return 0
}

// falseDeputy answers every request with its uid, and else behaves as its
// settings say.
func falseDeputy() int {
	d, err := Join()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	does := func(what string) bool {
		return slices.Contains(d.Hello.Settings, what) && d.Hello.Person.UID == ann
	}
	ctx, cancel := d.Context(context.Background())
	defer cancel()
	if does("mute") {
		<-ctx.Done()
		return 0
	}
	if does("stuck") { // and takes nothing
		d.Ready()
		_ = unix.Kill(os.Getpid(), unix.SIGSTOP)
	}
	srv := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if does("liar") {
			_ = json.NewEncoder(w).Encode(api.Status{Sessions: []api.Session{{ID: "x", User: "root", UID: 0}}})
			return
		}
		switch { // a megabyte of the first is hundreds of thousands of sessions
		case does("many"):
			_, _ = io.WriteString(w, `{"sessions": [{}`+strings.Repeat(",{}", 300_000)+"]}")
			return
		case does("long"):
			_, _ = io.WriteString(w, `{"sessions": [{"id": "`+strings.Repeat("x", 9<<20)+`"}]}`)
			return
		}
		fmt.Fprint(w, os.Getuid())
	})}
	go srv.Serve(d.Listener()) //nolint:errcheck // until the process ends
	d.Ready()
	switch {
	case does("leaves somebody"):
		sleep := exec.Command("sleep", "600")
		sleep.Stdout = os.Stdout // whose other end is the broker's
		if sleep.Start() == nil {
			fmt.Println("left", sleep.Process.Pid)
		}
		return 0
	case does("greedy"):
		for i := range 5000 {
			if d.link.send(message{Kind: kindEnter, ID: strconv.Itoa(i)}, nil) != nil {
				return 3
			}
		}
	case does("garbled"):
		_, _ = d.link.conn.Write([]byte("{"))
	case does("sends files"):
		for range 100 {
			_ = d.link.send(message{Kind: kindLeave, ID: "none"}, os.Stdin)
		}
	case does("forward"):
		_ = d.link.send(message{Kind: kindConnection}, nil)
	case does("waits"):
		return waits(ctx, d)
	case does("takes one slot"):
		_, _ = d.Enter(ctx, admission.Request{ID: "one"}, nil)
	}
	if !slices.Contains(d.Hello.Settings, "retires") {
		<-ctx.Done()
		return 0
	}
	for !d.Retire(ctx) {
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return 0
		}
	}
	return 0
}

// waits has a session, has another one wait, and says what becomes of them.
func waits(ctx context.Context, d *Deputy) int {
	if _, err := d.Enter(ctx, admission.Request{ID: "one"}, nil); err != nil {
		return 3
	}
	var told sync.WaitGroup
	told.Go(func() {
		_, err := d.Enter(context.Background(), admission.Request{ID: "two"}, func(admission.Place) { fmt.Println("two waits") })
		fmt.Println("two:", err)
	})
	var known []string
	for {
		select {
		case <-time.After(time.Millisecond):
			if now := d.Live(); !slices.Equal(now, known) {
				known = now
				fmt.Println("told", known)
			}
		case <-ctx.Done():
			told.Wait()
			fmt.Println("one:", context.Cause(ctx), errors.Is(context.Cause(ctx), ErrTold))
			return 0
		}
	}
}

// parish is a broker with its socket.
type parish struct {
	*Broker
	t      *testing.T
	socket string
	log    *bytes.Buffer
	logged *locked
	door   *admission.Door
	ended  chan error
}

// atWork starts a broker whose deputies behave as settings say.
func atWork(t *testing.T, change func(*Options), settings ...string) *parish {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("wanted root, which alone can serve other people")
	}
	dir, err := os.MkdirTemp("/tmp", "mjb")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	p := &parish{t: t, socket: filepath.Join(dir, "run/s"), log: &bytes.Buffer{}, ended: make(chan error, 1)}
	p.logged = &locked{w: p.log}
	for _, d := range []string{dir, dir + "/run", dir + "/state"} {
		_ = os.Mkdir(d, 0o711)
		if err := os.Chmod(d, 0o711); err != nil {
			t.Fatal(err)
		}
	}
	ln, err := net.Listen("unix", p.socket)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(p.socket, 0o666); err != nil {
		t.Fatal(err)
	}
	p.door, err = admission.New(admission.Options{Kinds: map[admission.Kind]admission.Limits{
		"session": {Max: 1, Queue: 10 * mayWait, One: "session", Many: "sessions"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	ready := make(chan struct{})
	o := Options{
		Listener: ln, Socket: p.socket, State: dir + "/state", Runtime: dir + "/run", Settings: settings,
		Door: p.door, Kind: "session", Allow: func() ([]string, error) { return []string{"*"}, nil },
		Status: func() api.Status { return api.Status{Node: api.Node{Running: true, System: true}} },
		Ready:  func() { close(ready) }, Logger: slog.New(slog.NewTextHandler(p.logged, nil)), Patient: 5 * time.Second,
	}
	if change != nil {
		change(&o)
	}
	if p.Broker, err = New(o); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { p.ended <- p.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-p.ended; err != nil {
			t.Errorf("the broker ended with %v", err)
		}
		if t.Failed() {
			t.Logf("%s", p.log)
		}
		if n := p.door.Running("session"); n != 0 {
			t.Errorf("%d slots are held by nobody", n)
		}
		if left := groupsOf("*." + strings.SplitN((&deputy{b: p.Broker}).groupName(), ".", 2)[1]); len(left) > 0 {
			t.Errorf("control groups are left: %v", left)
		}
	})
	select {
	case <-ready:
	case err := <-p.ended:
		p.ended <- nil
		t.Fatal(err)
	}
	return p
}

// groupsOf are the control groups of deputies with such a name.
func groupsOf(name string) []string {
	left, _ := filepath.Glob("/sys/fs/cgroup/*/mojoup.user-" + name)
	return left
}

// locked is a writer that may be shared.
type locked struct {
	mu sync.Mutex
	w  io.Writer
}

// said is the broker's log so far.
func (p *parish) said() string {
	p.logged.mu.Lock()
	defer p.logged.mu.Unlock()
	return p.log.String()
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// as asks as somebody.
func (p *parish) as(uid int) string {
	p.t.Helper()
	cmd := exec.Command("/proc/self/exe", "ask", p.socket)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		p.t.Errorf("uid %d: %v: %s", uid, err, out)
	}
	return string(out)
}

// TestConnectionsReachTheirOwnDeputy: the connection itself is handed over, and
// only its person's deputy gets it.
func TestConnectionsReachTheirOwnDeputy(t *testing.T) {
	p := atWork(t, nil)
	for range 3 {
		for _, uid := range []int{ann, bob} {
			if got := p.as(uid); got != strconv.Itoa(uid) {
				t.Errorf("uid %d was answered by %q", uid, got)
			}
		}
	}
}

// TestRetiringLosesNobody: deputies that want to end all the time, while people
// ask all the time, leave no request without an answer.
func TestRetiringLosesNobody(t *testing.T) {
	p := atWork(t, nil, "retires")
	var asking sync.WaitGroup
	for i := range 4 {
		asking.Go(func() {
			uid := []int{ann, bob}[i%2]
			for range 8 {
				if got := p.as(uid); got != strconv.Itoa(uid) {
					t.Errorf("uid %d was answered by %q", uid, got)
				}
			}
		})
	}
	asking.Wait()
}

// TestAHostileDeputyHarmsItselfOnly: whatever a person makes of their deputy,
// others are served, slots come back, and root is told the truth about whose it
// is.
func TestAHostileDeputyHarmsItselfOnly(t *testing.T) {
	for _, how := range []string{"mute", "stuck", "greedy", "garbled", "sends files", "forward", "liar", "many", "long"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			p := atWork(t, func(o *Options) { o.Patient = time.Second }, how)
			annAsks(t, p.socket)
			for range 3 {
				if got := p.as(bob); got != strconv.Itoa(bob) {
					t.Errorf("bob was answered by %q", got)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			s, err := overview{p.Broker}.Status(ctx, caller{}.Caller)
			if err != nil {
				t.Fatal(err)
			}
			for _, one := range s.Sessions {
				if one.User != strconv.Itoa(ann) || one.UID != ann {
					t.Errorf("a session is shown as %s's (%d)", one.User, one.UID)
				}
			}
			if n := p.door.Running("session"); n > 1 {
				t.Errorf("%d slots of 1", n)
			}
			waits := 0
			for _, w := range p.door.Queue() {
				if w.User != ann {
					t.Errorf("%d waits, who asked for nothing", w.User)
				}
				waits++
			}
			if waits > mayWait {
				t.Errorf("%d of one person wait", waits)
			}
		})
	}
}

// TestSlotsOfADeadDeputyAreFree: kill -9 gives back what it had.
func TestSlotsOfADeadDeputyAreFree(t *testing.T) {
	p := atWork(t, nil, "takes one slot")
	p.as(ann)
	eventually(t, "the slot is taken", func() bool { return p.door.Running("session") == 1 })
	p.mu.Lock()
	first := p.deputies[ann]
	p.mu.Unlock()
	first.kill()
	<-first.gone
	// Whoever takes its place undoes what is left, and takes a slot of its own.
	eventually(t, "another deputy has it", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.deputies[ann] != nil && p.deputies[ann] != first
	})
	eventually(t, "the slot is taken again", func() bool { return p.door.Running("session") == 1 })
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !ok(); {
		if time.Now().After(end) {
			t.Fatalf("waited too long until %s", what)
		}
		<-time.After(time.Millisecond)
	}
}

// TestPlacesAreMadeForTheirPerson: what lies where a person's directory is to be
// is taken only where it is theirs; nothing is followed, nothing given away.
func TestPlacesAreMadeForTheirPerson(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("wanted root, which alone can serve other people")
	}
	who := Person{UID: ann, GID: ann, Name: "ann"}
	for name, tt := range map[string]struct {
		before func(users string) error
		ok     bool
	}{
		"nothing":          {func(string) error { return nil }, true},
		"theirs":           {func(u string) error { return mkdirFor(u+"/70011", ann, 0o755) }, true},
		"half made":        {func(u string) error { return mkdirFor(u+"/70011", 0, 0o700) }, true},
		"somebody else's":  {func(u string) error { return mkdirFor(u+"/70011", bob, 0o700) }, false},
		"a link":           {func(u string) error { return os.Symlink("/etc", u+"/70011") }, false},
		"a file":           {func(u string) error { return os.WriteFile(u+"/70011", nil, 0o600) }, false},
		"open to others":   {func(u string) error { return os.Chmod(filepath.Dir(u), 0o777) }, false},
		"users of another": {func(u string) error { return os.Chown(u, bob, bob) }, false},
		"users are a link": {func(u string) error { _ = os.Remove(u); return os.Symlink("/tmp", u) }, false},
		"a link at the top": {func(u string) error {
			top := filepath.Dir(u)
			_ = os.Rename(top, top+"2")
			return os.Symlink(top+"2", top)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			state, runtime := dir+"/state", dir+"/run"
			if err := os.MkdirAll(state+"/users", 0o711); err != nil {
				t.Fatal(err)
			}
			if err := tt.before(state + "/users"); err != nil {
				t.Fatal(err)
			}
			p, err := openPlaces(state, runtime)
			if err == nil {
				defer p.close()
				_, _, err = p.of(who)
			}
			if (err == nil) != tt.ok {
				t.Fatalf("%v", err)
			}
			if err != nil {
				return
			}
			var st unix.Stat_t
			for _, made := range []string{state + "/users/70011", runtime + "/users/70011"} {
				if err := unix.Lstat(made, &st); err != nil || st.Uid != ann || st.Gid != ann || st.Mode&0o7777 != 0o700 {
					t.Errorf("%s: %v, %d:%d %o", made, err, st.Uid, st.Gid, st.Mode)
				}
			}
		})
	}
}

func mkdirFor(dir string, uid int, mode os.FileMode) error {
	if err := os.Mkdir(dir, mode); err != nil {
		return err
	}
	return os.Chown(dir, uid, uid)
}

// TestWhoIsAllowed reads the list as the setting means it.
func TestWhoIsAllowed(t *testing.T) {
	var c caller
	c.UID, c.GID, c.groups = ann, ann, []int{bob}
	for list, want := range map[string]bool{
		"": false, "*": true, "70011": true, "70012": false, "@70011": true, "@70012": true, "@70013": false,
		"root": false, "@root": false, "nobody-of-that-name": false, "@nobody-of-that-name": false, "root,70011": true, "7001": false,
	} {
		if got := allowed(strings.Split(list, ","), c); got != want {
			t.Errorf("%q: %v", list, got)
		}
	}
}

// A deputy that is dead has said all that it will ever say, also where somebody
// else has its end of the pair.
func TestDeadDeputyIsNotSpokenFor(t *testing.T) {
	l, theirs, err := pair()
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	stolen, err := newLink(theirs)
	if err != nil {
		t.Fatal(err)
	}
	defer stolen.close()
	if err := stolen.send(message{Kind: kindReady}, nil); err != nil {
		t.Fatal(err)
	}
	l.deaf()
	r := l.reader(false)
	if m, _, err := r.next(); err != nil || m.Kind != kindReady {
		t.Errorf("%+v, %v: what was said before is lost", m, err)
	}
	if err := stolen.send(message{Kind: kindReady}, nil); err == nil {
		t.Error("it is still listened to")
	}
	if m, _, err := r.next(); !errors.Is(err, io.EOF) {
		t.Errorf("%+v, %v", m, err)
	}
}

// TestTooLongAnswersAreNone: root's part reads no more of a deputy's answer than
// an honest one says, and decodes nothing that would grow.
func TestTooLongAnswersAreNone(t *testing.T) {
	for _, how := range []string{"many", "long"} {
		p := atWork(t, nil, how)
		p.as(ann)
		s, err := overview{p.Broker}.Status(t.Context(), caller{}.Caller)
		if err != nil || len(s.Sessions) > 0 || len(s.Unheard) != 1 || !strings.Contains(s.Unheard[0], "too long") {
			t.Errorf("%s: %d sessions, unheard %q, %v", how, len(s.Sessions), s.Unheard, err)
		}
	}
}

// TestNothingIsKeptOfADeadDeputy: whoever holds a dead deputy's pipe open holds
// no descriptor of the broker's.
func TestNothingIsKeptOfADeadDeputy(t *testing.T) {
	p := atWork(t, nil, "leaves somebody")
	pipes := func() (n int) {
		fds, err := filepath.Glob("/proc/self/fd/*")
		if err != nil {
			t.Fatal(err)
		}
		for _, fd := range fds {
			if to, _ := os.Readlink(fd); strings.HasPrefix(to, "pipe:") {
				n++
			}
		}
		return n
	}
	before := pipes()
	for range 3 {
		hers := exec.Command("/proc/self/exe", "ask", p.socket)
		hers.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: ann, Gid: ann}}
		_ = hers.Run() // who should answer ends as soon as it starts
	}
	left := regexp.MustCompile(`left (\d+)`)
	t.Cleanup(func() {
		for _, word := range left.FindAllStringSubmatch(p.said(), -1) {
			if pid, err := strconv.Atoi(word[1]); err == nil {
				_ = unix.Kill(pid, unix.SIGKILL)
			}
		}
		// Their group could not go before.
		name := (&deputy{b: p.Broker, who: Person{UID: ann}}).groupName()
		for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			g, err := p.groups.Delegate(name, ann, ann)
			if err != nil || g == nil {
				break
			}
			if g.Release(); len(groupsOf(name)) == 0 {
				break
			}
		}
	})
	for end := time.Now().Add(2 * time.Minute); pipes() > before || !left.MatchString(p.said()); {
		if time.Now().After(end) {
			t.Fatalf("%d pipes are open, %d before; log: %s", pipes(), before, p.said())
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// annAsks has ann ask for something until the test ends.
func annAsks(t *testing.T, socket string) {
	t.Helper()
	hers := exec.Command("/proc/self/exe", "ask", socket)
	hers.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: ann, Gid: ann}}
	if err := hers.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = hers.Process.Kill()
		_ = hers.Wait()
	})
}
