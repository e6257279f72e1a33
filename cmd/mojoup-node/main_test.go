package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/mojoup/mojoup-node/internal/cli"
	"github.com/mojoup/mojoup-node/pkg/sandbox/kerneltest"
	"github.com/mojoup/mojoup-node/pkg/sandbox/native/child"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"mojoup-node": func() { os.Exit(cli.Main(os.Args[1:], cli.ThisProcess())) },
	})
}

// TestScripts runs every file of testdata/script: together they specify the
// command line. Each has directories of its own, so that no node of one is
// another's, and whatever a script started is ended after it.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/script/*.txtar")
	if err != nil || len(files) < 10 {
		t.Fatalf("found %d scripts, %v", len(files), err)
	}
	testscript.Run(t, testscript.Params{
		Dir:   "testdata/script",
		Setup: setup,
		Condition: func(name string) (bool, error) {
			switch name {
			case "root":
				return os.Getuid() == 0, nil
			case "sandbox":
				return canSandbox(t), nil
			}
			_, err := exec.LookPath(strings.TrimPrefix(name, "has:"))
			return err == nil, nil
		},
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
	})
}

func setup(env *testscript.Env) error {
	run, err := os.MkdirTemp("", "mj") // short: a socket's path is bounded
	if err != nil {
		return err
	}
	env.Vars = append(env.Vars,
		"MOJOUP_CONFIG="+env.WorkDir+"/etc/node.toml", "MOJOUP_STATE_DIR="+env.WorkDir+"/state",
		"MOJOUP_RUNTIME_DIR="+run, "HOME="+env.WorkDir+"/home", "NO_COLOR=1", "LANG=C.UTF-8",
		"GIT_CONFIG_NOSYSTEM=1",
	)
	vars := append([]string(nil), env.Vars...)
	env.Defer(func() {
		stop := exec.Command("mojoup-node", "serve", "--stop")
		stop.Env = vars
		_ = stop.Run()
		_ = os.RemoveAll(run)
	})
	return os.Mkdir(filepath.Join(env.WorkDir, "home"), 0o700)
}

// canSandbox reports whether this machine can run the scripts that need a
// sandbox. In CI they must run.
func canSandbox(t *testing.T) bool {
	err := child.TryNamespaces(t.Context())
	if err == nil {
		return true
	}
	if kerneltest.Obliged() {
		t.Errorf("scripts need a sandbox: %v", err)
	}
	return false
}
