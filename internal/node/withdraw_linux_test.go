package node

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mojoup/mojoup-node/internal/store"
	"github.com/mojoup/mojoup-node/pkg/console/api"
	"github.com/mojoup/mojoup-node/pkg/secrets"
	"github.com/mojoup/mojoup-node/pkg/secrets/signin"
)

// said is what a session of the node's, the only one, would have sent in place of
// a stand-in, or why it would not have been.
func (r *running) said(t *testing.T, host, path, standIn string) string {
	t.Helper()
	l := r.only()
	if l == nil {
		t.Fatal("the session is gone")
	}
	h := http.Header{"Authorization": {"Bearer " + standIn}}
	swap, misuse := l.keys.ring.Look(secrets.Request{Host: host, Port: 443, TLS: true, Path: path, Header: h})
	if misuse != nil {
		return misuse.Reason
	}
	swap.Header(h)
	return strings.TrimPrefix(h.Get("Authorization"), "Bearer ")
}

func (r *running) only() *life {
	r.node.mu.Lock()
	defer r.node.mu.Unlock()
	for _, l := range r.node.live {
		return l
	}
	return nil
}

// until waits until something is so.
func until(t *testing.T, what string, so func() bool) {
	t.Helper()
	late, tick := time.After(enough), time.NewTicker(5*time.Millisecond)
	defer tick.Stop()
	for !so() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("%s: it never is", what)
		}
	}
}

// noticed waits until everybody who looks at the session is told a line, and
// whoever asks for its log.
func (r *running) noticed(t *testing.T, id, line string) {
	t.Helper()
	until(t, line, func() bool {
		s, err := r.client.Session(t.Context(), id)
		return err == nil && strings.Contains(strings.Join(s.Notices, "\n"), line) && strings.Contains(r.only().diaryText(), line)
	})
}

// watchful serves a node that looks after its keys and sign-ins all the time.
func (w world) watchful(t *testing.T) *running {
	t.Helper()
	o := w.options(t, nativeEngine(t))
	o.Times = Times{Keys: 10 * time.Millisecond}
	return w.serve(t, o)
}

// sends is what the host gets that the sign-in of copilot is for, of a request with
// what stands for its token, or why it gets nothing.
func (l *life) sends(one *lent) string {
	h := http.Header{"Authorization": {"Bearer " + one.standIn}}
	swap, misuse := l.keys.ring.Look(secrets.Request{Host: "api.github.com", Port: 443, TLS: true, Path: "/copilot_internal/user", Header: h})
	if misuse != nil {
		return misuse.Reason
	}
	swap.Header(h)
	return strings.TrimPrefix(h.Get("Authorization"), "Bearer ")
}

// noted waits until the session's log says something.
func (r *running) noted(t *testing.T, line string) {
	t.Helper()
	until(t, line, func() bool { return strings.Contains(r.only().diaryText(), line) })
}

// TestB88_SecretsAreTakenFromRunningSessions: a secret that is removed is refused
// from the next request on, one that is bound elsewhere goes there only, and one
// that is set again is given again; no session that wants a removed one starts.
// What the store's file says counts too, whoever has written it.
func TestB88_SecretsAreTakenFromRunningSessions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.watchful(t)
	var rebound []string
	set := func(change func(*api.SecretRequest)) {
		t.Helper()
		req := api.SecretRequest{Name: "API_KEY", Kind: "store", Key: api.Key(oneKey), Hosts: []string{"api.x.example"}}
		change(&req)
		done, err := r.client.SetSecret(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		rebound = done.Rebound
	}
	set(func(*api.SecretRequest) {})
	req := api.RunRequest{Command: []string{"/bin/sh", "-c", "echo $API_KEY; echo ready; exec sleep 600"}, PolicyName: "p", Policy: `{"version":1,"network":{"rules":[{"hosts":["api.x.example"]}]},"secrets":["API_KEY"]}`}
	a := w.ask(t, r.client, req)
	defer a.gone()
	a.out.await(t, "ready")
	standIn, _, _ := strings.Cut(a.out.String(), "\n")
	id := string(r.only().id)
	says := func(host, path string) string { return r.said(t, host, path, standIn) }
	if got := says("api.x.example", "/v1"); got != oneKey {
		t.Fatalf("at first %s", got)
	}

	set(func(r *api.SecretRequest) { r.Key, r.Paths = api.Key(otherKey), []string{"/v2/**"} })
	if got := says("api.x.example", "/v1"); !strings.Contains(got, "other paths only: /v2/**") {
		t.Errorf("another path: %s", got)
	}
	if got := says("api.x.example", "/v2/x"); got != otherKey {
		t.Errorf("the path that is left: %s", got)
	}
	r.noticed(t, id, "the secret API_KEY is bound anew: it goes to api.x.example at /v2/** only, now")
	rebound = nil
	set(func(r *api.SecretRequest) { r.Hosts = []string{"else.x.example"} })
	if !slices.Equal(rebound, []string{id}) {
		t.Errorf("who sets it is told of %q", rebound)
	}
	r.noticed(t, id, "it goes to else.x.example only, now, which the policy does not allow")
	if got := says("api.x.example", "/v2/x"); !strings.Contains(got, "goes to else.x.example only") {
		t.Errorf("another host: %s", got)
	}

	if done, err := r.client.RemoveSecret(t.Context(), "API_KEY"); err != nil || !slices.Equal(done.Sessions, []string{id}) {
		t.Fatalf("%+v, %v", done, err)
	}
	if got := says("else.x.example", "/v1"); !strings.Contains(got, "holds the stand-in of API_KEY, which was withdrawn: its person has removed it") {
		t.Errorf("removed: %s", got)
	}
	r.noticed(t, id, "the secret API_KEY was withdrawn")
	again := w.ask(t, r.client, req)
	if e, err := again.end(t); err != nil || e.Problem == nil || !strings.Contains(e.Problem.Sentence, "API_KEY, which you have not set") {
		t.Errorf("a new start: %+v, %v", e, err)
	}

	set(func(*api.SecretRequest) {})
	if got := says("api.x.example", "/v1"); got != oneKey {
		t.Errorf("set again: %s", got)
	}
	r.noticed(t, id, "the secret API_KEY is there again")
	if len(rebound) != 0 {
		t.Errorf("a session that had lost it had it elsewhere: %q", rebound)
	}
	if err := os.Remove(filepath.Join(w.paths.State, "secrets.json")); err != nil {
		t.Fatal(err)
	}
	until(t, "the store is gone", func() bool { return strings.Contains(says("api.x.example", "/v1"), "withdrawn") })
}

// TestB88_AKeyWhoseFileIsGone is withdrawn, or one that others may read, and given
// again with the file.
func TestB88_AKeyWhoseFileIsGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.watchful(t)
	file := filepath.Join(t.TempDir(), "key")
	write := func() {
		if err := os.WriteFile(file, []byte(oneKey), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write()
	if _, err := r.client.SetSecret(t.Context(), api.SecretRequest{Name: "API_KEY", Kind: "file", At: file, Hosts: []string{"api.x.example"}}); err != nil {
		t.Fatal(err)
	}
	a := w.ask(t, r.client, api.RunRequest{Command: []string{"/bin/sh", "-c", "echo $API_KEY; echo ready; exec sleep 600"}, PolicyName: "p", Policy: `{"version":1,"network":{"rules":[]},"secrets":["API_KEY"]}`})
	defer a.gone()
	a.out.await(t, "ready")
	standIn, _, _ := strings.Cut(a.out.String(), "\n")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	until(t, "the file is gone", func() bool {
		return strings.Contains(r.said(t, "api.x.example", "/", standIn), "holds the stand-in of API_KEY, which was withdrawn: the file "+file)
	})
	write()
	until(t, "the file is there again", func() bool { return r.said(t, "api.x.example", "/", standIn) == oneKey })
	// A session judges the file as `secret set` and a start do.
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	until(t, "others may read it", func() bool {
		return strings.Contains(r.said(t, "api.x.example", "/", standIn), "which was withdrawn: others may read the file "+file)
	})
	r.noticed(t, string(r.only().id), "the secret API_KEY was withdrawn: others may read the file")
	if err := os.Chmod(file, 0o600); err != nil {
		t.Fatal(err)
	}
	until(t, "it is its person's alone again", func() bool { return r.said(t, "api.x.example", "/", standIn) == oneKey })
	if _, err := r.client.RemoveSecret(t.Context(), "API_KEY"); err != nil {
		t.Fatal(err)
	}
	if _, kept := r.only().keys.sources()["API_KEY"]; kept || !strings.Contains(r.said(t, "api.x.example", "/", standIn), "its person has removed it") {
		t.Error("a secret that was removed is read again, since its file is still there")
	}
}

// TestB88_AKeyInAVariable comes back as it was when the session began, where it is in
// that variable again; from another one it cannot come, which is said.
func TestB88_AKeyInAVariable(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.serve(t, w.options(t, nativeEngine(t)))
	set := func(variable string) {
		t.Helper()
		if _, err := r.client.SetSecret(t.Context(), api.SecretRequest{Name: "API_KEY", Kind: "env", At: variable, Hosts: []string{"api.x.example"}}); err != nil {
			t.Fatal(err)
		}
	}
	remove := func(want ...string) {
		t.Helper()
		if done, err := r.client.RemoveSecret(t.Context(), "API_KEY"); err != nil || !slices.Equal(done.Sessions, want) {
			t.Fatalf("%+v, %v", done, err)
		}
	}
	set("MINE")
	a := w.ask(t, r.client, api.RunRequest{
		Command: []string{"/bin/sh", "-c", "echo $API_KEY; echo ready; exec sleep 600"}, Keys: map[string]api.Key{"MINE": api.Key(oneKey)},
		PolicyName: "p", Policy: `{"version":1,"network":{"rules":[]},"secrets":["API_KEY"]}`,
	})
	defer a.gone()
	a.out.await(t, "ready")
	standIn, _, _ := strings.Cut(a.out.String(), "\n")
	sent := func() string { return r.said(t, "api.x.example", "/", standIn) }
	id := string(r.only().id)
	remove(id)
	if got := sent(); !strings.Contains(got, "its person has removed it") {
		t.Errorf("removed: %s", got)
	}
	set("ANOTHER")
	r.noted(t, "the secret API_KEY is not there again: it is in the variable ANOTHER now, which only sessions have that are started from now on")
	if got := sent(); !strings.Contains(got, "it is in the variable ANOTHER now") {
		t.Errorf("in another variable: %s", got)
	}
	remove() // from nobody: it is lost already
	set("MINE")
	if got := sent(); got != oneKey {
		t.Errorf("set again: %s", got)
	}
}

// TestB88_SetAnewFromElsewhere: the key of before goes to no host that its person
// has named for another one, whether that can be read or not.
func TestB88_SetAnewFromElsewhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.watchful(t)
	file := filepath.Join(t.TempDir(), "key")
	set := func(kind, at, key, host string) {
		t.Helper()
		_, err := r.client.SetSecret(t.Context(), api.SecretRequest{Name: "API_KEY", Kind: kind, At: at, Key: api.Key(key), Hosts: []string{host}})
		must(t, err)
	}
	set("store", "", oneKey, "api.x.example")
	a := w.ask(t, r.client, api.RunRequest{
		Command: []string{"/bin/sh", "-c", "echo $API_KEY; echo ready; exec sleep 600"}, PolicyName: "p", Policy: `{"version":1,"network":{"rules":[]},"secrets":["API_KEY"]}`,
	})
	defer a.gone()
	a.out.await(t, "ready")
	standIn, _, _ := strings.Cut(a.out.String(), "\n")
	sent := func(host string) string { return r.said(t, host, "/", standIn) }
	must(t, os.WriteFile(file, []byte(otherKey), 0o600))
	set("file", file, "", "file.x.example")
	if got := sent("file.x.example"); got != otherKey {
		t.Errorf("from a file: %s", got)
	}
	set("env", "ELSEWHERE", "", "env.x.example")
	if got := sent("env.x.example"); !strings.Contains(got, "it is in the variable ELSEWHERE now") {
		t.Errorf("from a variable: %s", got)
	}
	set("store", "", oneKey, "api.x.example")
	if got := sent("api.x.example"); got != oneKey {
		t.Errorf("in the store again: %s", got)
	}
}

// TestB88_SignInsAreTakenFromRunningSessions: where the tool on the host is signed
// out, or the mode is switched off, a stand-in is refused, and a token that is
// inside too, whose file goes; signed in again, the session has it again. A session
// that is started meanwhile has none.
func TestB88_SignInsAreTakenFromRunningSessions(t *testing.T) {
	t.Parallel()
	const shown = `cat ~/.claude/.credentials.json; echo ready; f=~/.claude/.credentials.json
while [ -e $f ]; do sleep 0.02; done; echo removed; while ! [ -e $f ]; do sleep 0.02; done; cat $f; echo again; exec sleep 600`
	for _, tt := range []struct {
		name, says string
		mode       signin.Mode
		away, back func(t *testing.T, s *signedIn, w world)
	}{
		{name: "signed out", says: "is not signed in here", mode: signin.StandIn},
		{name: "signed out", says: "is not signed in here", mode: signin.Lease},
		{name: "signed out", says: "is not signed in here", mode: signin.Copy},
		{name: "blanked", says: "was signed out", mode: signin.StandIn, away: func(t *testing.T, s *signedIn, _ world) {
			if err := os.WriteFile(s.file, []byte(`{"claudeAiOauth":{"accessToken":"","refreshToken":"","expiresAt":0}}`), 0o600); err != nil {
				t.Fatal(err)
			}
		}},
		{name: "switched off", says: "its mode is off", mode: signin.StandIn, away: switched("off"), back: switched("standin")},
		{name: "switched off", says: "its mode is off", mode: signin.Hold, away: switched("off"), back: switched("hold")},
	} {
		t.Run(tt.name+", "+string(tt.mode), func(t *testing.T) {
			t.Parallel()
			s, w := newSignedIn(t, 8*time.Hour), newWorld(t)
			r := s.serve(t, w, tt.mode)
			a := w.ask(t, r.client, s.request(shown))
			defer a.gone()
			a.out.await(t, "ready")
			token := regexp.MustCompile(`"accessToken":\s*"([^"]+)"`).FindStringSubmatch(a.out.String())[1]
			id := string(r.only().id)
			sent := func() string { return r.said(t, "api.anthropic.com", "/v1/messages", token) }
			if got := sent(); got != s.token(t) {
				t.Fatalf("at first %s", got)
			}
			content, err := os.ReadFile(s.file)
			if err != nil {
				t.Fatal(err)
			}
			if tt.away == nil {
				err = os.Remove(s.file)
			} else {
				tt.away(t, s, w)
			}
			if err != nil {
				t.Fatal(err)
			}
			until(t, "it is gone", func() bool {
				got := sent()
				return strings.Contains(got, "sign-in claude") && strings.Contains(got, "withdrawn") && strings.Contains(got, tt.says)
			})
			r.noticed(t, id, "the sign-in of Claude Code was withdrawn")
			if tt.mode != signin.StandIn {
				a.out.await(t, "removed")
			}
			optional := s.request(`test -e ~/.claude/.credentials.json && echo there; true`)
			optional.Policy = strings.Replace(optional.Policy, `"claude"`, `"claude?"`, 1)
			other := w.ask(t, r.client, optional)
			if e, err := other.end(t); err != nil || e.Code != 0 || strings.Contains(other.out.String(), "there") {
				t.Errorf("a session that is started meanwhile: %+v, %v: %s", e, err, other.out)
			}

			if err := os.WriteFile(s.file, content, 0o600); err != nil {
				t.Fatal(err)
			}
			if tt.back != nil {
				tt.back(t, s, w)
			}
			until(t, "it is there again", func() bool { return sent() == s.token(t) })
			r.noticed(t, id, "the sign-in of Claude Code is there again")
			if tt.mode != signin.StandIn {
				a.out.await(t, "again")
			}
			if !s.srv.Alive("me") {
				t.Error("the host is logged out")
			}
		})
	}
}

// TestB88_AToolOfOnesOwn has its mode in its profile, which is looked at again.
func TestB88_AToolOfOnesOwn(t *testing.T) {
	t.Parallel()
	w, home := newWorld(t), t.TempDir()
	dir := filepath.Join(home, ".config/mojoup/tools")
	must(t, os.MkdirAll(dir, 0o700))
	must(t, os.Mkdir(filepath.Join(home, ".own"), 0o700))
	must(t, os.WriteFile(filepath.Join(home, ".own/auth.json"), []byte(`{"token":"own-0123456789abcdefghijklmnop"}`), 0o600))
	mode := func(name string) {
		must(t, os.WriteFile(filepath.Join(dir, "own.toml"), []byte(`version = 1
name = "own"
title = "My own"
choose = "first"
[program]
name = "own"
[signin]
default = "`+name+`"
modes = ["standin", "copy"]
inside = ".own/auth.json"
[[signin.place]]
default = "~/.own"
file = "auth.json"
[[signin.login]]
name = "Own"
access = "token"
keep = ["token"]
hosts = ["own.x.example"]
headers = ["Authorization: bearer"]
`), 0o600))
	}
	mode("standin")
	r := w.watchful(t)
	a := w.ask(t, r.client, api.RunRequest{
		Command: []string{"/bin/sh", "-c", "cat ~/.own/auth.json; echo ready; exec sleep 600"}, Env: []string{"HOME=" + home, "PATH=" + os.Getenv("PATH")},
		PolicyName: "p", Policy: `{"version":1,"network":{"rules":[]},"signIns":["own"]}`,
	})
	defer a.gone()
	a.out.await(t, "ready")
	standIn := regexp.MustCompile(`"token":\s*"([^"]+)"`).FindStringSubmatch(a.out.String())[1]
	if got := r.said(t, "own.x.example", "/", standIn); got != "own-0123456789abcdefghijklmnop" {
		t.Fatal(got)
	}
	mode("off")
	until(t, "it is off", func() bool { return strings.Contains(r.said(t, "own.x.example", "/", standIn), "its mode is off") })
}

// switched sets the mode of the sign-in.
func switched(mode string) func(*testing.T, *signedIn, world) {
	return func(t *testing.T, _ *signedIn, w world) {
		if err := os.WriteFile(w.paths.Config, []byte("[node.signin.mode]\nclaude = \""+mode+"\"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestB88_EveryTokenThatWasInsideIsRefused: those of before a renewal, the one whose
// file could not be put inside, the one that still is there because of that, and the
// one that the node has answered in the place of the service. What could not be put or
// removed is tried again.
func TestB88_EveryTokenThatWasInsideIsRefused(t *testing.T) {
	t.Parallel()
	s := newSignedIn(t, 8*time.Hour)
	st, err := store.Open(t.Context(), t.TempDir(), store.Options{})
	must(t, err)
	defer st.Close()
	n := &Node{store: st, log: slog.New(slog.DiscardHandler), user: whois(os.Getuid())}
	n.o.Tools, n.o.Settings = []signin.Tool{s.tool}, testSettings(t)
	defer n.telling.Wait()
	l := &life{n: n, diary: newDiary(), client: newHub(nil, false), keys: keys{ring: secrets.NewBook().Open("s")}}
	l.inside.Store(&inside{})
	one, err := l.lend(s.found(t), signin.Hold)
	must(t, err)
	l.lent = []*lent{one}
	content, broken := "", errors.New("the sandbox does not answer")
	failing := true
	in := inSession{
		put: func(s signin.Staged) error {
			if failing {
				return broken
			}
			content = string(s.Content())
			return nil
		},
		remove: func(string) error {
			if failing {
				return broken
			}
			content = ""
			return nil
		},
	}
	look := func() error { return l.lookAfter(context.Background(), one, 1, in) }
	renew := func() string {
		must(t, s.renew(t.Context(), func(*signin.SignIn) bool { return true }))
		return s.token(t)
	}
	tokens := []string{s.token(t), renew()}
	if err := look(); !errors.Is(err, broken) {
		t.Errorf("a put that fails: %v", err)
	}
	failing = false
	if err := look(); err != nil || !strings.Contains(content, tokens[1]) {
		t.Errorf("it is not tried again: %v, %q", err, content)
	}
	tokens = append(tokens, renew())
	answer := httptest.NewRecorder()
	one.token(answer, httptest.NewRequest(http.MethodPost, s.srv.URL, nil)) // before the next look
	if !strings.Contains(answer.Body.String(), tokens[2]) {
		t.Fatal(answer.Body)
	}
	must(t, os.Remove(s.file))
	failing = true
	for range 2 {
		err = look()
	}
	if !errors.Is(err, broken) {
		t.Errorf("a file that cannot be removed: %v", err)
	}
	for i, token := range tokens {
		h := http.Header{"Authorization": {"Bearer " + token}}
		_, misuse := l.keys.ring.Look(secrets.Request{Host: "api.anthropic.com", Port: 443, TLS: true, Path: "/v1/messages", Header: h})
		if misuse == nil || !strings.Contains(misuse.Reason, "holds a token of the sign-in claude claude.ai, which was withdrawn: Claude Code is not signed in here") {
			t.Errorf("token %d is good still: %+v", i, misuse)
		}
	}
	failing = false
	if look(); content != "" {
		t.Errorf("the file is not removed: %s", content)
	}
	n.telling.Wait()
	if got := strings.Join(l.shown.Notices, "\n"); !strings.Contains(got, "; sign in with claude on the host again, and it works here again") {
		t.Errorf("told: %s", got)
	}
}

// TestB88_AProgramThatFailsTakesNothing: where a program prints the sign-in, it was
// signed out when it says so by its own end, at two looks. One that is killed, cannot
// be run or is gone for a moment, as in an update, takes nothing away.
func TestB88_AProgramThatFailsTakesNothing(t *testing.T) {
	st, err := store.Open(t.Context(), t.TempDir(), store.Options{})
	must(t, err)
	defer st.Close()
	const token = "gho_Printed0123456789abcdefghij"
	home, dir := t.TempDir(), t.TempDir()
	t.Setenv("PATH", dir)
	gh := filepath.Join(dir, "gh")
	prints := func(script string) { must(t, os.WriteFile(gh, []byte("#!/bin/sh\n"+script+"\n"), 0o755)) }
	all := signin.Named(signin.Builtin(), "copilot")
	tool := all[len(all)-1]
	n := &Node{store: st, log: slog.New(slog.DiscardHandler), user: whois(os.Getuid())}
	n.o.Tools, n.o.Settings = []signin.Tool{tool}, testSettings(t)
	defer n.telling.Wait()
	l := &life{n: n, req: api.RunRequest{Env: []string{"HOME=" + home}}, diary: newDiary(), client: newHub(nil, false), keys: keys{ring: secrets.NewBook().Open("s")}}
	find := func() (*lent, error) {
		return l.findSignIn(t.Context(), tool, n.signInWorld(home, api.SignInPlaces{}), signin.StandIn)
	}
	if _, err := find(); signin.KindOf(err) != signin.None {
		t.Errorf("without the program: %v", err)
	}
	prints("echo " + token)
	one, err := find()
	must(t, err)
	l.lent = []*lent{one}
	sent := func() string { return l.sends(one) }
	looks := func(times int) (err error) {
		for range times {
			n.commands.Forget() // which time does, too
			err = l.lookAfter(context.Background(), one, keyringTurns, inSession{})
		}
		return err
	}
	for what, fails := range map[string]func(){
		"killed": func() { prints("kill -9 $$") }, "its program was killed": func() { prints("/bin/sh -c 'kill -9 $$'; exit $?") },
		"not to be run": func() { must(t, os.Chmod(gh, 0o600)) }, "gone": func() { must(t, os.Remove(gh)) },
		"without its interpreter": func() { must(t, os.WriteFile(gh, []byte("#!/none/such\n"), 0o755)) },
	} {
		prints("echo " + token)
		must(t, os.Chmod(gh, 0o755))
		fails()
		if err := looks(3); err == nil || sent() != token {
			t.Errorf("%s: %v; %s", what, err, sent())
		}
	}
	must(t, os.RemoveAll(gh))
	prints("exit 1")
	if looks(1); sent() != token {
		t.Errorf("after one look: %s", sent())
	}
	if looks(1); !strings.Contains(sent(), "which was withdrawn: Copilot CLI is not signed in here: `gh auth token` gives no token") {
		t.Errorf("after two: %s", sent())
	}
	prints("echo " + token)
	if err := looks(1); err != nil || sent() != token {
		t.Errorf("there again: %v; %s", err, sent())
	}
}

// TestB88_TakenWhileItIsRead: who removes a secret, or binds it elsewhere, while the
// command of its key runs for a session that starts, has done so for that one too.
func TestB88_TakenWhileItIsRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.serve(t, w.options(t, nativeEngine(t)))
	pipe := filepath.Join(t.TempDir(), "key")
	must(t, unix.Mkfifo(pipe, 0o600))
	secret := api.SecretRequest{Name: "API_KEY", Kind: "command", At: "cat " + pipe, Hosts: []string{"api.x.example"}}
	req := api.RunRequest{Command: []string{"/bin/sh", "-c", "echo $API_KEY; echo ready; exec sleep 600"}, PolicyName: "p", Policy: `{"version":1,"network":{"rules":[{"hosts":["api.x.example"]}]},"secrets":["API_KEY"]}`}
	start := func(meanwhile func()) *asked {
		t.Helper()
		give := func(meanwhile func()) {
			key, err := os.OpenFile(pipe, os.O_WRONLY, 0) // waits until it is read
			if err == nil {
				meanwhile()
				_, err = key.WriteString(oneKey + "\n")
				err = errors.Join(err, key.Close())
			}
			if err != nil {
				t.Error(err)
			}
		}
		var tried sync.WaitGroup
		tried.Go(func() { give(func() {}) }) // it is read when it is set, too
		_, err := r.client.SetSecret(t.Context(), secret)
		must(t, err)
		tried.Wait()
		r.node.commands.Forget()
		a := w.ask(t, r.client, req)
		give(meanwhile)
		return a
	}
	a := start(func() {
		_, err := r.client.RemoveSecret(t.Context(), "API_KEY")
		must(t, err)
	})
	if e, err := a.end(t); err != nil || e.Problem == nil || !strings.Contains(e.Problem.Sentence, "API_KEY, which you have not set") {
		t.Errorf("removed: %+v, %v", e, err)
	}
	a = start(func() {
		_, err := r.client.SetSecret(t.Context(), api.SecretRequest{Name: "API_KEY", Kind: "store", Key: api.Key(otherKey), Hosts: []string{"else.x.example"}})
		must(t, err)
	})
	defer a.gone()
	a.out.await(t, "ready")
	standIn, _, _ := strings.Cut(a.out.String(), "\n")
	if got := r.said(t, "api.x.example", "/", standIn); !strings.Contains(got, "goes to else.x.example only") {
		t.Errorf("bound elsewhere: %s", got)
	}
	if got := r.said(t, "else.x.example", "/", standIn); got != otherKey {
		t.Errorf("set anew: %s", got)
	}
}
