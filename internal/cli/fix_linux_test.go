package cli

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mojoup/mojoup-node/internal/config"
	"github.com/mojoup/mojoup-node/pkg/capability"
)

// TestFixesOfTheDockerEngine: the registration of a gateway that answers, and the
// image that the settings name, are offered, done and taken back, the newest
// first, and neither where it would help nobody.
func TestFixesOfTheDockerEngine(t *testing.T) {
	dir := t.TempDir()
	calls := filepath.Join(dir, "calls")
	for _, program := range []string{"openshell", "docker"} {
		script := "#!/bin/sh\necho " + program + ` "$@" >>"` + calls + `"` + "\n"
		if err := os.WriteFile(filepath.Join(dir, program), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, value := range map[string]string{
		"PATH": dir + ":/usr/bin:/bin", "HOME": dir, "XDG_CONFIG_HOME": "", "OPENSHELL_GATEWAY": "", "OPENSHELL_GATEWAY_ENDPOINT": "",
		"OPENSHELL_SYSTEM_GATEWAY_DIR": filepath.Join(dir, "none"),
	} {
		t.Setenv(name, value)
	}
	settings, err := config.Origin{Environ: []string{"MOJOUP_NODE_SANDBOX_IMAGE=registry.example/image:1"}}.Load()
	if err != nil {
		t.Fatal(err)
	}
	h := here{paths: config.Paths{State: filepath.Join(dir, "state")}, settings: settings}
	var said bytes.Buffer
	p := Process{Stdin: strings.NewReader(""), Stdout: &said, Stderr: &said, UID: os.Getuid(), Getenv: func(string) string { return "" }}
	report := func(states map[string]capability.State) (r capability.Report) {
		for name, state := range states {
			r.Checks = append(r.Checks, capability.Check{Name: name, State: state})
		}
		return r
	}
	both := report(map[string]capability.State{capability.NameCLI: capability.OK, capability.NameDocker: capability.OK, capability.NameImage: capability.Warn})
	yes, no := func(string) bool { return true }, func(string) bool { return false }

	offered := func(r capability.Report, listens func(string) bool) (out []string) {
		for _, f := range h.fixes(p, r, listens) {
			out = append(out, strings.Join(f.Do, " "))
		}
		return out
	}
	register := "openshell gateway add https://127.0.0.1:17670 --local --name openshell"
	pull := "docker pull registry.example/image:1"
	for name, tc := range map[string]struct {
		r       capability.Report
		listens func(string) bool
		want    []string
	}{
		"both":                       {both, yes, []string{register, pull}},
		"nothing answers":            {both, no, []string{pull}},
		"no command line":            {report(map[string]capability.State{capability.NameCLI: capability.Fail, capability.NameImage: capability.Warn}), yes, []string{pull}},
		"no Docker":                  {report(map[string]capability.State{capability.NameDocker: capability.Fail, capability.NameImage: capability.Warn}), no, nil},
		"the image is fetched later": {report(map[string]capability.State{capability.NameDocker: capability.OK, capability.NameImage: capability.Warn}), no, []string{pull}},
		"the image is unfit":         {report(map[string]capability.State{capability.NameDocker: capability.OK, capability.NameImage: capability.Fail}), no, nil},
		"the image is fit":           {report(map[string]capability.State{capability.NameImage: capability.OK}), no, nil},
	} {
		if got := offered(tc.r, tc.listens); !slices.Equal(got, tc.want) {
			t.Errorf("%s: offered %q, want %q", name, got, tc.want)
		}
	}

	for _, f := range h.fixes(p, both, yes) {
		if err := h.carryOut(context.Background(), f); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.undoFixes(context.Background(), p); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(calls)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{register, pull, "docker rmi registry.example/image:1", "openshell gateway remove openshell"}
	if got := strings.Split(strings.TrimSpace(string(text)), "\n"); !slices.Equal(got, want) {
		t.Errorf("called %q, want %q", got, want)
	}
	if done, err := h.remembered(); err != nil || len(done) > 0 {
		t.Errorf("still to be taken back: %v, %v", done, err)
	}

	// A gateway that is registered, if badly, is nobody's to register anew.
	t.Setenv("OPENSHELL_GATEWAY_ENDPOINT", "https://elsewhere.example:1")
	if got := offered(both, yes); !slices.Equal(got, []string{pull}) {
		t.Errorf("with a gateway that cannot be used: offered %q", got)
	}
}

// TestNoFixHangs: a fix that is given up ends with what it has started, and one that
// leaves something running is done.
func TestNoFixHangs(t *testing.T) {
	for name, giveUp := range map[string]bool{"it leaves something running": false, "it is given up": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			up, held := filepath.Join(t.TempDir(), "up"), filepath.Join(t.TempDir(), "held")
			for _, fifo := range []string{up, held} {
				if err := syscall.Mkfifo(fifo, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			holder, err := os.OpenFile(held, os.O_RDWR, 0) // until the test is over
			if err != nil {
				t.Fatal(err)
			}
			defer holder.Close()
			script := "(read line <" + held + ") & "
			if giveUp {
				script += "echo up >" + up + "; wait"
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan error, 1)
			go func() { done <- runFix(ctx, []string{"sh", "-c", script}) }()
			if giveUp {
				if _, err := os.ReadFile(up); err != nil { // until the shell has said it
					t.Fatal(err)
				}
				cancel()
			}
			select {
			case err := <-done:
				if (err != nil) != giveUp {
					t.Errorf("it says %v", err)
				}
			case <-time.After(2 * time.Minute):
				t.Fatal("it hangs")
			}
		})
	}
}
