package openshell_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell"
)

// A world is one gateway to test against: the double in either generation, or
// a real one.
type world struct {
	client openshell.Client
	image  string
	uid    int
	node   string // value of the label that finds what a test has made
}

// request is a sandbox that sleeps, with these mounts.
func (w world) request(t *testing.T, mounts ...openshell.Mount) openshell.Request {
	r := openshell.Request{
		Name: openshell.Name(w.node, t.Name()), Image: w.image, Command: []string{"/bin/sleep", "86400"},
		Labels: map[string]string{openshell.LabelNode: w.node},
		UID:    w.uid, GID: w.uid, Workspace: true, Mounts: mounts,
		ReadOnly: []string{"/usr", "/bin", "/lib", "/etc", "/proc"}, ReadWrite: []string{"/tmp", "/dev/null", "/dev/zero"},
		Memory: 512 << 20, CPUs: 2,
	}
	for _, m := range mounts {
		if m.ReadOnly {
			r.ReadOnly = append(r.ReadOnly, m.Target)
		} else {
			r.ReadWrite = append(r.ReadWrite, m.Target)
		}
	}
	return r
}

// up makes a sandbox and deletes it again.
func (w world) up(t *testing.T, r openshell.Request) openshell.Record {
	t.Helper()
	ctx := bounded(t)
	made, err := w.client.Create(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.down(t, made.Ref) })
	ready, err := w.client.Ready(ctx, made.Ref, func(p openshell.Progress) { t.Logf("%s %s %s", p.Phase, p.Reason, p.Message) })
	if err != nil {
		t.Fatal(err)
	}
	if ready.Ref != made.Ref {
		t.Fatalf("made %v, ready %v", made.Ref, ready.Ref)
	}
	return ready
}

func (w world) down(t *testing.T, ref openshell.Ref) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	defer cancel()
	if err := w.client.Delete(ctx, ref); err != nil {
		t.Errorf("delete: %v", err)
	}
	if err := w.client.Gone(ctx, ref); err != nil {
		t.Errorf("gone: %v", err)
	}
}

func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// sh runs a line of shell and wants it to end well.
func (w world) sh(t *testing.T, ref openshell.Ref, line string) string {
	t.Helper()
	res, err := w.client.Run(bounded(t), ref, openshell.Short{Argv: []string{"/bin/sh", "-c", line}})
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	if res.Code != 0 {
		t.Fatalf("%s: exit %d: %s", line, res.Code, res.Stderr)
	}
	return strings.TrimSpace(string(res.Stdout))
}

// suite is what every gateway must do for this client.
func suite(t *testing.T, w world) {
	t.Run("whole life", func(t *testing.T) { wholeLife(t, w) })
	t.Run("streams", func(t *testing.T) { streams(t, w) })
	t.Run("terminal", func(t *testing.T) { terminal(t, w) })
	t.Run("mounts", func(t *testing.T) { mounts(t, w) })
	t.Run("refusals", func(t *testing.T) { refusals(t, w) })
	t.Run("measured", func(t *testing.T) { measured(t, w) })
}

func wholeLife(t *testing.T, w world) {
	ctx := bounded(t)
	r := w.request(t)
	r.Labels["mojoup-test"] = "life"
	if _, err := w.client.Get(ctx, r.Name); !errors.Is(err, openshell.NotFound) {
		t.Fatalf("before: %v", err)
	}
	s := w.up(t, r)
	if s.Instance == "" && w.client.Gateway().Generation == openshell.V00 {
		t.Error("the main process has no instance")
	}
	if _, err := w.client.Create(ctx, r); !errors.Is(err, openshell.NameTaken) {
		t.Errorf("made twice: %v", err)
	}
	found, err := w.client.List(ctx, map[string]string{openshell.LabelNode: w.node, "mojoup-test": "life"})
	if err != nil || len(found) != 1 || found[0].Ref != s.Ref {
		t.Errorf("by label: %v %v", found, err)
	}
	if found, err := w.client.List(ctx, map[string]string{openshell.LabelNode: w.node, "mojoup-test": "other"}); err != nil || len(found) != 0 {
		t.Errorf("by another label: %v %v", found, err)
	}
	if got := w.sh(t, s.Ref, "id -u"); got != strconv.Itoa(w.uid) {
		t.Errorf("uid inside: %s", got)
	}
	res, err := w.client.Run(ctx, s.Ref, openshell.Short{Argv: []string{"/bin/sh", "-c", "echo out; echo err >&2; exit 7"}, Dir: "/tmp", Env: map[string]string{"X": "a b'c"}})
	if err != nil || res.Code != 7 || string(res.Stdout) != "out\n" || string(res.Stderr) != "err\n" {
		t.Errorf("run: %+v %v", res, err)
	}
	// A gateway of 0.0.x says 1 here: which signal it was is lost on the way.
	if res, err := w.client.Run(ctx, s.Ref, openshell.Short{Argv: []string{"/bin/sh", "-c", "kill -9 $$"}}); err != nil || res.Code == 0 {
		t.Errorf("killed: %+v %v", res, err)
	}
	other := openshell.Ref{ID: "00000000-0000-4000-8000-000000000000", Name: s.Name}
	if err := w.client.Delete(ctx, other); err != nil {
		t.Errorf("deleting what has our name and another id: %v", err)
	}
	if _, err := w.client.Get(ctx, s.Name); err != nil {
		t.Errorf("it is gone with the other id: %v", err)
	}
	w.down(t, s.Ref)
	if _, err := w.client.Get(ctx, r.Name); !errors.Is(err, openshell.NotFound) {
		t.Errorf("after: %v", err)
	}
	if err := w.client.Delete(ctx, s.Ref); err != nil {
		t.Errorf("deleted twice: %v", err)
	}
	for _, stdin := range []io.Reader{nil, strings.NewReader("")} {
		if _, err := execute(t, w, s.Ref, openshell.Command{Argv: []string{"true"}, Stdin: stdin}); !errors.Is(err, openshell.Lost) {
			t.Errorf("a command in what is gone: %v", err)
		}
	}
}

func execute(t *testing.T, w world, ref openshell.Ref, cmd openshell.Command) (int, error) {
	t.Helper()
	ctx := bounded(t)
	s, err := w.client.Exec(ctx, ref, cmd)
	if err != nil {
		return 0, err
	}
	return s.Wait(ctx)
}

// streams is long because its parts share one sandbox.
func streams(t *testing.T, w world) {
	s := w.up(t, w.request(t))
	w.sh(t, s.Ref, "true")
	big := make([]byte, 5<<20)
	rand.Read(big)
	t.Run("binary-clean through and back", func(t *testing.T) {
		var out bytes.Buffer
		code, err := execute(t, w, s.Ref, openshell.Command{Argv: []string{"/bin/sh", "-c", fmt.Sprintf("head -c %d", len(big))}, Stdin: bytes.NewReader(big), Stdout: &out})
		if err != nil || code != 0 || !bytes.Equal(out.Bytes(), big) {
			t.Errorf("code %d, %v, %d of %d bytes, equal: %v", code, err, out.Len(), len(big), bytes.Equal(out.Bytes(), big))
		}
	})
	t.Run("written after the input has ended", func(t *testing.T) {
		var out bytes.Buffer
		code, err := execute(t, w, s.Ref, openshell.Command{Argv: []string{"/bin/sh", "-c", "n=$(cat | wc -c); sleep 1; head -c 3000000 /dev/zero; echo $n; exit 3"},
			Input: []byte("four"), Stdout: &out})
		if err != nil || code != 3 || !strings.HasSuffix(out.String(), "4\n") || out.Len() != 3000002 {
			t.Errorf("code %d, %v, %d bytes", code, err, out.Len())
		}
	})
	t.Run("a slow reader loses nothing", func(t *testing.T) {
		r, wr := io.Pipe()
		got := make(chan int)
		go func() {
			n, b := 0, make([]byte, 4096)
			for {
				m, err := r.Read(b)
				n += m
				if err != nil {
					got <- n
					return
				}
				if n%(1<<20) < 4096 {
					time.Sleep(20 * time.Millisecond)
				}
			}
		}()
		code, err := execute(t, w, s.Ref, openshell.Command{Argv: []string{"/bin/sh", "-c", "head -c 8000000 /dev/zero"}, Stdout: wr})
		wr.Close()
		if n := <-got; err != nil || code != 0 || n != 8000000 {
			t.Errorf("code %d, %v, %d bytes", code, err, n)
		}
	})
	t.Run("both outputs apart", func(t *testing.T) {
		var out, errs bytes.Buffer
		code, err := execute(t, w, s.Ref, openshell.Command{Argv: []string{"/bin/sh", "-c", "printf 'a\\000b'; printf 'c\\377d' >&2"}, Stdout: &out, Stderr: &errs})
		if err != nil || code != 0 || out.String() != "a\x00b" || errs.String() != "c\xffd" {
			t.Errorf("code %d, %v, %q, %q", code, err, out.String(), errs.String())
		}
	})
	t.Run("input that never ends", func(t *testing.T) {
		r, wr := io.Pipe()
		defer wr.Close()
		if code, err := execute(t, w, s.Ref, openshell.Command{Argv: []string{"/bin/sh", "-c", "exit 5"}, Stdin: r}); err != nil || code != 5 {
			t.Errorf("code %d, %v", code, err)
		}
	})
	t.Run("a whole input", func(t *testing.T) {
		var out bytes.Buffer
		code, err := execute(t, w, s.Ref, openshell.Command{Argv: []string{"/bin/cat"}, Input: big[:openshell.MostInput], Stdout: &out})
		if err != nil || code != 0 || !bytes.Equal(out.Bytes(), big[:openshell.MostInput]) {
			t.Errorf("code %d, %v, %d bytes", code, err, out.Len())
		}
	})
	t.Run("no such program", func(t *testing.T) {
		if code, err := execute(t, w, s.Ref, openshell.Command{Argv: []string{"/no/such/program"}}); err != nil || code != 127 {
			t.Errorf("code %d, %v", code, err)
		}
	})
	t.Run("abandoned", func(t *testing.T) {
		x, err := w.client.Exec(bounded(t), s.Ref, openshell.Command{Argv: []string{"/bin/sleep", "1000"}})
		if err != nil {
			t.Fatal(err)
		}
		x.Abandon()
		if _, err := x.Wait(bounded(t)); !errors.Is(err, openshell.Cancelled) {
			t.Errorf("%v", err)
		}
	})
	t.Run("a command that does not end", func(t *testing.T) {
		_, err := w.client.Run(bounded(t), s.Ref, openshell.Short{Argv: []string{"/bin/sleep", "1000"}, Within: 300 * time.Millisecond})
		if !errors.Is(err, openshell.Hung) {
			t.Errorf("%v", err)
		}
	})
	t.Run("more than is taken", func(t *testing.T) {
		_, err := w.client.Run(bounded(t), s.Ref, openshell.Short{Argv: []string{"/bin/sh", "-c", "head -c 100000 /dev/zero"}, Most: 1000})
		if !errors.Is(err, openshell.TooLarge) {
			t.Errorf("%v", err)
		}
	})
	t.Run("ends when the sandbox does", func(t *testing.T) {
		s := w.up(t, w.request(t))
		x, err := w.client.Exec(bounded(t), s.Ref, openshell.Command{Argv: []string{"/bin/sleep", "1000"}})
		if err != nil {
			t.Fatal(err)
		}
		w.sh(t, s.Ref, "true")
		w.down(t, s.Ref)
		if code, err := x.Wait(bounded(t)); err == nil && code == 0 || err != nil && !errors.Is(err, openshell.Lost) {
			t.Errorf("a command that was killed with its sandbox: code %d, %v", code, err)
		}
	})
}

func terminal(t *testing.T, w world) {
	s := w.up(t, w.request(t))
	in, feed := io.Pipe()
	out := &screen{}
	x, err := w.client.Exec(bounded(t), s.Ref, openshell.Command{Argv: []string{"/bin/sh"}, Dir: "/tmp", TTY: &openshell.Size{Columns: 91, Rows: 17}, Stdin: in, Stdout: out})
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(feed, "stty size; tty\n")
	out.await(t, "17 91")
	out.await(t, "/dev/pts/")
	if err := x.Resize(openshell.Size{Columns: 120, Rows: 40}); err != nil {
		t.Error(err)
	}
	// The size travels beside the input.
	for i := 0; !strings.Contains(out.text(), "40 120"); i++ {
		if i == 2000 {
			t.Fatalf("the new size never came: %q", out.text())
		}
		io.WriteString(feed, "stty size\n")
		time.Sleep(50 * time.Millisecond)
	}
	// Who says it is in the foreground already.
	io.WriteString(feed, "sh -c 'echo be''gun; exec sleep 1000'\n")
	out.await(t, "begun")
	io.WriteString(feed, "\x03")
	io.WriteString(feed, "echo in$((40+2))out; exit 9\n")
	out.await(t, "in42out")
	if code, err := x.Wait(bounded(t)); err != nil || code != 9 {
		t.Errorf("code %d, %v", code, err)
	}
	if err := x.Resize(openshell.Size{Columns: 1, Rows: 1}); err == nil {
		t.Error("a terminal that has ended takes a size")
	}
}

func mounts(t *testing.T, w world) {
	dir := place(t, w.uid)
	for _, name := range []string{"repo/.git/hooks", "repo/.git/objects", "ro"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		os.Chown(filepath.Join(dir, name), w.uid, w.uid)
	}
	os.Chown(filepath.Join(dir, "repo"), w.uid, w.uid)
	os.Chown(filepath.Join(dir, "repo/.git"), w.uid, w.uid)
	at := func(name string, ro bool) openshell.Mount {
		return openshell.Mount{Source: filepath.Join(dir, name), Target: filepath.Join(dir, name), ReadOnly: ro}
	}
	s := w.up(t, w.request(t, at("repo", false), at("repo/.git/hooks", true), at("ro", true)))
	w.sh(t, s.Ref, "echo made > "+dir+"/repo/new")
	w.sh(t, s.Ref, "echo made > "+dir+"/repo/.git/objects/new")
	for _, closed := range []string{"repo/.git/hooks/x", "ro/x"} {
		w.sh(t, s.Ref, "! (echo x > "+dir+"/"+closed+") 2>/dev/null")
	}
	w.sh(t, s.Ref, "! mv "+dir+"/repo/.git/hooks "+dir+"/repo/.git/other 2>/dev/null")
	info, err := os.Stat(filepath.Join(dir, "repo/new"))
	if err != nil {
		t.Fatal(err)
	}
	if got := owner(info); got != w.uid {
		t.Errorf("what is made inside belongs to %d", got)
	}
}

func refusals(t *testing.T, w world) {
	ctx := bounded(t)
	fails := func(r openshell.Request, code openshell.Code, words ...string) {
		t.Helper()
		made, err := w.client.Create(ctx, r)
		if err == nil {
			defer w.down(t, made.Ref)
			_, err = w.client.Ready(ctx, made.Ref, nil)
		}
		if !errors.Is(err, code) {
			t.Errorf("wanted %q, got %v", code, err)
			return
		}
		for _, word := range words {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%q does not say %q", err, word)
			}
		}
		t.Logf("%s: %v", code, err)
	}
	root := w.request(t)
	root.UID = 0
	fails(root, openshell.RootRefused)
	absent := filepath.Join(place(t, w.uid), "absent")
	fails(w.request(t, openshell.Mount{Source: absent, Target: absent}), openshell.SourceMissing, absent)
	there := place(t, w.uid)
	fails(w.request(t, openshell.Mount{Source: there, Target: "/sandbox"}), openshell.TargetReserved, "/sandbox")
	fails(w.request(t, openshell.Mount{Source: there, Target: "/run/openshell/x"}), openshell.TargetReserved)
	noImage := w.request(t)
	noImage.Image = "127.0.0.1:1/mojoup-test/none:latest"
	fails(noImage, openshell.ImageMissing, noImage.Image)
	mainEnds(t, w)
}

// mainEnds: a sandbox whose main process ends is no more, whether it was ready
// for a moment or never.
func mainEnds(t *testing.T, w world) {
	ctx := bounded(t)
	r := w.request(t)
	r.Command = []string{"/bin/sh", "-c", "exit 3"}
	made, err := w.client.Create(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	defer w.down(t, made.Ref)
	if _, err := w.client.Ready(ctx, made.Ref, nil); err != nil && !errors.Is(err, openshell.ContainerFailed) {
		t.Errorf("ready: %v", err)
	}
	for {
		got, err := w.client.Get(ctx, made.Name)
		if err != nil {
			t.Fatal(err)
		}
		if got.Phase == openshell.Failed {
			if !got.Exited || got.ExitCode != 3 {
				t.Errorf("%+v", got)
			}
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if _, err := execute(t, w, made.Ref, openshell.Command{Argv: []string{"true"}}); !errors.Is(err, openshell.Lost) {
		t.Errorf("a command in it: %v", err)
	}
}

// place is a directory of the person's that a gateway sees too.
func place(t *testing.T, uid int) string {
	t.Helper()
	dir := t.TempDir()
	for at := dir; at != os.TempDir() && at != "/"; at = filepath.Dir(at) {
		os.Chmod(at, 0o755)
	}
	os.Chown(dir, uid, uid)
	return dir
}

func newNode() string {
	var b [4]byte
	rand.Read(b[:])
	return "t" + hex.EncodeToString(b[:])
}
