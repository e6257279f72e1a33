package realtest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mojoup/mojoup-node/pkg/sandbox/kerneltest"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/enginetest"
)

// within bounds one program in a session. The slowest, an agent, takes ten
// seconds where nothing else runs.
const within = 3 * time.Minute

// tmp holds what all tests share; TestMain makes and removes it.
var tmp string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	var err error
	if tmp, err = os.MkdirTemp("", "realtest-"); err == nil {
		err = os.Chmod(tmp, 0o755) // #nosec: another uid runs the binary
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(tmp)
	defer fetchAhead()()
	return m.Run()
}

// binary builds the node once, as the Makefile does; MOJOUP_TEST_BINARY names
// one that is there already.
var binary = sync.OnceValues(func() (string, error) {
	if there := os.Getenv("MOJOUP_TEST_BINARY"); there != "" {
		return there, nil
	}
	out := filepath.Join(tmp, "mojoup-node")
	cmd := exec.Command("go", "build", "-tags", "osusergo,netgo", "-ldflags", "-linkmode external -extldflags -static", "-o", out, "github.com/mojoup/mojoup-node/cmd/mojoup-node")
	if said, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the node: %w\n%s", err, said)
	}
	return out, nil
})

// programs are those that a test needs, on the path of [somebody].
func programs(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := exec.LookPath(name); err != nil {
			kerneltest.Lacking(t, name, "no such program")
		}
	}
}

// systemPath is where sessions of a test look for programs: nothing of the
// home of whoever runs the tests.
const systemPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// A somebody is a user who runs a node.
type somebody struct {
	uid, gid int
	name     string
	// gateway is the generation of the one that sessions run at, on engine
	// docker; empty means engine native.
	gateway string
}

// everybody runs a test as root and as an ordinary user where it may, else as
// whoever runs the test. A node is built for them, which takes long.
func everybody(t *testing.T, test func(*testing.T, somebody)) {
	t.Helper()
	kerneltest.Long(t)
	who := []somebody{{uid: os.Getuid(), gid: os.Getgid()}}
	if os.Getuid() == 0 {
		who = append(who, somebody{uid: 1000, gid: 1000})
	}
	for _, s := range who {
		u, err := user.LookupId(strconv.Itoa(s.uid))
		if err != nil {
			t.Run("uid "+strconv.Itoa(s.uid), func(t *testing.T) { kerneltest.Lacking(t, "a user with this uid", err.Error()) })
			continue
		}
		s.name = u.Username
		t.Run("uid "+strconv.Itoa(s.uid), func(t *testing.T) { test(t, s) })
	}
}

// somebodyElse runs a test as an ordinary user where it may, else as whoever
// runs the test: for what takes long and does not depend on who it is.
func somebodyElse(t *testing.T, test func(*testing.T, somebody)) {
	t.Helper()
	everybody(t, func(t *testing.T, who somebody) {
		if who.uid != 0 || os.Getuid() != 0 {
			test(t, who)
		}
	})
}

// A rig is one node of somebody's, in a mount namespace whose names and
// certificate authorities are the test's.
type rig struct {
	t    *testing.T
	who  somebody
	dir  string // holds all of it
	home string
	repo string
	path []string // beside systemPath, first
	env  []string // of the node and of who asks it
	// groups are the node's supplementary ones; empty means none.
	groups string
	ca     *authority
	log    string
	// kill ends the node as nothing should, and waits for its end.
	kill func()
	// double is the gateway of engine docker, or nil.
	double *enginetest.Double
	// programs is a directory of programs that sessions have: see [having].
	programs string
	pid      int // of the node
}

// A rigOption changes a rig before its node starts.
type rigOption func(*rig)

// onPath puts a directory before the system's.
func onPath(dir string) rigOption { return func(r *rig) { r.path = append(r.path, dir) } }

// newRig starts a node. Names are pointed at the addresses beside them.
func newRig(t *testing.T, who somebody, hosts map[string]string, options ...rigOption) *rig {
	t.Helper()
	r := place(t, who, hosts, options...)
	node, err := binary()
	r.must(err)
	r.start(node)
	return r
}

// place is a rig without a node.
func place(t *testing.T, who somebody, hosts map[string]string, options ...rigOption) *rig {
	t.Helper()
	programs(t, "unshare", "setpriv", "mount", "git")
	dir, err := os.MkdirTemp(tmp, "rig-")
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, who: who, dir: dir, home: filepath.Join(dir, "home"), repo: filepath.Join(dir, "repo"), log: filepath.Join(dir, "node.log"), ca: newAuthority(t)}
	for _, o := range options {
		o(r)
	}
	if who.gateway != "" {
		r.onDouble()
	}
	for _, d := range []string{"home", "repo", "state", "run", "config"} {
		r.must(os.Mkdir(filepath.Join(dir, d), 0o700))
	}
	r.write("hosts", hostsFile(hosts), 0o644)
	system, err := os.ReadFile(bundlePath)
	if err != nil {
		kerneltest.Lacking(t, bundlePath, err.Error())
	}
	r.write("bundle.crt", string(system)+string(r.ca.pem), 0o644)
	r.own()
	if said, err := r.outside("git", "-C", r.repo, "init", "-q", "-b", "main").run(); err != nil {
		t.Fatalf("git init: %v\n%s", err, said.all())
	}
	return r
}

// bundlePath is the system's file of certificate authorities.
const bundlePath = "/etc/ssl/certs/ca-certificates.crt"

func hostsFile(hosts map[string]string) string {
	text := "127.0.0.1 localhost\n::1 localhost\n"
	for name, address := range hosts {
		text += address + " " + name + "\n"
	}
	return text
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// write makes a file of the rig; name is below its directory.
func (r *rig) write(name, text string, mode os.FileMode) string {
	r.t.Helper()
	p := filepath.Join(r.dir, name)
	r.must(os.MkdirAll(filepath.Dir(p), 0o755))
	r.must(os.WriteFile(p, []byte(text), mode))
	return p
}

// own gives the whole rig to its somebody.
func (r *rig) own() {
	r.t.Helper()
	r.must(os.Chmod(r.dir, 0o755))
	if r.who.uid == os.Getuid() {
		return
	}
	r.must(filepath.WalkDir(r.dir, func(p string, _ os.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(p, r.who.uid, r.who.gid))
	}))
}

// environ is the person's environment, for the node and for both sides of
// every comparison.
func (r *rig) environ() []string {
	return append([]string{
		"HOME=" + r.home, "USER=" + r.who.name, "LOGNAME=" + r.who.name, "LANG=C.UTF-8", "TERM=dumb", "SHELL=/bin/sh",
		"PATH=" + strings.Join(append(append([]string{}, r.path...), systemPath), ":"),
		"MOJOUP_CONFIG=" + filepath.Join(r.dir, "config", "node.toml"),
		"MOJOUP_STATE_DIR=" + filepath.Join(r.dir, "state"),
		"MOJOUP_RUNTIME_DIR=" + filepath.Join(r.dir, "run"),
		"MOJOUP_NODE_NETWORK_PRIVATE=127.0.0.0/8",
		"MOJOUP_NODE_CONSOLE_LISTEN=127.0.0.1:0",
	}, r.env...)
}

// fromOutside is called before the node is asked, or looked at, from outside of
// the rig's namespaces. An ordinary user's rig has a user namespace: its node
// takes no callers of another one, and whoever made it may look into the node.
func (r *rig) fromOutside() {
	r.t.Helper()
	if os.Getuid() != 0 {
		r.t.Skip("wanted root, whose node needs no user namespace, found an ordinary user")
	}
}

// inNamespace is a command line that mounts the test's names and authorities,
// becomes the rig's somebody, and then runs command. An ordinary user does the
// same in a user namespace of their own.
func (r *rig) inNamespace(command ...string) []string {
	unshare := []string{"unshare", "--mount"}
	groups := "--clear-groups"
	if r.groups != "" {
		groups = "--groups " + r.groups
	}
	become := fmt.Sprintf("setpriv --reuid %d --regid %d %s", r.who.uid, r.who.gid, groups)
	if os.Getuid() != 0 {
		unshare = []string{"unshare", "--map-current-user", "--keep-caps", "--mount"}
		become = "setpriv --inh-caps=-all --ambient-caps=-all"
	}
	script := "mount --bind \"$1\" /etc/hosts && mount --bind \"$2\" " + bundlePath + " && shift 2 && exec " + become + " \"$@\""
	return append(append(unshare, "sh", "-c", script, "sh", filepath.Join(r.dir, "hosts"), filepath.Join(r.dir, "bundle.crt")), command...)
}

// on is the same rig for a subtest, which then fails alone.
func (r *rig) on(t *testing.T) *rig {
	sub := *r
	sub.t = t
	return &sub
}

// start runs the node until the test ends.
func (r *rig) start(node string) {
	r.t.Helper()
	log, err := os.OpenFile(r.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	r.must(err)
	ready, said, err := os.Pipe()
	r.must(err)
	defer ready.Close()
	args := r.inNamespace(node, "serve")
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(r.environ(), "MOJOUP_READY_FD=3")
	if r.double != nil {
		cmd.Env = append(cmd.Env, "PATH="+filepath.Join(r.dir, "openshell")+":"+systemPath)
	}
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = "/", log, log, []*os.File{said}
	cmd.WaitDelay = 5 * time.Second
	r.must(cmd.Start())
	r.pid = cmd.Process.Pid // what is run in the namespace becomes the node
	r.must(errors.Join(said.Close(), log.Close()))
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	killed := false
	r.kill = func() {
		killed = true
		_ = cmd.Process.Kill()
		<-ended
	}
	r.t.Cleanup(func() {
		if !killed {
			r.stop(cmd, ended)
		}
	})
	r.must(ready.SetReadDeadline(time.Now().Add(within)))
	word := make([]byte, 1024)
	n, err := ready.Read(word)
	if strings.TrimSpace(string(word[:n])) != "ready" {
		r.t.Fatalf("the node did not start: %q (%v)\n%s", word[:n], err, r.nodeLog())
	}
}

// stop ends the node as an operator would, and only then by force.
func (r *rig) stop(cmd *exec.Cmd, ended <-chan error) {
	_ = cmd.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-ended:
		if err != nil {
			r.t.Errorf("the node ended with %v\n%s", err, r.nodeLog())
		}
	case <-time.After(2 * time.Minute):
		_ = cmd.Process.Kill()
		<-ended
		r.t.Errorf("the node did not end\n%s", r.nodeLog())
	}
	if log := r.nodeLog(); strings.Contains(log, `"level":"ERROR"`) {
		r.t.Errorf("the node's log holds an error")
	}
	if r.t.Failed() {
		r.t.Logf("the node's log:\n%s", r.nodeLog())
	}
}

func (r *rig) nodeLog() string {
	b, err := os.ReadFile(r.log)
	if err != nil {
		return err.Error()
	}
	if len(b) > 8000 {
		b = b[len(b)-8000:]
	}
	return string(b)
}

// A job is one program to be run, inside or outside.
type job struct {
	r      *rig
	args   []string
	env    []string
	dir    string
	inside bool
	policy string
	tool   string
	prompt string
	most   time.Duration // that it may take; 0 means within
}

// inside is a job in a session under a policy.
func (r *rig) inside(policy string, command ...string) *job {
	return &job{r: r, args: command, dir: r.repo, inside: true, policy: policy}
}

// outside is the same job as an ordinary process, with the same names.
func (r *rig) outside(command ...string) *job {
	// Node has authorities of its own, and is told of ours inside as well.
	j := &job{r: r, args: command, dir: r.repo}
	return j.with("NODE_EXTRA_CA_CERTS=" + filepath.Join(r.dir, "bundle.crt"))
}

// with adds variables.
func (j *job) with(env ...string) *job {
	j.env = append(j.env, env...)
	return j
}

// as makes the command line arguments of a tool, which run then fills in.
func (j *job) as(tool string) *job {
	j.tool = tool
	return j
}

// asked has the tool answer one prompt without a person, as its profile says.
func (j *job) asked(prompt string) *job {
	j.prompt = prompt
	return j
}

// atMost bounds a job that waits for something else.
func (j *job) atMost(d time.Duration) *job {
	j.most = d
	return j
}

// A result is what a program said.
type result struct {
	stdout, stderr string
	code           int
	took           time.Duration
}

func (r result) all() string { return r.stdout + r.stderr }

// run does the job; an exit code other than 0 is no error, being unable to run
// or not coming to an end is.
func (j *job) run() (result, error) {
	j.r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), cmp.Or(j.most, within))
	defer cancel()
	args := j.r.inNamespace(j.args...)
	env := append(j.r.environ(), j.env...)
	if j.r.double != nil && j.r.programs != "" {
		env = append(env, "PATH="+j.r.programs+":"+systemPath) // outside they are no image's
	}
	if j.inside {
		args = j.sessionArgs()
		env = j.r.environ()
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = j.dir, env, 5*time.Second
	if j.inside && j.r.who.uid != os.Getuid() {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(j.r.who.uid), Gid: uint32(j.r.who.gid)}}
	}
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	begin := time.Now()
	err := cmd.Run()
	res := result{out.String(), said.String(), cmd.ProcessState.ExitCode(), time.Since(begin)}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && ctx.Err() == nil {
		err = nil
	}
	return res, err
}

func (j *job) sessionArgs() []string {
	node, err := binary()
	j.r.must(err)
	args := []string{node, "run", "--no-tty", "--repo", j.r.repo}
	if j.policy != "" {
		f, err := os.CreateTemp(j.r.dir, "policy-*.json")
		j.r.must(err)
		_, err = f.WriteString(j.policy)
		j.r.must(errors.Join(err, f.Chmod(0o644), f.Close()))
		args = append(args, "--policy", f.Name())
	}
	if j.tool != "" {
		args = append(args, "--tool", j.tool)
	}
	if j.prompt != "" {
		args = append(args, "--headless", j.prompt)
	}
	for _, kv := range j.env {
		args = append(args, "--env", kv)
	}
	return append(append(args, "--"), j.args...)
}

// succeed runs the job, which must end with 0, and returns what it said.
func (j *job) succeed() result {
	j.r.t.Helper()
	res, err := j.run()
	if err != nil || res.code != 0 {
		j.r.t.Fatalf("%s: exit code %d, error %v, after %v\nstdout: %s\nstderr: %s", j.where(), res.code, err, res.took, res.stdout, res.stderr)
	}
	return res
}

// fail runs the job, which must end with something else than 0.
func (j *job) fail() result {
	j.r.t.Helper()
	res, err := j.run()
	if err != nil || res.code == 0 || res.code == 125 {
		j.r.t.Fatalf("%s: exit code %d, error %v, after %v; want a refusal\nstdout: %s\nstderr: %s", j.where(), res.code, err, res.took, res.stdout, res.stderr)
	}
	return res
}

func (j *job) where() string {
	if j.inside {
		return "inside, " + strings.Join(j.args, " ")
	}
	return "outside, " + strings.Join(j.args, " ")
}

// mention fails where a text is not in what a program said.
func (r *rig) mention(res result, want string) {
	r.t.Helper()
	if !strings.Contains(res.all(), want) {
		r.t.Errorf("want %q in what the program said:\nstdout: %s\nstderr: %s", want, res.stdout, res.stderr)
	}
}
