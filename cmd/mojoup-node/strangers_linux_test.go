package main

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/mojoup/mojoup-node/internal/store"
	"github.com/mojoup/mojoup-node/pkg/console/api"
)

// TestSystemNodeKeepsTheDeadTheirs: what is over, or whose deputy has been
// killed, stays its person's: nobody else is told of it or answers in its place
// (T8, H1, H23), and who keeps a record with somebody else's ids is not believed.
func TestSystemNodeKeepsTheDeadTheirs(t *testing.T) {
	w := newTown(t)
	w.allow(fmt.Sprintf("%d,%d", ann, bob))
	w.serve()
	w.fine(bob, "run", "--", "true")
	w.fine(ann, "run", "--", "true")
	var past []api.Session
	w.must(json.Unmarshal([]byte(w.fine(bob, "session", "list", "--past", "--json")), &past))
	if len(past) != 1 {
		t.Fatalf("bob's past: %+v", past)
	}
	over := past[0].ID
	b := w.begin(bob).up()
	lost := w.only(bob).ID
	w.kill(w.deputyOf(bob))

	for _, id := range []string{over, lost, lost[:6]} {
		for _, args := range [][]string{
			{"session", "show", id}, {"session", "show", id, "--json"}, {"session", "logs", id}, {"session", "logs", id, "--terminal"},
			{"session", "diff", id}, {"session", "attach", id}, {"session", "stop", id}, {"session", "exec", id, "--", "id"}, {"session", "ports", id},
		} {
			if out, talk, code := w.as(ann, args...); code == 0 || !strings.Contains(out+talk, "there is no session") {
				t.Errorf("ann: %v: code %d: %s%s", args, code, out, talk)
			}
		}
	}
	for _, script := range []string{
		// to speak to bob's part past the node
		"ls run/users", "ls run/users/BOB", "curl -s --unix-socket run/users/BOB/node.sock http://x/v1/status",
		// to answer in the node's place, or in bob's
		"mv run/node.sock run/old", "rm -f run/node.sock", "touch run/new", "ln -sfn /tmp run/users", "mv run/users/BOB run/users/x",
		"touch run/users/BOB/node.sock", "mkdir run/users/new", "mkdir state/users/new", "touch state/users/BOB/x", "touch state/unfinished/BOB",
		// to reach the processes that stand for bob
		"kill -0 $(pgrep -u BOB)", "cat /proc/$(pgrep -n -u BOB)/environ", ": </proc/$(pgrep -n -u BOB)/fd/0",
	} {
		cmd := exec.Command("sh", "-c", strings.ReplaceAll(script, "BOB", strconv.Itoa(bob)))
		cmd.Dir, cmd.SysProcAttr = w.dir, w.command(ann).SysProcAttr
		if out, err := cmd.CombinedOutput(); err == nil {
			t.Errorf("ann: %s: %s", script, out)
		}
	}
	if code := b.code(); code == 0 {
		t.Errorf("bob's session ended well without its deputy: %s", b.out)
	}
	if out := w.fine(bob, "session", "show", lost); !strings.Contains(out, "lost") {
		t.Errorf("bob is shown %s", out)
	}
	w.clean(bob)

	// A person may write what they like in a record of their own.
	w.kill(w.deputyOf(ann))
	w.kill(w.deputyOf(bob))
	w.forge(ann, over, bob)
	if _, talk, code := w.as(0, "session", "show", over); code == 0 || !strings.Contains(talk, fmt.Sprintf("the parts of %d and of %d both call session %s theirs", ann, bob, over)) {
		t.Errorf("root: code %d: %s", code, talk)
	}
	if out, talk, code := w.as(ann, "session", "diff", over); strings.Contains(out+talk, "of 70002") {
		t.Errorf("ann is shown bob's files: code %d: %s%s", code, out, talk)
	}
	if out := w.fine(bob, "session", "show", over); !strings.Contains(out, w.repo(bob)) {
		t.Errorf("bob is shown %s", out)
	}
}

// forge has a person's own record claim a session of somebody else's: one of
// theirs takes its id and its directory.
func (w *town) forge(uid int, id string, whose int) {
	w.t.Helper()
	record := filepath.Join(w.dir, "state/users", strconv.Itoa(uid), store.FileName)
	// With what people have at hand: only the store speaks SQL here.
	const script = `import sqlite3, sys
db = sqlite3.connect(sys.argv[1], timeout=10)
db.execute("PRAGMA foreign_keys = 0")
db.execute("UPDATE sessions SET id = ?, repository = ?", sys.argv[2:])
db.commit()
db.close()`
	if out, err := exec.Command("python3", "-c", script, record, id, w.repo(whose)).CombinedOutput(); err != nil {
		w.t.Fatalf("forging: %v: %s", err, out)
	}
	w.must(exec.Command("chown", "-R", fmt.Sprintf("%d:%d", uid, uid), filepath.Dir(record)).Run())
}
