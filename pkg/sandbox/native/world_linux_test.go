package native

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/sandbox/kerneltest"
	"github.com/mojoup/mojoup-node/pkg/sandbox/native/child"
)

// ordinary is who sessions run as where the tests run as root.
const ordinary = 1000

// TestMain runs everything once more as an ordinary user where it runs as
// root: the two ways must be one. The binary is copied to where that user may
// read it.
func TestMain(m *testing.M) {
	if os.Getenv(asNode) != "" {
		os.Exit(beNode())
	}
	if os.Getenv(asKeeper) != "" {
		os.Exit(beKeeper())
	}
	if os.Getenv(asSender) != "" {
		os.Exit(beSender())
	}
	code := m.Run()
	switch {
	case os.Geteuid() != 0 || code != 0:
	case kerneltest.ShortOfLong():
		fmt.Println("=== not once more as user", ordinary, "without MOJOUP_TEST_LONG=1, as make test sets it")
	default:
		code = again()
	}
	os.Exit(code)
}

func again() int {
	dir, err := os.MkdirTemp("", "native-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	attack := filepath.Join(dir, "attack")
	for _, step := range []func() error{
		func() error { return os.Chmod(dir, 0o755) },
		func() error { return copyProgram("/proc/self/exe", filepath.Join(dir, "native.test")) },
		func() error { return os.CopyFS(filepath.Join(dir, "testdata"), os.DirFS("testdata")) },
		// The suite's program, which that user could not build: it may not be
		// able to read the module.
		func() error {
			build := exec.Command("go", "build", "-o", attack, "../sandboxtest/escape/attack")
			build.Env = append(os.Environ(), "CGO_ENABLED=0") // as the suite builds it
			return build.Run()
		},
	} {
		if err := step(); err != nil {
			fmt.Fprintln(os.Stderr, "no run as an ordinary user:", err)
			if kerneltest.Obliged() {
				return 1
			}
			return 0
		}
	}
	cmd := exec.Command(filepath.Join(dir, "native.test"), append(arguments(), "-test.skip=^TestGolden")...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), "HOME="+dir, "MOJOUP_TEST_ATTACK="+attack)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: ordinary, Gid: ordinary}}
	fmt.Println("=== once more as user", ordinary)
	if err := cmd.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "as an ordinary user:", err)
		return 1
	}
	return 0
}

// arguments are this run's, but for files that it is writing itself.
func arguments() []string {
	return slices.DeleteFunc(slices.Clone(os.Args[1:]), func(a string) bool {
		return strings.HasPrefix(a, "-test.testlogfile") || strings.HasPrefix(a, "-test.coverprofile") ||
			strings.HasPrefix(a, "-test.gocoverdir") || strings.HasPrefix(a, "-test.paniconexit0")
	})
}

func copyProgram(from, to string) error {
	program, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, program, 0o755)
}

// engine skips, naming what is missing, where sandboxes cannot be made, and
// fails instead where that was forbidden.
func engine(tb testing.TB) *Engine {
	tb.Helper()
	err := child.Available()
	if err == nil {
		err = child.TryNamespaces(tb.Context())
	}
	var e *Engine
	if err == nil {
		e, err = New(Options{})
	}
	kerneltest.Require(tb, "a native sandbox", err)
	tb.Cleanup(func() { e.Close() })
	return e
}

// world is what a test stands on: a repository of the session's user and an
// empty directory of the node.
type world struct {
	tb        testing.TB
	id        sandbox.Identity
	dir, repo string
}

func newWorld(tb testing.TB) *world {
	tb.Helper()
	dir, err := os.MkdirTemp("", "native-")
	check(tb, err)
	tb.Cleanup(func() { check(tb, os.RemoveAll(dir)) })
	check(tb, os.Chmod(dir, 0o755))
	w := &world{tb: tb, dir: dir, repo: filepath.Join(dir, "repo"), id: sandbox.Identity{UID: os.Geteuid(), GID: os.Getegid()}}
	if os.Geteuid() == 0 {
		w.id = sandbox.Identity{UID: ordinary, GID: ordinary}
	}
	for _, d := range []string{"repo", "repo/.git", "repo/.git/hooks", "empty"} {
		check(tb, os.Mkdir(filepath.Join(dir, d), 0o755))
	}
	w.write(".git/config", "[core]\n")
	check(tb, filepath.WalkDir(w.repo, func(p string, _ os.DirEntry, err error) error {
		return errors.Join(err, os.Chown(p, w.id.UID, w.id.GID))
	}))
	return w
}

func (w *world) write(name, content string) {
	w.tb.Helper()
	p := filepath.Join(w.repo, name)
	check(w.tb, os.WriteFile(p, []byte(content), 0o644))
	check(w.tb, os.Chown(p, w.id.UID, w.id.GID))
}

// spec is a small realistic one; guards protect .git as in a main work tree.
func (w *world) spec() sandbox.Spec {
	s := sandbox.Spec{
		ID: "t-" + strings.ToLower(strings.TrimPrefix(filepath.Base(w.dir), "native-")), Identity: w.id,
		Proxy: "127.0.0.1:3128", WorkDir: filepath.Join(w.dir, "empty"),
		Env: []string{"PATH=/usr/bin:/bin", "HOME=/tmp", "LANG=C.UTF-8", "TERM=xterm"},
		Mounts: []sandbox.Mount{
			{Kind: sandbox.Bind, Source: "/usr", Target: "/usr"},
			{Kind: sandbox.Link, Source: "usr/bin", Target: "/bin"},
			{Kind: sandbox.Link, Source: "usr/lib", Target: "/lib"},
			{Kind: sandbox.Link, Source: "usr/lib64", Target: "/lib64"},
			{Kind: sandbox.Bind, Source: "/etc/ssl", Target: "/etc/ssl", Optional: true},
			{Kind: sandbox.Bind, Source: "/etc/alternatives", Target: "/etc/alternatives", Optional: true},
			{Kind: sandbox.Text, Target: "/etc/passwd", Content: fmt.Appendf(nil, "u:x:%d:%d::/tmp:/bin/sh\n", w.id.UID, w.id.GID)},
			{Kind: sandbox.Scratch, Target: "/tmp", Access: sandbox.ReadWrite, Mode: os.ModeSticky | 0o777, Size: 64 << 20},
			{Kind: sandbox.Scratch, Target: "/run", Access: sandbox.ReadWrite, Size: 1 << 20},
			{Kind: sandbox.Bind, Source: w.repo, Target: w.repo, Access: sandbox.ReadWrite},
		},
	}
	git := filepath.Join(w.repo, ".git")
	s.Protect = []sandbox.Protection{
		{Path: git, Guard: sandbox.Pin},
		{Path: filepath.Join(git, "config"), Guard: sandbox.Freeze},
		{Path: filepath.Join(git, "hooks"), Guard: sandbox.Freeze},
	}
	return s
}

func check(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// open prepares a sandbox and serves its way out.
func open(tb testing.TB, spec sandbox.Spec) sandbox.Sandbox {
	tb.Helper()
	return openIn(tb, engine(tb), spec)
}

func openIn(tb testing.TB, e *Engine, spec sandbox.Spec) sandbox.Sandbox {
	tb.Helper()
	b, err := e.Prepare(soon(tb), spec)
	check(tb, err)
	go serve(b.Listener())
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		b.Listener().Close()
		if err := b.Remove(ctx); err != nil {
			tb.Error(err)
		}
	})
	return b
}

func soon(tb testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(tb.Context(), 2*time.Minute)
	tb.Cleanup(cancel)
	return ctx
}

// sh runs a script inside and returns what it said and how it ended.
func sh(tb testing.TB, b sandbox.Sandbox, script string) (string, sandbox.Exit) {
	tb.Helper()
	var out bytes.Buffer
	p, err := b.Exec(soon(tb), sandbox.Command{Argv: []string{"sh", "-c", script}}, sandbox.Stdio{Stdout: &out, Stderr: &out})
	check(tb, err)
	exit, err := p.Wait(soon(tb))
	check(tb, err)
	return out.String(), exit
}

// soonest is soon for what runs after the test's own context has ended.
func soonest() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	context.AfterFunc(ctx, cancel)
	return ctx
}
