package realtest

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mojoup/mojoup-node/pkg/sandbox/kerneltest"
	"github.com/mojoup/mojoup-node/pkg/secrets/signin"
)

// TestClaudeAndCodexGoOnAfterARenewal is TestToolsGoOnAfterARenewal for the two
// tools that every run of the tests fetches.
func TestClaudeAndCodexGoOnAfterARenewal(t *testing.T) {
	kerneltest.Long(t)
	goOn(t, somebodyElse, inEveryRun)
}

// TestToolsGoOnAfterARenewal has a sign-in renewed while the real tool works:
// by the node before it expires, by the person's own tool, and because the
// service takes its token no more, which it says by 401. The old token is dead
// from that moment on. The tool goes on each time, and the person stays signed
// in. A sign-in that no service renews is followed when the person signs in
// anew.
func TestToolsGoOnAfterARenewal(t *testing.T) {
	wantsTools(t)
	t.Run("native", func(t *testing.T) { goOn(t, somebodyElse, inToolsRun) })
	t.Run("docker", func(t *testing.T) {
		goOn(t, func(t *testing.T, test func(*testing.T, somebody)) { test(t, atGateway(t, newer[0])) }, func(string) bool { return true })
	})
}

func goOn(t *testing.T, all func(*testing.T, func(*testing.T, somebody)), which func(tool string) bool) {
	all(t, func(t *testing.T, who somebody) {
		for _, s := range toolSignIns() {
			if !which(s.tool) {
				continue
			}
			name := s.tool + " " + s.service + " "
			t.Run(name+"by the person's tool", func(t *testing.T) {
				t.Parallel()
				x := newSignedInRig(t, who, s, signin.StandIn, 8*time.Hour)
				x.went(x.whileTheyWork(1, func(func() bool) { x.signInAnew() }))
				x.renewed(1)
			})
			if !s.renews {
				continue
			}
			t.Run(name+"expired before the start", func(t *testing.T) {
				t.Parallel()
				x := newSignedInRig(t, who, s, signin.StandIn, -time.Minute)
				x.mention(x.runs(), wellSaid)
				x.renewed(1)
			})
			for _, mode := range []signin.Mode{signin.StandIn, signin.Lease} {
				t.Run(name+"by the node, "+string(mode), func(t *testing.T) {
					t.Parallel() // most of it is waiting
					renewedByTheNode(t, who, s, mode, 1)
				})
			}
			t.Run(name+"refused by 401", func(t *testing.T) {
				t.Parallel()
				x := newSignedInRig(t, who, s, signin.StandIn, 8*time.Hour)
				x.went(x.whileTheyWork(1, func(func() bool) { x.tokens.Revoke("me") }))
				x.renewed(1)
			})
		}
	})
}

// renewedByTheNode has sessions work while the node renews their sign-in, ten
// minutes before its end. Where that came before all of them worked, the
// machine was busy, and they get more time.
func renewedByTheNode(t *testing.T, who somebody, s toolSignIn, mode signin.Mode, sessions int) {
	t.Helper()
	for _, left := range []time.Duration{5 * time.Second, 20 * time.Second, time.Minute, 2 * time.Minute} {
		if left < 20*time.Second && (sessions > 1 || !inEveryRun(s.tool)) {
			continue // the others take longer to start
		}
		x := newSignedInRig(t, who, s, mode, 10*time.Minute+left)
		early := false
		renewed := func() bool { spent, _ := x.tokens.Counts(); return spent > 0 }
		ends := x.whileTheyWork(sessions, func(over func() bool) {
			early = renewed()
			x.eventually("the node renews", func() bool { return renewed() || over() })
		})
		if early && left < 2*time.Minute {
			continue
		}
		x.went(ends)
		x.renewed(1)
		return
	}
}

// TestCodexTenSessionsOfOneSignIn is TestToolsTenSessionsOfOneSignIn for the
// smaller of the two tools that every run of the tests fetches, and for the mode
// that is the default.
func TestCodexTenSessionsOfOneSignIn(t *testing.T) {
	kerneltest.Long(t)
	somebodyElse(t, func(t *testing.T, who somebody) {
		for _, s := range toolSignIns() {
			if s.tool == "codex" {
				tenSessions(t, who, s)
			}
		}
	})
}

// TestToolsTenSessionsOfOneSignIn: ten sessions of the real tool work at once
// with one sign-in that has expired when they start, and that the service takes
// no more while all of them work; in a lease it is renewed while they work. Each
// time it is renewed once for all, all go on, and the person stays signed in.
// Ten of kilo's take nine gigabytes and minutes to start.
func TestToolsTenSessionsOfOneSignIn(t *testing.T) {
	wantsTools(t)
	test := func(t *testing.T, who somebody) {
		for _, s := range toolSignIns() {
			if !s.renews || s.tool == "kilo" || who.gateway != "" && !inEveryRun(s.tool) {
				continue
			}
			t.Run(s.tool+" "+s.service+" standin", func(t *testing.T) { tenSessions(t, who, s) })
			t.Run(s.tool+" "+s.service+" lease", func(t *testing.T) { renewedByTheNode(t, who, s, signin.Lease, 10) })
		}
	}
	somebodyElse(t, test)
	t.Run("docker", func(t *testing.T) { test(t, atGateway(t, newer[0])) })
}

func tenSessions(t *testing.T, who somebody, s toolSignIn) {
	t.Helper()
	x := newSignedInRig(t, who, s, signin.StandIn, -time.Minute)
	x.went(x.whileTheyWork(10, func(func() bool) { x.tokens.Revoke("me") }))
	x.renewed(2)
}

// signInAnew is the person's own tool, which gets another token.
func (x *signedInRig) signInAnew() {
	x.t.Helper()
	access, refresh := "gho_anew0123456789abcdefghijklmnopqrstu", ""
	if x.of.renews {
		access, refresh = x.tokens.Renew("me")
	} else {
		x.anew.Store(&access)
	}
	x.write(filepath.Join("home", x.of.file), x.of.text(access, refresh, time.Now().Add(8*time.Hour)), 0o600)
}

// ended is how one session ended.
type ended struct {
	res result
	err error
}

// whileTheyWork lets sessions of the tool run a command each, does something
// meanwhile, and lets them go on: in a lease when its file has another token.
// What is done can ask whether all have ended, as they should not.
func (x *signedInRig) whileTheyWork(sessions int, do func(over func() bool)) []ended {
	x.t.Helper()
	file := "$HOME/" + x.of.file
	token := `sed -n 's/.*"` + x.of.field + `": *"\([^"]*\)".*/\1/p' "` + file + `" | head -n 1`
	x.up.command = `t=` + hidden(x.access) + `; mktemp works.XXXXXX; until test -e go; do sleep 0.1; done; ` +
		`until test "$(` + token + `)" != "$t" -o -e standin; do sleep 0.1; done; echo goes on`
	if x.mode == signin.StandIn {
		x.write("repo/standin", "", 0o644)
	}
	done := make(chan ended, sessions)
	for range sessions {
		go func() {
			res, err := x.asks().atMost(2 * within).run()
			done <- ended{res, err}
		}()
	}
	x.eventually("they work", func() bool {
		work, err := filepath.Glob(filepath.Join(x.repo, "works.*"))
		return err == nil && len(work)+len(done) >= sessions
	})
	do(func() bool { return len(done) == sessions })
	x.write("repo/go", "", 0o644)
	var ends []ended
	for range sessions {
		ends = append(ends, <-done)
	}
	return ends
}

// went fails unless all sessions have answered.
func (x *signedInRig) went(ends []ended) {
	x.t.Helper()
	for _, e := range ends {
		if e.err != nil || e.res.code != 0 || !strings.Contains(e.res.all(), wellSaid) {
			x.t.Errorf("%s ended with %d, %v: %s", x.of.tool, e.res.code, e.err, e.res.all())
		}
	}
	work, err := filepath.Glob(filepath.Join(x.repo, "works.*"))
	if err != nil || len(work) != len(ends) {
		x.t.Errorf("%d of %d worked in the end: %v", len(work), len(ends), err)
	}
}

// renewed fails unless the person's file holds the token that the service takes
// now, and what else there was in it, after that many renewals.
func (x *signedInRig) renewed(times int) {
	x.t.Helper()
	spent, reused := x.tokens.Counts()
	if x.of.renews && (spent != times || reused > 0 || !x.tokens.Alive("me")) {
		x.t.Errorf("a token was spent %d times and %d times again, want %d and 0; signed in: %v", spent, reused, times, x.tokens.Alive("me"))
	}
	now := x.host()
	if !strings.Contains(now, x.token()) || !strings.Contains(now, elsewhere) || strings.Contains(now, x.access) {
		x.t.Errorf("the person's file, which was %s, is %s, and the service takes %s", x.before, now, x.token())
	}
	for _, a := range x.up.requests() {
		if a.answers && a.token == x.token() && a.status == http.StatusOK {
			return
		}
	}
	x.t.Errorf("the new token was never sent: %v", x.up.requests())
}
