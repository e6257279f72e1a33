package sandboxtest

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

func testExitCodes(t *testing.T, s *suite) {
	_, b := s.plain(t)
	for code := range 256 {
		if r := b.run(shell("/", fmt.Sprintf("exit %d", code))); r.Exit != (sandbox.Exit{Code: code}) {
			t.Errorf("exit %d: got %+v", code, r.Exit)
		}
	}
}

func testSignals(t *testing.T, s *suite) {
	_, b := s.plain(t)
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGABRT, syscall.SIGKILL, syscall.SIGSEGV, syscall.SIGTERM} {
		want := sandbox.Exit{Code: 128 + int(sig), Signal: int(sig)}
		if r := b.run(shell("/", fmt.Sprintf("kill -%d $$; sleep 60", sig))); r.Exit != want {
			t.Errorf("%v by itself: got %+v, want %+v", sig, r.Exit, want)
		}
		proc, line := b.start("/", "echo ready; exec sleep 60")
		line()
		must(t, proc.Signal(sig))
		if got := b.wait(proc); got != want {
			t.Errorf("%v sent: got %+v, want %+v", sig, got, want)
		}
	}
}

func testSignalGroup(t *testing.T, s *suite) {
	_, b := s.plain(t)
	// The outer one survives it too, from before the inner one says anything.
	proc, line := b.start("/", `trap : TERM; sh -c 'trap "exit 7" TERM; echo ready; sleep 60 & wait' &
		r=143; while [ $r = 143 ]; do wait $!; r=$?; done; exit $r`)
	if got := line(); got != "ready" {
		t.Fatalf("got %q", got)
	}
	must(t, proc.Signal(syscall.SIGTERM))
	if got := b.wait(proc); got.Code != 7 {
		t.Errorf("a child of the command did not get the signal: %+v", got)
	}
	if err := proc.Signal(syscall.SIGTERM); err == nil {
		t.Error("a signal after the end was accepted")
	}
	if _, err := proc.Wait(deadline(t)); err != nil {
		t.Errorf("a second Wait: %v", err)
	}
}

func testCannotStart(t *testing.T, s *suite) {
	p := s.newPlace(t)
	p.write(t, "data", "#!/bin/sh\n")
	p.write(t, "noformat", "\x00\x01\x02")
	must(t, os.Chmod(filepath.Join(p.repo, "noformat"), 0o755))
	b := s.open(t, s.spec(t, p))
	for _, c := range []struct {
		argv0 string
		code  int
	}{
		{"no-such-program", 127},
		{"/no/such/program", 127},
		{"./missing", 127},
		{"./data", 126},
		{"./noformat", 126},
		{"/usr", 126},
	} {
		_, err := b.try(sandbox.Command{Argv: []string{c.argv0}, Dir: p.repo}, nil)
		var exec *sandbox.ExecError
		if !errors.As(err, &exec) || exec.Code != c.code {
			t.Errorf("%s: got %v, want an ExecError of code %d", c.argv0, err, c.code)
		}
	}
	for name, c := range map[string]sandbox.Command{
		"no argv":     {},
		"empty argv0": {Argv: []string{""}},
		"zero byte":   {Argv: []string{"true", "a\x00b"}},
		"missing dir": {Argv: []string{"true"}, Dir: filepath.Join(p.repo, "missing")},
		"dir is file": {Argv: []string{"true"}, Dir: filepath.Join(p.repo, "data")},
	} {
		if _, err := b.try(c, nil); err == nil {
			t.Errorf("%s: started", name)
		}
	}
	b.sh("/", "true") // and the sandbox is still good
}

func testArgvExact(t *testing.T, s *suite) {
	_, b := s.plain(t)
	args := []string{"", " ", "a b", "line\nline\n", "tab\t", "\xff\xfe not utf-8", "*", "$HOME", `"'\`, "-n", strings.Repeat("x", 100_000)}
	r := b.run(sandbox.Command{Argv: append([]string{"sh", "-c", `printf '%s\0' "$@"`, "sh"}, args...)})
	if diff := cmp.Diff(args, strings.Split(strings.TrimSuffix(r.out, "\x00"), "\x00")); diff != "" {
		t.Errorf("arguments (-want +got):\n%s", diff)
	}
}

func testEnvironmentExact(t *testing.T, s *suite) {
	p := s.newPlace(t)
	spec := s.spec(t, p)
	spec.Env = append(spec.Env, "SPACE=a b", "LINES=a\nb\n", "BYTES=\xff\xfe", "EQUALS=a=b=", "EMPTY=", "TWICE=spec")
	b := s.open(t, spec)
	extra := []string{"TWICE=command", "MORE=1", "HOME=/elsewhere"}
	r := b.run(sandbox.Command{Argv: []string{"cat", "/proc/self/environ"}, Env: extra})
	want := variables(append(slices.Clone(spec.Env), extra...))
	if diff := cmp.Diff(want, variables(strings.Split(strings.TrimSuffix(r.out, "\x00"), "\x00"))); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
	if n := strings.Count("\x00"+r.out, "\x00TWICE="); n != 1 {
		t.Errorf("TWICE stands %d times", n)
	}
	if r := b.run(sandbox.Command{Argv: []string{"cat", "/proc/self/environ"}}); !maps.Equal(variables(spec.Env), variables(strings.Split(strings.TrimSuffix(r.out, "\x00"), "\x00"))) {
		t.Errorf("one command's environment reached the next: %q", r.out)
	}
	// The program is looked up in PATH inside, not in the node's.
	if r, err := b.try(sandbox.Command{Argv: []string{"true"}, Env: []string{"PATH=/nowhere"}}, nil); err == nil {
		t.Errorf("found outside PATH: %+v", r)
	}
}

func variables(env []string) map[string]string {
	m := map[string]string{}
	for _, kv := range env {
		k, v, _ := strings.Cut(kv, "=")
		m[k] = v
	}
	return m
}

func testDirectory(t *testing.T, s *suite) {
	p := s.newPlace(t)
	odd := filepath.Join(p.repo, "a b\nc:\xff")
	must(t, os.Mkdir(odd, 0o755))
	b := s.open(t, s.spec(t, p))
	for _, dir := range []string{"/", p.repo, odd} {
		if got := b.run(sandbox.Command{Argv: []string{"/usr/bin/readlink", "-n", "/proc/self/cwd"}, Dir: dir}); got.out != dir {
			t.Errorf("got directory %q, want %q", got.out, dir)
		}
	}
}

func testSeveral(t *testing.T, s *suite) {
	p, b := s.plain(t)
	first, line := b.start(p.repo, "echo ready; read x < fifo; exit 3")
	line()
	b.sh(p.repo, "mkfifo made; echo a > f")
	const n = 8
	results := make(chan string, n)
	for i := range n {
		go func() {
			r, err := b.try(shell(p.repo, fmt.Sprintf("cat f; exit %d", i)), nil)
			results <- fmt.Sprintf("%d %q %v", r.Code-i, r.out, err)
		}()
	}
	for range n {
		if got, want := <-results, fmt.Sprintf("%d %q %v", 0, "a\n", nil); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if got := b.wait(first); got.Code == 0 {
		t.Errorf("reading a missing file ended with %+v", got)
	}
}

func testB68(t *testing.T, s *suite) {
	_, b := s.plain(t)
	for _, script := range []string{
		"echo out; sleep 600 & exit 5",
		"echo out; setsid sleep 60 & exit 5", // an ordinary process gets away by this,
		"echo out; (trap '' TERM HUP; sleep 600; :) & exit 5",
		"echo out; (while :; do echo noise; done) & exit 5",
	} {
		began := time.Now()
		r := b.run(shell("/", script))
		if r.Code != 5 || !strings.HasPrefix(r.out, "out\n") && !strings.Contains(r.out, "\nout\n") {
			t.Errorf("%q: exit %d, output %.40q", script, r.Code, r.out)
		}
		if took := time.Since(began); took > 30*time.Second {
			t.Errorf("%q: Wait took %v", script, took)
		}
	}
}

// testB70 makes orphans; whoever is their new parent must collect them.
func testB70(t *testing.T, s *suite) {
	if !s.options.Confines {
		t.Skip("an ordinary process leaves its orphans to the host's first process")
	}
	_, b := s.plain(t)
	b.sh("/", "i=0; while [ $i -lt 1000 ]; do (sh -c : &) ; i=$((i+1)); done")
	deadline := time.Now().Add(patience)
	for {
		out := strings.TrimSpace(b.sh("/", `n=0; for s in /proc/[0-9]*/stat; do read x < $s || continue; case "$x" in *") Z "*) n=$((n+1));; esac; done 2>/dev/null; echo $n`))
		n, err := strconv.Atoi(out)
		must(t, err)
		if n < 10 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d zombies stay", n)
		}
	}
}
