package sandboxtest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/sandbox/kerneltest"
)

// crashVariable tells this test binary, started once more by testKilledNode,
// that it is the node to be killed, and with which Spec.
const crashVariable = "MOJOUP_SANDBOXTEST_CRASH"

// testKilledNode kills a node with a running sandbox and wants that Undo,
// written down before, is enough to clean up.
func testKilledNode(t *testing.T, s *suite) {
	if given, ok := os.LookupEnv(crashVariable); ok {
		beKilled(t, s, given)
		return
	}
	p := s.newPlace(t)
	spec := s.spec(t, p)
	spec.Protect = p.mainTree(t)
	mark := "mark-" + filepath.Base(p.dir)
	must(t, os.Symlink("/usr/bin/sleep", filepath.Join(p.repo, mark)))
	spec.Env = append(spec.Env, "MARK="+filepath.Join(p.repo, mark))
	before := tree(t, p.dir)
	engine := s.newEngine(t)
	undo := engine.Undo(spec)

	given, err := json.Marshal(spec)
	must(t, err)
	node := exec.CommandContext(t.Context(), os.Args[0], "-test.run="+exactly(t.Name()), "-test.v")
	node.Env = append(os.Environ(), crashVariable+"="+string(given))
	out, err := node.StdoutPipe()
	must(t, err)
	must(t, node.Start())
	said := ""
	for lines := bufio.NewScanner(out); lines.Scan() && !strings.HasPrefix(lines.Text(), "running"); {
		said += lines.Text() + "\n"
	}
	// The shell says that it has forked, not that the program is there.
	for end := time.Now().Add(patience); len(marked(t, mark)) == 0; {
		if time.Now().After(end) {
			t.Errorf("the sandbox of the node to be killed does not run: %s", said)
			break
		}
	}
	must(t, node.Process.Kill())
	_ = node.Wait()
	for _, u := range undo {
		did, err := engine.Sweep(deadline(t), u)
		if err != nil {
			t.Errorf("Sweep of %+v: %v", u, err)
		}
		t.Logf("%s %s: %s", u.Kind, u.Path, did)
	}
	// Sweep waits for what it ends; what ends by itself needs a moment.
	for end := time.Now().Add(patience); len(marked(t, mark)) > 0; {
		if time.Now().After(end) {
			t.Fatalf("processes survive node and Sweep: %v", marked(t, mark))
		}
	}
	if diff := cmp.Diff(before, tree(t, p.dir)); diff != "" {
		t.Errorf("files (-before +after):\n%s", diff)
	}
	for _, u := range undo {
		if did, err := engine.Sweep(deadline(t), u); err != nil || did != "" {
			t.Errorf("a second Sweep of %+v: %q, %v", u, did, err)
		}
	}
	s.open(t, spec).sh("/", "true") // under the same ID
}

// beKilled is the node: it runs a command and waits for its end.
func beKilled(t *testing.T, s *suite, given string) {
	var spec sandbox.Spec
	must(t, json.Unmarshal([]byte(given), &spec))
	made, err := s.newEngine(t).Prepare(deadline(t), spec)
	must(t, err)
	serve(made.Listener())
	b := &box{Sandbox: made, t: t}
	proc, line := b.start("/", `"$MARK" 600 & setsid "$MARK" 600 & echo ready; wait`)
	line()
	fmt.Println("running")
	_, err = proc.Wait(t.Context())
	t.Fatalf("not killed: %v", err)
}

// exactly is the pattern that runs one subtest.
func exactly(name string) string {
	parts := strings.Split(name, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	return strings.Join(parts, "/")
}

// testSweepSparesTheLiving sweeps what a dead node of the same repository left
// while another sandbox still relies on the same placeholders.
func testSweepSparesTheLiving(t *testing.T, s *suite) {
	p := s.newPlace(t)
	spec := s.spec(t, p)
	spec.Protect = p.mainTree(t)
	other := spec
	other.ID += "b"
	b := s.open(t, spec)
	engine := s.newEngine(t)
	for _, u := range engine.Undo(other) {
		if _, err := engine.Sweep(deadline(t), u); err != nil {
			t.Logf("Sweep of %+v says: %v", u, err)
		}
	}
	for _, script := range []string{"mkdir -p .mojoup && echo x > .mojoup/policy.json", "echo /x > .git/commondir"} {
		if r := b.run(shell(p.repo, script)); r.Code == 0 {
			t.Errorf("%s: works after another sandbox' Undo was swept", script)
		}
	}
}

// testB53Swap lets somebody exchange a directory and a symbolic link that
// leads out, over and over, while sandboxes are made that protect below it.
func testB53Swap(t *testing.T, s *suite) {
	p := s.newPlace(t)
	target := filepath.Join(p.dir, "target")
	dir, link := filepath.Join(p.repo, "dir"), filepath.Join(p.repo, "link")
	for _, d := range []string{target, dir} {
		must(t, os.Mkdir(d, 0o777))
		must(t, os.Chmod(d, 0o777))
	}
	must(t, os.WriteFile(filepath.Join(target, "frozen"), []byte("outside"), 0o666))
	must(t, os.WriteFile(filepath.Join(dir, "frozen"), []byte("inside"), 0o666))
	must(t, os.Chmod(filepath.Join(dir, "frozen"), 0o666))
	must(t, os.Symlink(target, link))
	spec := s.spec(t, p)
	spec.Protect = []sandbox.Protection{
		{Path: dir, Guard: sandbox.Pin},
		{Path: filepath.Join(dir, "frozen"), Guard: sandbox.Freeze},
		{Path: filepath.Join(dir, "held"), Guard: sandbox.HoldDir},
		{Path: filepath.Join(dir, "held-file"), Guard: sandbox.HoldFile, Content: "x"},
	}
	before := tree(t, target)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		beat := time.NewTicker(700 * time.Microsecond) // a few times per Prepare
		defer beat.Stop()
		for {
			select {
			case <-stop:
				return
			case <-beat.C:
				_ = unix.Renameat2(unix.AT_FDCWD, dir, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE)
			}
		}
	}()
	engine := s.newEngine(t)
	made, refusals := 0, map[string]int{}
	swaps := s.options.Swaps
	if swaps == 0 {
		swaps = kerneltest.Rounds(300, 100)
	}
	for i := range swaps {
		spec.ID = fmt.Sprintf("swap-%d-%d", os.Getpid()%100000, i)
		box, err := engine.Prepare(deadline(t), spec)
		if err != nil {
			_, why, _ := strings.Cut(err.Error(), spec.ID)
			refusals[why]++
			continue
		}
		made++
		if l := box.Listener(); l != nil {
			_ = l.Close()
		}
		if err := box.Remove(deadline(t)); err != nil {
			t.Logf("Remove: %v", err)
		}
	}
	close(stop)
	<-stopped
	t.Logf("%d of %d sandboxes were made; refusals: %v", made, swaps, refusals)
	after := tree(t, target)
	for path, is := range after {
		if _, was := before[path]; !was && s.options.MakesSources && is == "drwxr-xr-x" {
			t.Logf("made by whoever mounts: %s", path)
			delete(after, path) // but nothing that would lie in it
		}
	}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("the link's target was touched (-before +after):\n%s", diff)
	}
}
