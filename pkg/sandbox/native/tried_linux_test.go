package native

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// TestSweepRemovesWhatACheckMade: a death in the middle of the self-check leaves
// nothing in the repository, and nothing else goes with it.
func TestSweepRemovesWhatACheckMade(t *testing.T) {
	w := newWorld(t)
	e := engine(t)
	spec := w.spec()
	spec.Checks = []sandbox.Check{{Kind: sandbox.MustWrite, Path: w.repo}, {Kind: sandbox.MustWrite, Path: "/tmp"}}
	var undo sandbox.Undo
	for _, u := range e.UndoInside(spec) { // also where the sandbox is another engine's
		if u.Kind == undoTry {
			undo = u // one: scratch is nobody's else
		}
	}
	if !slices.Contains(e.Undo(spec), undo) {
		t.Errorf("this engine does not undo it: %+v", e.Undo(spec))
	}
	if undo.ID != spec.ID || undo.Path != w.repo {
		t.Fatalf("what the self-check makes in %s is not to be undone: %+v", w.repo, e.Undo(spec))
	}
	name := checkName(spec)
	for step, made := range map[string][]string{
		"before": nil, "its directory": {name + "/"}, "the file": {name + "/", name + triedFile},
		"moved": {name + "/", name + "/" + triedMoved}, "unmoved": {name + triedFile},
	} {
		w.write("mine", "mine")
		for _, p := range made {
			if strings.HasSuffix(p, "/") {
				check(t, os.Mkdir(filepath.Join(w.repo, p), 0o755))
				continue
			}
			w.write(p, "")
		}
		did, err := e.Sweep(soon(t), undo)
		if err != nil || (did != "") != (len(made) > 0) {
			t.Errorf("%s: %q, %v", step, did, err)
		}
		left, err := filepath.Glob(filepath.Join(w.repo, ".check*"))
		if _, lerr := os.Lstat(filepath.Join(w.repo, "mine")); len(left) > 0 || err != nil || lerr != nil {
			t.Errorf("%s: %v, %v, %v", step, left, err, lerr)
		}
	}
	// What the session itself has put there stays, and holds nothing up.
	check(t, os.MkdirAll(filepath.Join(w.repo, name+triedFile), 0o755))
	check(t, os.MkdirAll(filepath.Join(w.repo, name, "theirs"), 0o755))
	if did, err := e.Sweep(soon(t), undo); did != "" || err != nil {
		t.Errorf("%q, %v", did, err)
	}
	if _, err := os.Lstat(filepath.Join(w.repo, name, "theirs")); err != nil {
		t.Error(err)
	}
}

// TestABrokenOffCheckLeavesNothing: what a self-check has made goes with a sandbox
// that died in the middle of it, and with a command that did not wait for it.
func TestABrokenOffCheckLeavesNothing(t *testing.T) {
	w := newWorld(t)
	spec := w.spec()
	spec.Checks = []sandbox.Check{{Kind: sandbox.MustWrite, Path: w.repo}}
	left := func() []string {
		found, err := filepath.Glob(filepath.Join(w.repo, ".check*"))
		check(t, err)
		return found
	}
	half := func() { // as it is in the middle
		check(t, os.MkdirAll(filepath.Join(w.repo, checkName(spec)), 0o700)) // the check may have come as far
		w.write(checkName(spec)+triedFile, "")
	}
	b := open(t, spec).(*box)
	check(t, b.helper.Kill(soon(t)))
	half()
	if _, err := b.Check(soon(t)); err == nil {
		t.Error("a dead sandbox passed its check")
	}
	check(t, b.Remove(soon(t)))
	if found := left(); len(found) > 0 {
		t.Errorf("after a death: %v", found)
	}

	b = open(t, spec).(*box)
	under := b.under.Swap(nil)
	under.Drop(soon(t)) // whose end nobody has heard of
	_ = b.untry()
	half()
	again, err := b.begin(&attack{})
	check(t, err)
	b.under.Store(again)
	p, err := b.Exec(soon(t), sandbox.Command{Argv: []string{"true"}}, sandbox.Stdio{})
	check(t, err)
	_, err = p.Wait(soon(t))
	check(t, err)
	if found := left(); len(found) > 0 {
		t.Errorf("beside a command: %v", found)
	}
	check(t, b.Remove(soon(t)))
}

// TestACheckAfterABrokenOffOne: where only the sandbox can reach, the next
// check takes away what is left.
func TestACheckAfterABrokenOffOne(t *testing.T) {
	w := newWorld(t)
	spec := w.spec()
	b := open(t, spec).(*box)
	name := "/dev/shm/" + checkName(spec)
	for _, half := range []string{"mkdir " + name, "mkdir " + name + "; >" + name + triedFile, "mkdir " + name + "; >" + name + "/" + triedMoved} {
		if out, exit := sh(t, b, half); exit.Code != 0 {
			t.Fatalf("%s: %s", half, out)
		}
		if _, err := b.Check(soon(t)); err != nil {
			t.Errorf("after %s: %v", half, err)
		}
		if out, _ := sh(t, b, "ls -A /dev/shm"); out != "" {
			t.Errorf("after %s: %s", half, out)
		}
	}
}
