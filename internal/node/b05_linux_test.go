package node

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mojoup/mojoup-node/pkg/console/api"
)

// TestB05_NothingEnforcedIsNoSession: where the check from inside finds that
// something is not enforced, the command never runs, whatever the policy says,
// and nothing lists the session as one that ran in a sandbox.
func TestB05_NothingEnforcedIsNoSession(t *testing.T) {
	for _, asked := range []string{"required", "preferred"} {
		w := newWorld(t)
		e := newStub()
		e.at = func(_ context.Context, step string) error {
			if step == "check" {
				return errors.New("a file outside could be opened: Landlock is not enforced")
			}
			return nil
		}
		r := w.serve(t, w.options(t, e))
		a := w.ask(t, r.client, api.RunRequest{Command: []string{"touch", "ran"}, PolicyName: "p.json", Policy: `{"version": 1, "agents": {"sandbox": "` + asked + `"}}`})
		end, err := a.end(t)
		must(t, err)
		if end.Code != 125 || end.Problem == nil || !strings.Contains(end.Problem.Sentence, "Landlock is not enforced") {
			t.Errorf("%s: %d, %+v", asked, end.Code, end.Problem)
		}
		if _, err := os.Lstat(filepath.Join(w.repo, "ran")); err == nil {
			t.Errorf("%s: the command ran", asked)
		}
		past, err := r.client.Sessions(t.Context(), true)
		must(t, err)
		if len(past) != 1 || past[0].State != "failed" || len(past[0].Enforced) > 0 || past[0].ExitCode != nil {
			t.Errorf("%s: listed as %+v", asked, past)
		}
		if made, removed := e.counts(); made != 1 || removed != 1 {
			t.Errorf("%s: %d made, %d removed", asked, made, removed)
		}
	}
}

// TestB05_WhatIsClaimedHolds, on the real engine: what a session that is called
// sandboxed tries outside of its repository fails, and works without.
func TestB05_WhatIsClaimedHolds(t *testing.T) {
	w := newWorld(t)
	home := t.TempDir()
	sibling := filepath.Join(filepath.Dir(w.repo), "sibling")
	must(t, os.MkdirAll(sibling, 0o755))
	must(t, os.MkdirAll(filepath.Join(home, ".ssh"), 0o700))
	must(t, os.WriteFile(filepath.Join(home, ".ssh", "id_test"), []byte("secret-canary"), 0o600))
	t.Setenv("HOME", home)
	r := w.serve(t, w.options(t, nativeEngine(t)))
	const attempt = `touch "$1"/mojoup-b05; touch ~/outside-repo; touch ../sibling/x; cat ~/.ssh/id_test "$0"/.ssh/id_test; touch inside && echo worked inside`
	end, said := w.whole(t, r.client, "sh", "-c", attempt, home, "/etc")
	if end.Code != 0 || !strings.Contains(said, "worked inside") || strings.Contains(said, "secret-canary") {
		t.Errorf("%d: %s", end.Code, said)
	}
	for _, path := range []string{"/etc/mojoup-b05", filepath.Join(home, "outside-repo"), filepath.Join(sibling, "x")} {
		if _, err := os.Lstat(path); err == nil {
			_ = os.Remove(path)
			t.Errorf("%s was written", path)
		}
	}
	s := w.last(t, r.client)
	if !s.Sandboxed || len(s.Enforced) == 0 {
		t.Errorf("listed as %+v", s)
	}
	a := w.ask(t, r.client, api.RunRequest{Command: []string{"sh", "-c", attempt, home, sibling}, Engine: "off", WholeEnv: os.Environ()})
	if _, err := a.end(t); err != nil || !strings.Contains(a.out.String(), "secret-canary") {
		t.Errorf("without a sandbox it fails too: %v, %s", err, a.out)
	}
	for _, path := range []string{filepath.Join(sibling, "mojoup-b05"), filepath.Join(home, "outside-repo"), filepath.Join(sibling, "x")} {
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("without a sandbox: %v", err)
		}
	}
}
