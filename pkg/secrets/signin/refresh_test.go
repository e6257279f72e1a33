//go:build unix

package signin

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/mojoup/mojoup-node/pkg/secrets/signin/signintest"
)

// clock is one that tests move.
type clock struct{ ns atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.ns.Store(time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC).UnixNano())
	return c
}
func (c *clock) now() time.Time       { return time.Unix(0, c.ns.Load()) }
func (c *clock) move(d time.Duration) { c.ns.Add(int64(d)) }

// host is a person's machine with one sign-in, and the service that made it.
type host struct {
	t     testing.TB
	clock *clock
	// ahead is by how much this machine's clock is ahead of the service's.
	ahead atomic.Int64
	srv   *signintest.Server
	tool  Tool
	path  string
}

const tokenLife = 8 * time.Hour

func newHost(t testing.TB, name string) *host {
	t.Helper()
	h := &host{t: t, clock: newClock()}
	h.srv = signintest.Start(t, func() time.Time { return h.clock.now().Add(-time.Duration(h.ahead.Load())) }, tokenLife)
	h.tool = h.pointed(name)
	h.path = filepath.Join(t.TempDir(), filepath.Base(usual[name]))
	h.signIn()
	return h
}

func (h *host) pointed(name string) Tool {
	tool := Named(Builtin(), name)[0]
	r := *tool.Renewal
	r.URL = h.srv.URL
	tool.Renewal = &r
	return tool
}

// signIn is what the tool's own sign-in writes.
func (h *host) signIn() {
	h.t.Helper()
	access, refresh := h.srv.SignIn("me")
	h.tool2doc(access, refresh, h.clock.now().Add(tokenLife))
}

func (h *host) tool2doc(access, refresh string, until time.Time) {
	h.t.Helper()
	doc, err := parse([]byte(documents[h.tool.Name]), false)
	if err != nil {
		h.t.Fatal(err)
	}
	put(doc, h.tool.Document.Access, access)
	put(doc, h.tool.Document.Refresh, refresh)
	if h.tool.Document.Unit == "ms" {
		put(doc, h.tool.Document.Expires, until.UnixMilli())
	}
	b, err := json.MarshalIndent(doc, "", "\t")
	if err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(h.path+".new", b, 0o600); err != nil {
		h.t.Fatal(err)
	}
	if err := os.Rename(h.path+".new", h.path); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) refresher() *Refresher {
	return &Refresher{Client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, Now: h.clock.now}
}

// soon is when a node renews.
func (h *host) soon(s *SignIn) bool { return s.Due(h.clock.now()) }

// found is what the host's tool has now.
func (h *host) found() *SignIn {
	h.t.Helper()
	s, err := h.tool.inFile(h.path, false)
	if err != nil {
		h.t.Fatal(err)
	}
	return s
}

// usable fails the test where the host has been logged out: its refresh token
// must be one that the service takes.
func (h *host) usable(when string) {
	h.t.Helper()
	if s := h.found(); !h.srv.Alive("me") || !h.srv.Usable(string(s.refresh.RevealForTheWire())) {
		spent, reused := h.srv.Counts()
		h.t.Fatalf("%s: the host is logged out (%d renewals, %d reuses)", when, spent, reused)
	}
	for _, name := range []string{".mojoup-renewing-", ".mojoup-next-"} {
		if _, err := os.Lstat(filepath.Join(filepath.Dir(h.path), name+filepath.Base(h.path))); err == nil {
			h.t.Errorf("%s: %s is left", when, name)
		}
	}
}

// TestT11_RenewedWhereTheToolKeepsIt: the document is the old one with new
// tokens, mode 0600, through a symbolic link, and the tool's locks are free.
func TestT11_RenewedWhereTheToolKeepsIt(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"claude", "codex", "opencode"} {
		h := newHost(t, name)
		link := filepath.Join(t.TempDir(), "link")
		if err := os.Symlink(h.path, link); err != nil {
			t.Fatal(err)
		}
		before := h.found()
		if s, err := h.refresher().Refresh(t.Context(), h.tool, link, h.soon); err != nil || !s.access.Equal(before.access) {
			t.Errorf("%s: renewed too early: %v, %v", name, s, err)
		}
		h.clock.move(tokenLife - 5*time.Minute)
		s, err := h.refresher().Refresh(t.Context(), h.tool, link, h.soon)
		if err != nil {
			t.Fatal(name, err)
		}
		if left := s.Left(h.clock.now()); left < tokenLife-time.Minute || left > tokenLife+time.Minute || !h.srv.Good(string(s.access.RevealForTheWire())) {
			t.Errorf("%s: holds for %v", name, left)
		}
		h.usable(name)
		info, err := os.Lstat(h.path)
		if err != nil || info.Mode() != 0o600 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
		content, err := os.ReadFile(h.path)
		if err != nil || strings.Count(string(content), "\n\t") < 3 {
			t.Errorf("%s: the tool's own form is lost: %s", name, content)
		}
		doc, err := parse(content, false)
		if err != nil {
			t.Fatal(err)
		}
		old, _ := parse([]byte(documents[name]), false)
		for key, v := range leaves(old, "") {
			if _, has := leaves(doc, "")[key]; !has {
				t.Errorf("%s: lost %s, %v", name, key, v)
			}
		}
		if target, err := os.Readlink(link); err != nil || target != h.path {
			t.Errorf("%s: the link leads to %s, %v", name, target, err)
		}
		for _, l := range h.tool.Renewal.Locks {
			if _, err := os.Lstat(filepath.Join(filepath.Dir(h.path), l.Name)); l.Directory && err == nil {
				t.Errorf("%s: the lock %s is left", name, l.Name)
			}
		}
	}
}

// TestT11_TenAtOnce: however many find it due, one spends the token.
func TestT11_TenAtOnce(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"claude", "codex", "opencode"} {
		h := newHost(t, name)
		h.clock.move(tokenLife - time.Minute)
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				if s, err := h.refresher().Refresh(t.Context(), h.tool, h.path, h.soon); err != nil || !h.srv.Good(string(s.access.RevealForTheWire())) {
					t.Errorf("%s: %v, %v", name, s, err)
				}
			})
		}
		all.Wait()
		if spent, reused := h.srv.Counts(); spent != 1 || reused != 0 {
			t.Errorf("%s: spent %d times, reused %d", name, spent, reused)
		}
		h.usable(name)
	}
}

// TestT11_NothingIsSpentInVain: where the new tokens could not be kept, the old
// one is not spent. Codex does spend it, twice.
func TestT11_NothingIsSpentInVain(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(h *host) (undo func()){
		"hard link": func(h *host) func() {
			if err := os.Link(h.path, h.path+".second"); err != nil {
				h.t.Fatal(err)
			}
			return func() { _ = os.Remove(h.path + ".second") }
		},
		"no room": func(h *host) func() {
			dir := filepath.Join(filepath.Dir(h.path), ".mojoup-next-"+filepath.Base(h.path))
			if err := os.MkdirAll(filepath.Join(dir, "x"), 0o700); err != nil {
				h.t.Fatal(err)
			}
			return func() { _ = os.RemoveAll(dir) }
		},
		"nobody answers": func(h *host) func() {
			url := h.tool.Renewal.URL
			h.tool.Renewal.URL = "http://127.0.0.1:1/token"
			return func() { h.tool.Renewal.URL = url }
		},
		"too busy": func(h *host) func() {
			h.srv.Next(func(w http.ResponseWriter, _ func()) bool { w.WriteHeader(503); return true })
			return func() {}
		},
		"redirected": func(h *host) func() {
			h.srv.Next(func(w http.ResponseWriter, _ func()) bool {
				w.Header().Set("Location", h.srv.URL)
				w.WriteHeader(307)
				return true
			})
			return func() {}
		},
	} {
		h := newHost(t, "codex")
		h.clock.move(tokenLife - time.Minute)
		undo := spoil(h)
		if s, err := h.refresher().Refresh(t.Context(), h.tool, h.path, h.soon); err == nil {
			t.Errorf("%s: renewed %v", name, s)
		}
		if spent, reused := h.srv.Counts(); spent+reused != 0 {
			t.Errorf("%s: spent %d, reused %d", name, spent, reused)
		}
		undo()
		h.usable(name)
		if _, err := h.refresher().Refresh(t.Context(), h.tool, h.path, h.soon); err != nil {
			t.Errorf("%s, afterwards: %v", name, err)
		}
		h.usable(name)
	}
}

// TestT11_AnUnknownFateIsLeftAlone: whether a token was spent whose answer never
// came is not known. It is not tried while that could end anything.
func TestT11_AnUnknownFateIsLeftAlone(t *testing.T) {
	t.Parallel()
	for _, heard := range []bool{false, true} {
		h := newHost(t, "claude")
		h.clock.move(tokenLife - 5*time.Minute)
		h.srv.Next(func(w http.ResponseWriter, act func()) bool {
			if heard {
				act()
			}
			panic(http.ErrAbortHandler) // the connection is cut
		})
		refresh := func() error {
			_, err := h.refresher().Refresh(t.Context(), h.tool, h.path, h.soon)
			return err
		}
		for range 3 {
			if err := refresh(); KindOf(err) != Unsure {
				t.Errorf("heard %v: %v", heard, err)
			}
		}
		if spent, reused := h.srv.Counts(); reused != 0 || (spent == 1) != heard || !h.srv.Good(string(h.found().access.RevealForTheWire())) {
			t.Errorf("heard %v: spent %d, reused %d", heard, spent, reused)
		}
		if heard {
			// Its person signs in anew: that counts at once.
			h.signIn()
			if err := refresh(); err != nil {
				t.Error(err)
			}
		} else {
			h.clock.move(6 * time.Minute)
			if err := refresh(); err != nil {
				t.Error(err)
			}
		}
		h.usable("afterwards")
	}
}

// TestT11_ANewSignInWins: who signs in anew while the old token is being spent
// has the last word.
func TestT11_ANewSignInWins(t *testing.T) {
	t.Parallel()
	h := newHost(t, "opencode")
	h.clock.move(tokenLife)
	r := h.refresher()
	var anew *SignIn
	r.Step = func(step string) {
		if step == "ask" {
			h.signIn()
			anew = h.found()
		}
	}
	s, err := r.Refresh(t.Context(), h.tool, h.path, h.soon)
	if err != nil || !s.access.Equal(anew.access) || !h.found().access.Equal(anew.access) {
		t.Errorf("%v, %v", s, err)
	}
	h.usable("afterwards")
}

// TestT11_TheToolsLockIsWaitedFor: a tool that renews is not disturbed, and one
// that died is not waited for.
func TestT11_TheToolsLockIsWaitedFor(t *testing.T) {
	t.Parallel()
	h := newHost(t, "claude")
	h.clock.move(tokenLife - time.Minute)
	lock := filepath.Join(filepath.Dir(h.path), ".oauth_refresh.lock")
	if err := os.Mkdir(lock, 0o700); err != nil {
		t.Fatal(err)
	}
	roomMade := make(chan struct{})
	r := h.refresher()
	r.Step = func(step string) {
		if step == "room" {
			close(roomMade)
		}
	}
	over := make(chan error, 1)
	go func() {
		_, err := r.Refresh(t.Context(), h.tool, h.path, h.soon)
		over <- err
	}()
	<-roomMade
	// Meanwhile the tool has renewed it itself.
	h.signIn()
	if err := os.Remove(lock); err != nil {
		t.Fatal(err)
	}
	if err := <-over; err != nil {
		t.Error(err)
	}
	if spent, _ := h.srv.Counts(); spent != 0 {
		t.Errorf("spent %d", spent)
	}
	h.clock.move(tokenLife)
	if err := os.Mkdir(lock, 0o700); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-2 * time.Minute)
	if err := os.Chtimes(lock, old, old); err != nil {
		t.Fatal(err)
	}
	if _, err := h.refresher().Refresh(t.Context(), h.tool, h.path, h.soon); err != nil {
		t.Error(err)
	}
	h.usable("afterwards")
}

// killedVariable makes this test binary a process that renews, and dies at a
// step where it names one.
const killedVariable = "MOJOUP_TEST_RENEWS"

type killed struct {
	Name, URL, Path, Die string
	Now                  time.Time
}

func TestMain(m *testing.M) {
	if text := os.Getenv(killedVariable); text != "" {
		os.Exit(renewAndDie(text))
	}
	os.Exit(m.Run())
}

func renewAndDie(text string) int {
	var k killed
	if err := json.Unmarshal([]byte(text), &k); err != nil {
		return 2
	}
	tool := Named(Builtin(), k.Name)[0]
	tool.Renewal.URL = k.URL
	r := Refresher{Client: &http.Client{}, Now: func() time.Time { return k.Now }, Step: func(step string) {
		fmt.Println(step)
		if step == k.Die {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
	}}
	if _, err := r.Refresh(context.Background(), tool, k.Path, func(s *SignIn) bool { return s.Left(k.Now) < 10*time.Minute }); err != nil {
		return 1
	}
	return 0
}

func (h *host) process(die string) *exec.Cmd {
	h.t.Helper()
	text, err := json.Marshal(killed{Name: h.tool.Name, URL: h.srv.URL, Path: h.path, Die: die, Now: h.clock.now()})
	if err != nil {
		h.t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), killedVariable+"="+string(text))
	return cmd
}

// TestT11_KilledAtEachStep: a process that is killed while it renews leaves a
// sign-in that works, or one whose fate is not known and that nobody spends
// again; and its locks are free.
func TestT11_KilledAtEachStep(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"claude", "codex"} {
		for _, step := range []string{"lock", "room", "intent", "ask", "next", "rename"} {
			h := newHost(t, name)
			h.clock.move(tokenLife - 5*time.Minute)
			out, err := h.process(step).CombinedOutput()
			if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != -1 || !strings.HasSuffix(strings.TrimSpace(string(out)), step) {
				t.Fatalf("%s, %s: %v: %s", name, step, err, out)
			}
			// What it held of the tool's is stale a minute later.
			for _, l := range h.tool.Renewal.Locks {
				old := time.Now().Add(-2 * time.Minute)
				_ = os.Chtimes(filepath.Join(filepath.Dir(h.path), l.Name), old, old)
			}
			refresh := func() error {
				_, err := h.refresher().Refresh(t.Context(), h.tool, h.path, h.soon)
				return err
			}
			switch step {
			case "intent", "ask": // nobody can know
				if err := refresh(); KindOf(err) != Unsure || !h.srv.Good(string(h.found().access.RevealForTheWire())) {
					t.Errorf("%s, %s: %v", name, step, err)
				}
				h.clock.move(6 * time.Minute)
			}
			err = refresh()
			if step == "ask" {
				// The one moment that nobody can undo: the answer died with the
				// process. Nothing was spent twice while it could matter.
				if KindOf(err) != Ended {
					t.Errorf("%s, %s: %v", name, step, err)
				}
				continue
			}
			if err != nil {
				t.Errorf("%s, %s: %v", name, step, err)
			}
			h.usable(name + ", " + step)
		}
	}
}

// TestT11_ANodesDeathLosesNothing: the process that renews outlives whoever
// started it, at the one moment that could lose a sign-in.
func TestT11_ANodesDeathLosesNothing(t *testing.T) {
	t.Parallel()
	h := newHost(t, "claude")
	h.clock.move(tokenLife - 5*time.Minute)
	asked, answer := make(chan struct{}), make(chan struct{})
	h.srv.Next(func(_ http.ResponseWriter, heard func()) bool {
		heard()
		close(asked)
		<-answer
		return false
	})
	// A shell stands for the node: it starts the process and is killed.
	inner := h.process("")
	node := exec.Command("/bin/sh", "-c", `"$0" & wait`, inner.Path)
	node.Env = inner.Env
	out, err := node.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := node.Start(); err != nil {
		t.Fatal(err)
	}
	<-asked
	if err := node.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	close(answer)
	var last string
	for lines := bufio.NewScanner(out); lines.Scan(); {
		last = lines.Text()
	}
	_ = node.Wait()
	if last != "rename" {
		t.Errorf("it ended after %q", last)
	}
	h.usable("afterwards")
}

// TestT11_AWeek lives through one: ten sessions of several nodes, the tool
// itself on the host, cut connections, errors of the service, new sign-ins and
// a clock that jumps or is another than the service's, and odd answers. The host
// is never logged out.
func TestT11_AWeek(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"claude", "codex"} {
		h := newHost(t, name)
		week(h, rand.New(rand.NewPCG(uint64(len(name)), 11)))
	}
}

func week(h *host, r *rand.Rand) {
	end := h.clock.now().Add(7 * 24 * time.Hour)
	defer h.srv.Odd(nil)
	odd := slices.Sorted(maps.Keys(oddAnswers))
	var failures int
	for turn := 0; h.clock.now().Before(end); turn++ {
		h.clock.move(time.Duration(1+r.IntN(80)) * time.Minute)
		switch r.IntN(40) {
		case 0: // suspended
			h.clock.move(time.Duration(r.IntN(20)) * time.Hour)
		case 1: // set back
			h.clock.move(-time.Duration(r.IntN(3600)) * time.Second)
		case 2:
			h.srv.Next(func(w http.ResponseWriter, _ func()) bool { w.WriteHeader(503); return true })
		case 3: // the request is lost before anybody heard it
			h.srv.Next(func(http.ResponseWriter, func()) bool { panic(http.ErrAbortHandler) })
		case 4:
			h.srv.Next(func(w http.ResponseWriter, _ func()) bool { w.WriteHeader(502); return true })
		case 5: // the person signs in anew
			h.signIn()
		}
		h.ahead.Store(0)
		if r.IntN(25) == 0 {
			h.ahead.Store(int64(time.Duration(r.IntN(60)-30) * time.Hour))
		}
		h.srv.Odd(nil)
		if r.IntN(4) == 0 {
			h.srv.Odd(oddAnswers[odd[r.IntN(len(odd))]])
		}
		dead := ""
		if r.IntN(10) == 0 {
			dead = []string{"lock", "room", "intent", "next", "rename"}[r.IntN(5)]
		}
		var all sync.WaitGroup
		var failed atomic.Int32
		for session := range 10 {
			all.Go(func() {
				ref := h.refresher()
				if session == 0 && dead != "" {
					ref.Step = func(step string) {
						if step == dead {
							panic(errDied)
						}
					}
				}
				defer func() {
					if v := recover(); v != nil && v != errDied { //nolint:errorlint // what panicked is that very value
						panic(v)
					}
				}()
				if _, err := ref.Refresh(context.Background(), h.tool, h.path, h.soon); err != nil {
					failed.Add(1)
				}
			})
		}
		all.Wait()
		failures += int(failed.Load())
		if s := h.found(); !h.srv.Alive("me") || !h.srv.Usable(string(s.refresh.RevealForTheWire())) {
			spent, reused := h.srv.Counts()
			h.t.Fatalf("turn %d: the host is logged out (%d renewals, %d reuses)", turn, spent, reused)
		}
	}
	spent, reused := h.srv.Counts()
	if spent < 5 || reused != 0 {
		h.t.Errorf("%d renewals, %d reuses", spent, reused)
	}
	h.t.Logf("%s: %d renewals, %d refusals, none logged out", h.tool.Name, spent, failures)
}

var errDied = errors.New("killed")

// TestMergedTakesNothingElse: what a service says reaches the host's file only
// where it may be the same sign-in, and whatever is odd about it is told.
func TestMergedTakesNothingElse(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 29, 0, 0, 0, 0, time.UTC)
	const fresh = "sk-ant-oat01-New0123456789abcdefghijklmnopqAA"
	identity := func(account string) string {
		return token(map[string]any{"https://api.openai.com/auth": map[string]any{"chatgpt_account_id": account}})
	}
	for name, c := range map[string]struct {
		tool, said string
		ok         bool
		odd        int
	}{
		"renewed":                {"claude", `{"access_token":"` + fresh + `","refresh_token":"sk-ant-ort01-New0123456789abc","expires_in":60}`, true, 0},
		"not rotated":            {"claude", `{"access_token":"` + fresh + `","expires_in":60}`, true, 0},
		"same account":           {"claude", `{"access_token":"` + fresh + `","expires_in":60,"account":{"uuid":"acc"},"organization":{"uuid":"org"}}`, true, 0},
		"another account":        {"claude", `{"access_token":"` + fresh + `","expires_in":60,"account":{"uuid":"other"}}`, false, 0},
		"another company":        {"claude", `{"access_token":"` + fresh + `","expires_in":60,"organization":{"uuid":"other"}}`, false, 0},
		"blanked":                {"claude", `{"access_token":"","refresh_token":"","expires_in":0}`, false, 0},
		"nothing":                {"claude", `{}`, false, 0},
		"no object":              {"claude", `[]`, false, 0},
		"the old token":          {"claude", `{"access_token":"` + accessToken + `","expires_in":60}`, true, 1},
		"expired":                {"claude", `{"access_token":"` + fresh + `","expires_in":-1}`, true, 1},
		"no expiry":              {"claude", `{"access_token":"` + fresh + `"}`, true, 1},
		"a line break":           {"claude", `{"access_token":"` + fresh + `\nX: y","expires_in":60}`, false, 0},
		"a line break, and new":  {"claude", `{"access_token":"` + fresh + `\nX: y","refresh_token":"sk-ant-ort01-New0123456789abc"}`, true, 1},
		"a short token":          {"claude", `{"access_token":"` + fresh + `","refresh_token":"x","expires_in":60}`, true, 0},
		"a number":               {"claude", `{"access_token":"` + fresh + `","refresh_token":1,"expires_in":60}`, true, 1},
		"more behind it":         {"claude", `{"access_token":"` + fresh + `","expires_in":60} trailing`, true, 0},
		"codex":                  {"codex", `{"access_token":"` + fresh + `","id_token":"` + identity("acc-1") + `"}`, true, 0},
		"codex, another":         {"codex", `{"access_token":"` + fresh + `","id_token":"` + identity("acc-2") + `"}`, false, 0},
		"codex, no identity":     {"codex", `{"access_token":"` + fresh + `","id_token":"x"}`, true, 1},
		"codex, long expired":    {"codex", `{"access_token":"` + token(map[string]any{"exp": 1000}) + `"}`, true, 1},
		"codex, account as text": {"codex", `{"access_token":"` + fresh + `","account":"me"}`, true, 0},
	} {
		tool := Named(Builtin(), c.tool)[0]
		out, _, odd, err := tool.merged([]byte(documents[c.tool]), []byte(c.said), now)
		if (err == nil) != c.ok || (out != nil) != c.ok || len(odd) != c.odd {
			t.Errorf("%s: %s, %q, %v", name, out, odd, err)
		}
	}
}

// FuzzMerged: of an answer only tokens and times are taken, and of the same account;
// one with a new refresh token of that account is never thrown away.
func FuzzMerged(f *testing.F) {
	for _, said := range []string{
		`{"access_token":"sk-ant-oat01-New0123456789abcdefghijklmnopqAA","refresh_token":"sk-ant-ort01-New0123456789","expires_in":28800}`,
		`{"access_token":"sk-ant-oat01-New0123456789abcdefghijklmnopqAA","expires_in":28800,"account":{"uuid":"other"}}`,
		`{"access_token":"","refresh_token":"","expires_in":0}`, `{"access_token":"x y"}`, `[]`, `{}`, `{"access_token":1}`, "", `{"expires_in":1e99}`,
	} {
		for i := range 3 {
			f.Add(uint8(i), []byte(said))
		}
	}
	now := time.Date(2026, 11, 29, 0, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, which uint8, said []byte) {
		name := []string{"claude", "codex", "opencode"}[which%3]
		tool, doc := Named(Builtin(), name)[0], []byte(documents[name])
		out, after, _, err := tool.merged(doc, said, now)
		if err != nil {
			if out != nil || after != nil || KindOf(err) == "" {
				t.Fatalf("refused, and yet %s, %v, %v", out, after, err)
			}
			return
		}
		before, rerr := tool.read(doc, false, "x")
		if rerr != nil {
			t.Fatal(rerr)
		}
		if after.ID != before.ID || !after.Renews || after.access.Len() == 0 {
			t.Fatalf("took %s: %+v", said, after)
		}
		if a, err := answered(said); err != nil || a.refresh != "" && string(after.refresh.RevealForTheWire()) != a.refresh {
			t.Fatalf("lost the refresh token of %s", said)
		}
		was, _ := parse(doc, false)
		is, perr := parse(out, false)
		if perr != nil {
			t.Fatal(perr)
		}
		d := tool.Document
		changed := map[string]bool{}
		for _, p := range []Path{d.Access, d.Refresh, d.Expires, d.Identity, d.Renewed} {
			changed[strings.Join(p, ".")] = true
		}
		a, b := leaves(was, ""), leaves(is, "")
		if len(a) != len(b) {
			t.Fatalf("keys came or went: %s", out)
		}
		for key, v := range a {
			if got, ok := b[key]; !ok || !changed[key] && fmt.Sprint(got) != fmt.Sprint(v) {
				t.Fatalf("%s became %v", key, got)
			}
		}
	})
}
