package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/mojoup/mojoup-node/internal/cli"
	"github.com/mojoup/mojoup-node/pkg/console/api"
	"github.com/mojoup/mojoup-node/pkg/sandbox/kerneltest"
	"github.com/mojoup/mojoup-node/pkg/sandbox/native/child"
)

// scripts run several at once, because they wait more than they compute.
type scripts struct{ *testing.M }

func (s scripts) Run() int {
	kerneltest.Together(4)
	return s.M.Run()
}

func TestMain(m *testing.M) {
	testscript.Main(scripts{m}, map[string]func(){
		"mojoup-node": func() { os.Exit(cli.Main(os.Args[1:], cli.ThisProcess())) },
	})
}

// TestScripts runs every file of testdata/script: together they specify the
// command line. Each has directories of its own, so that no node of one is
// another's, and whatever a script started is ended after it.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/script/*.txtar")
	if err != nil || len(files) < 20 {
		t.Fatalf("found %d scripts, %v", len(files), err)
	}
	testscript.Run(t, testscript.Params{
		Dir:       "testdata/script",
		Setup:     func(env *testscript.Env) error { return setup(env) },
		Condition: func(name string) (bool, error) { return condition(t, name) },
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"screen": screen,
			"shape":  shape,
			"slay":   slay,
		},
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
	})
}

// slay kills the node that answers, as nothing can prevent, and waits until
// nothing of it is open: a process that it was just about to start has its
// socket and its lock for a moment longer.
func slay(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 0 {
		ts.Fatalf("usage: slay")
	}
	ts.Check(ts.Exec("mojoup-node", "status", "--json"))
	var s api.Status
	ts.Check(json.Unmarshal([]byte(ts.ReadFile("stdout")), &s))
	if s.Node.PID == 0 {
		ts.Fatalf("slay: no node answers")
	}
	ts.Check(slayProcess(s.Node.PID))
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for late := time.After(seeWithin); ; {
		conn, err := net.Dial("unix", s.Node.Socket)
		if err != nil {
			return
		}
		_ = conn.Close()
		select {
		case <-tick.C:
		case <-late:
			ts.Fatalf("slay: something holds %s", s.Node.Socket)
		}
	}
}

func condition(t *testing.T, name string) (bool, error) {
	switch name {
	case "root":
		return os.Getuid() == 0, nil
	case "sandbox":
		return canSandbox(t), nil
	}
	program, ok := strings.CutPrefix(name, "has:")
	if !ok {
		return false, fmt.Errorf("unknown condition %q", name)
	}
	_, err := exec.LookPath(program)
	return err == nil, nil
}

// ordinaryUser is somebody whom this machine knows and who is not root.
func ordinaryUser(t *testing.T) (uid int) {
	t.Helper()
	for _, uid := range []int{1000, 65534} { // the first person of most machines, and nobody
		if _, err := user.LookupId(strconv.Itoa(uid)); err == nil {
			return uid
		}
	}
	kerneltest.Lacking(t, "an ordinary user", "neither uid 1000 nor 65534")
	return 0
}

// TestScriptsAsUser runs all of them again as an ordinary user, where root
// runs the tests.
func TestScriptsAsUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("wanted root, which can become another user; TestScripts ran as one")
	}
	kerneltest.Long(t)
	dir, err := os.MkdirTemp("", "mjuser")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	asUser(t, dir, "TestScripts", nil)
}

// asUser runs a test as an ordinary user with these groups besides: in a copy
// in dir, because that user may not be able to read the tree.
func asUser(t *testing.T, dir, test string, groups []int, env ...string) {
	t.Helper()
	uid := ordinaryUser(t)
	for _, args := range [][]string{
		{"cp", os.Args[0], dir + "/scripts.test"},
		{"cp", "-r", "testdata", filepath.FromSlash(jsonPage), dir},
		{"mkdir", dir + "/tmp", dir + "/home"},
		{"chown", "-R", strconv.Itoa(uid), dir},
		{"chmod", "-R", "a+rX", dir},
	} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
	}
	cmd := exec.Command(dir+"/scripts.test", "-test.run", "^"+test+"$", "-test.timeout", "25m")
	if testing.Verbose() {
		cmd.Args = append(cmd.Args, "-test.v")
	}
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HOME="+dir+"/home", "TMPDIR="+dir+"/tmp", "USER=", "LOGNAME=", "XDG_RUNTIME_DIR=", "PATH=/usr/local/bin:/usr/bin:/bin")
	cmd.Env = append(cmd.Env, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	for _, gid := range groups {
		cmd.SysProcAttr.Credential.Groups = append(cmd.SysProcAttr.Credential.Groups, uint32(gid))
	}
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	if err := cmd.Run(); err != nil {
		t.Errorf("as uid %d: %v", uid, err)
	}
}

// setup gives a script directories of its own, and these variables besides.
func setup(env *testscript.Env, besides ...string) error {
	run, err := os.MkdirTemp("", "mj") // short: a socket's path is bounded
	if err != nil {
		return err
	}
	env.Vars = append(env.Vars,
		"MOJOUP_CONFIG="+env.WorkDir+"/etc/node.toml", "MOJOUP_STATE_DIR="+env.WorkDir+"/state",
		"MOJOUP_RUNTIME_DIR="+run, "HOME="+env.WorkDir+"/home", "XDG_STATE_HOME="+env.WorkDir+"/register", "NO_COLOR=1", "LANG=C.UTF-8",
		"GIT_CONFIG_NOSYSTEM=1", "MOJOUP_NODE_CONSOLE_LISTEN=off", fmt.Sprint("ORPHANS=", kerneltest.Rounds(5000, 1000)),
	)
	env.Vars = append(env.Vars, besides...)
	vars := append([]string(nil), env.Vars...)
	env.Defer(func() {
		tidy := func(args ...string) {
			cmd := exec.Command("mojoup-node", args...)
			cmd.Env = vars
			_ = cmd.Run()
		}
		tidy("serve", "--stop")
		// A node that a script has killed is in its register still, and nobody
		// would know of its control groups once its state is removed.
		if left, _ := filepath.Glob(env.WorkDir + "/register/mojoup/nodes/*.json"); len(left) > 0 {
			tidy("cleanup")
		}
		_ = os.RemoveAll(run)
	})
	return os.Mkdir(filepath.Join(env.WorkDir, "home"), 0o700)
}

// canSandbox reports whether this machine can run the scripts that need a
// sandbox. In CI they must run.
func canSandbox(t testing.TB) bool {
	err := child.TryNamespaces(t.Context())
	if err == nil {
		return true
	}
	if kerneltest.Obliged() {
		t.Errorf("scripts need a sandbox: %v", err)
	}
	return false
}
