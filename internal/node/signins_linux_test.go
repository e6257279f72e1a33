package node

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mojoup/mojoup-node/pkg/console/api"
	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/sandbox/kerneltest"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/enginetest"
	"github.com/mojoup/mojoup-node/pkg/secrets"
	"github.com/mojoup/mojoup-node/pkg/secrets/signin"
	"github.com/mojoup/mojoup-node/pkg/secrets/signin/signintest"
)

// signedIn is a person who is signed in to Claude Code, at a service of the
// test's own.
type signedIn struct {
	home, file string
	srv        *signintest.Server
	tool       signin.Tool
	renewals   atomic.Int32
}

func newSignedIn(t *testing.T, left time.Duration) *signedIn {
	t.Helper()
	s := &signedIn{home: t.TempDir(), srv: signintest.Start(t, time.Now, 8*time.Hour), tool: signin.Named(signin.Builtin(), "claude")[0]}
	renewal := *s.tool.Renewal
	renewal.URL = s.srv.URL
	s.tool.Renewal = &renewal
	s.file = filepath.Join(s.home, ".claude", ".credentials.json")
	if err := os.Mkdir(filepath.Dir(s.file), 0o700); err != nil {
		t.Fatal(err)
	}
	access, refresh := s.srv.SignIn("me")
	doc := fmt.Sprintf(`{"claudeAiOauth":{"accessToken":%q,"refreshToken":%q,"expiresAt":%d,"scopes":["user:inference"]},"mcpOAuth":{"x":"FORBIDDEN"}}`,
		access, refresh, time.Now().Add(left).UnixMilli())
	if err := os.WriteFile(s.file, []byte(doc), 0o600); err != nil {
		t.Fatal(err)
	}
	return s
}

// renew is what a node's own process does, or the tool on the host.
func (s *signedIn) renew(ctx context.Context, due func(*signin.SignIn) bool) error {
	s.renewals.Add(1)
	r := signin.Refresher{Client: &http.Client{}, Now: time.Now}
	_, err := r.Refresh(ctx, s.tool, s.file, due)
	return err
}

func (s *signedIn) token(t *testing.T) string {
	t.Helper()
	found, err := s.tool.At(s.file)
	if err != nil {
		t.Fatal(err)
	}
	return string(found.Access().RevealForTheWire())
}

func (s *signedIn) serve(t *testing.T, w world, mode signin.Mode) *running {
	t.Helper()
	return s.serveOn(t, w, nativeEngine(t), mode)
}

func (s *signedIn) serveOn(t *testing.T, w world, e sandbox.Engine, mode signin.Mode, changes ...func(*Options)) *running {
	t.Helper()
	if err := os.WriteFile(w.paths.Config, fmt.Appendf(nil, "[node.signin.mode]\nclaude = %q\n", mode), 0o600); err != nil {
		t.Fatal(err)
	}
	o := w.options(t, e)
	o.Tools, o.Times = []signin.Tool{s.tool}, Times{Keys: 10 * time.Millisecond}
	o.Renew = func(ctx context.Context, r Renewal) error {
		if r.Path != s.file {
			return fmt.Errorf("renews %s", r.Path)
		}
		return s.renew(ctx, r.due)
	}
	for _, change := range changes {
		change(&o)
	}
	return w.serve(t, o)
}

func (s *signedIn) request(script string) api.RunRequest {
	return api.RunRequest{
		Command: []string{"/bin/sh", "-c", script}, Env: []string{"HOME=" + s.home, "PATH=" + os.Getenv("PATH")},
		PolicyName: "p", Policy: `{"version":1,"network":{"rules":[]},"signIns":["claude"]}`,
	}
}

// follows waits until its file has changed and shows it then.
const follows = `f=~/.claude/.credentials.json; cat $f; cp $f ~/old; echo up; while cmp -s $f ~/old; do sleep 0.05; done; cat $f; stat -c '%a' $f`

// TestT11_TheNewTokenReachesSessions: what is renewed on the host is in
// sessions that lease it, mode 0600, and never a refresh token.
func TestT11_TheNewTokenReachesSessions(t *testing.T) {
	t.Parallel()
	for _, mode := range []signin.Mode{signin.Lease, signin.Hold} {
		s, w := newSignedIn(t, 8*time.Hour), newWorld(t)
		newTokenReaches(t, s, w, nativeEngine(t), mode)
	}
}

// TestT11_TheNewTokenReachesContainers: on engine docker it is the same, at
// gateways of each generation.
func TestT11_TheNewTokenReachesContainers(t *testing.T) {
	kerneltest.Long(t)
	if os.Getuid() != 0 {
		t.Skip("wanted root, who can speak to Docker and act for another user")
	}
	for i, mode := range []signin.Mode{signin.Lease, signin.Hold} {
		d := enginetest.Start(t, enginetest.Options{Generation: enginetest.Generations[i], Machine: true})
		s := newSignedIn(t, 8*time.Hour)
		w, engine := newWorld(t).at(t, d)
		newTokenReaches(t, s, w, engine, mode)
	}
}

func newTokenReaches(t *testing.T, s *signedIn, w world, on sandbox.Engine, mode signin.Mode) {
	t.Helper()
	r := s.serveOn(t, w, on, mode)
	before := s.token(t)
	a := w.ask(t, r.client, s.request(follows))
	a.up(t, time.After(enough))
	if err := s.renew(t.Context(), func(*signin.SignIn) bool { return true }); err != nil {
		t.Fatal(err)
	}
	e, err := a.end(t)
	if err != nil || e.Code != 0 {
		t.Fatalf("%s: %+v, %v: %s", mode, e, err, a.out)
	}
	out := a.out.String()
	if !strings.Contains(out, before) || !strings.Contains(out, s.token(t)) || strings.Contains(out, "refresh-of-me") || strings.Contains(out, "FORBIDDEN") || !strings.HasSuffix(out, "600\n") {
		t.Errorf("%s: %s", mode, out)
	}
	if (strings.Contains(out, signin.Held)) != (mode == signin.Hold) {
		t.Errorf("%s: %s", mode, out)
	}
	if !s.srv.Alive("me") {
		t.Errorf("%s: the host is logged out", mode)
	}
}

// TestT11_AStandInLeadsToTheNewToken: under the same stand-in the new token
// goes out, and nothing inside changes.
func TestT11_AStandInLeadsToTheNewToken(t *testing.T) {
	t.Parallel()
	s, w := newSignedIn(t, 8*time.Hour), newWorld(t)
	r := s.serve(t, w, signin.StandIn)
	a := w.ask(t, r.client, s.request(`cat ~/.claude/.credentials.json; echo ready; exec sleep 600`))
	defer a.gone()
	a.out.await(t, "ready")
	text, _, _ := strings.Cut(a.out.String(), "ready")
	var doc struct {
		ClaudeAiOauth struct {
			AccessToken string
			ExpiresAt   int64
		}
	}
	if err := json.Unmarshal([]byte(text), &doc); err != nil || doc.ClaudeAiOauth.ExpiresAt != 9999999999999 {
		t.Fatalf("%v: %s", err, text)
	}
	standIn := doc.ClaudeAiOauth.AccessToken
	if standIn == s.token(t) {
		t.Fatal("the real token is inside")
	}
	sent := func() string {
		r.node.mu.Lock()
		defer r.node.mu.Unlock()
		for _, l := range r.node.live {
			h := http.Header{"Authorization": {"Bearer " + standIn}}
			swap, misuse := l.keys.ring.Look(secrets.Request{Host: "api.anthropic.com", Port: 443, TLS: true, Path: "/v1/messages", Header: h})
			if misuse != nil {
				t.Fatal(misuse.Reason)
			}
			swap.Header(h)
			return strings.TrimPrefix(h.Get("Authorization"), "Bearer ")
		}
		return ""
	}
	if got := sent(); got != s.token(t) {
		t.Errorf("sent %s", got)
	}
	if err := s.renew(t.Context(), func(*signin.SignIn) bool { return true }); err != nil {
		t.Fatal(err)
	}
	late := time.After(enough)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for got := sent(); got != s.token(t); got = sent() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatal("the new token does not go out")
		}
	}
}

// TestT11_SessionsHaveItRenewed: ten sessions of a sign-in that is about to
// expire have it renewed once, and start with the new token; one that cannot be
// renewed and has expired is no session.
func TestT11_SessionsHaveItRenewed(t *testing.T) {
	t.Parallel()
	s, w := newSignedIn(t, 5*time.Minute), newWorld(t)
	r := s.serve(t, w, signin.Lease)
	var all []*asked
	for range 10 {
		all = append(all, w.ask(t, r.client, s.request(`cat ~/.claude/.credentials.json`)))
	}
	for _, a := range all {
		if e, err := a.end(t); err != nil || e.Code != 0 || !strings.Contains(a.out.String(), s.token(t)) {
			t.Errorf("%+v, %v: %s", e, err, a.out)
		}
	}
	if spent, reused := s.srv.Counts(); spent != 1 || reused != 0 || !s.srv.Alive("me") {
		t.Errorf("spent %d, reused %d", spent, reused)
	}

	gone, w := newSignedIn(t, -time.Minute), newWorld(t)
	gone.tool.Renewal.URL = "http://127.0.0.1:1/token"
	r = gone.serve(t, w, signin.Lease)
	a := w.ask(t, r.client, gone.request("true"))
	if e, err := a.end(t); err != nil || e.Problem == nil || !strings.Contains(e.Problem.Sentence, "cannot be reached") || e.Code != 125 {
		t.Errorf("%+v, %v", e, err)
	}
}

// TestT11_HeldIsAnsweredByTheNode: a tool that asks for a new token gets what
// the host has, and nothing where that is another account's or has expired.
func TestT11_HeldIsAnsweredByTheNode(t *testing.T) {
	t.Parallel()
	s := newSignedIn(t, 5*time.Minute)
	found, err := s.tool.At(s.file)
	if err != nil {
		t.Fatal(err)
	}
	one := &lent{tool: s.tool, mode: signin.Hold, path: s.file, found: found, renews: func(ctx context.Context, _ string) error { return s.renew(ctx, renewalDue) }, owned: func(*signin.SignIn) error { return nil }}
	ask := func(one *lent) (int, string) {
		w := httptest.NewRecorder()
		one.token(w, httptest.NewRequest(http.MethodPost, "https://platform.claude.com/v1/oauth/token", strings.NewReader(`{"refresh_token":"node-managed"}`)))
		return w.Code, w.Body.String()
	}
	for range 3 {
		status, body := ask(one)
		var said struct {
			AccessToken  string `json:"access_token"`
			RefreshToken string `json:"refresh_token"`
			ExpiresIn    int    `json:"expires_in"`
			Scope        string `json:"scope"`
		}
		if err := json.Unmarshal([]byte(body), &said); err != nil || status != 200 || said.AccessToken != s.token(t) || said.RefreshToken != signin.Held || said.ExpiresIn < 28000 || said.Scope != "user:inference" {
			t.Errorf("%d: %s", status, body)
		}
	}
	if spent, _ := s.srv.Counts(); spent != 1 {
		t.Errorf("spent %d", spent)
	}
	for name, other := range map[string]*lent{
		"lease":   {tool: s.tool, mode: signin.Lease, path: s.file, found: found, renews: one.renews},
		"standin": {tool: s.tool, mode: signin.StandIn, path: s.file, found: found, renews: one.renews},
		"foreign": {tool: s.tool, mode: signin.Hold, path: s.file, found: &signin.SignIn{Tool: s.tool, ID: "somebody else"}, renews: one.renews},
		"no file": {tool: s.tool, mode: signin.Hold, path: s.file + "x", found: found, renews: one.renews},
	} {
		if name == "foreign" {
			content, err := os.ReadFile(s.file)
			if err != nil {
				t.Fatal(err)
			}
			content = []byte(strings.Replace(string(content), `"scopes"`, `"accountUuid":"a","organizationUuid":"b","scopes"`, 1))
			if err := os.WriteFile(s.file, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if status, body := ask(other); status != 503 || strings.Contains(body, s.token(t)) {
			t.Errorf("%s: %d: %s", name, status, body)
		}
	}
}

// TestT11_TheTokenBehindAStandInIsFresh: what was renewed elsewhere goes out
// with the next request, one that has expired is renewed first, and one that a
// host does not take is renewed once, whatever else answers 401.
func TestT11_TheTokenBehindAStandInIsFresh(t *testing.T) {
	t.Parallel()
	s := newSignedIn(t, 8*time.Hour)
	n := &Node{o: Options{Renew: func(ctx context.Context, r Renewal) error { return s.renew(ctx, r.due) }}, log: slog.New(slog.DiscardHandler)}
	l := &life{n: n, keys: keys{ring: secrets.NewBook().Open("s")}}
	one, err := l.lend(s.found(t), signin.StandIn)
	if err != nil {
		t.Fatal(err)
	}
	l.lent = []*lent{one}
	k := l.keeper()
	sent := func() string {
		h := http.Header{"Authorization": {"Bearer " + one.standIn}}
		swap, misuse := l.keys.ring.Look(secrets.Request{Host: "api.anthropic.com", Port: 443, TLS: true, Path: "/v1/messages", Header: h})
		if misuse != nil {
			t.Fatal(misuse.Reason)
		}
		swap.Header(h)
		return strings.TrimPrefix(h.Get("Authorization"), "Bearer ")
	}
	names := []string{signInKey(s.tool)}
	good := func(what string, spent int) {
		t.Helper()
		k.Fresh(t.Context(), names)
		if got, _ := s.srv.Counts(); got != spent || sent() != s.token(t) {
			t.Errorf("%s: spent %d, want %d; the new token goes out: %v", what, got, spent, sent() == s.token(t))
		}
	}
	good("nothing has happened", 0)
	if err := s.renew(t.Context(), func(*signin.SignIn) bool { return true }); err != nil {
		t.Fatal(err)
	}
	good("renewed elsewhere", 1)
	if !k.Rejected(t.Context(), names, "api.anthropic.com", "/v1/messages") {
		t.Error("a token that is refused is not renewed")
	}
	good("refused", 2)
	for _, path := range []string{"/v1/messages", "/v1/else"} {
		if k.Rejected(t.Context(), names, "api.anthropic.com", path) {
			t.Errorf("renewed again for %s", path)
		}
	}
	if k.Rejected(t.Context(), []string{"KEY"}, "api.anthropic.com", "/x") {
		t.Error("renewed for another key")
	}
	good("refused again", 2)
	one.mu.Lock()
	one.found.Expires = time.Now().Add(-time.Second)
	one.mu.Unlock()
	s.expire(t)
	good("expired", 3)
	n.renewals.running.Wait()
}

// TestT11_TokensThatAreDueAtOnce: a service whose tokens hold for less than the
// time before their end at which they are renewed is not asked at every look.
func TestT11_TokensThatAreDueAtOnce(t *testing.T) {
	t.Parallel()
	s := newSignedIn(t, 5*time.Minute)
	s.srv.Life(5 * time.Minute)
	n := &Node{o: Options{Renew: func(ctx context.Context, r Renewal) error { return s.renew(ctx, r.due) }}, log: slog.New(slog.DiscardHandler)}
	for range 3 {
		if err := n.renew(t.Context(), Renewal{Tool: s.tool, Path: s.file}); err != nil {
			t.Fatal(err)
		}
	}
	if spent, reused := s.srv.Counts(); spent != 1 || reused != 0 {
		t.Errorf("spent %d, reused %d", spent, reused)
	}
}

// expire has the access token in the file expire a second ago.
func (s *signedIn) expire(t *testing.T) {
	t.Helper()
	content, err := os.ReadFile(s.file)
	if err != nil {
		t.Fatal(err)
	}
	content = regexp.MustCompile(`"expiresAt":\d+`).ReplaceAll(content, fmt.Appendf(nil, `"expiresAt":%d`, time.Now().Add(-time.Second).UnixMilli()))
	if err := os.WriteFile(s.file, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestT11_AnotherAccountIsNotTakenOver: not even where one of the two does not
// say whose it is.
func TestT11_AnotherAccountIsNotTakenOver(t *testing.T) {
	t.Parallel()
	for _, ids := range [][2]string{{"a b", ""}, {"", "a b"}, {"a b", "a c"}} {
		if (&signin.SignIn{ID: ids[0]}).Same(&signin.SignIn{ID: ids[1]}) {
			t.Errorf("%q is taken for %q", ids[0], ids[1])
		}
	}
	if !(&signin.SignIn{}).Same(&signin.SignIn{}) {
		t.Error("two that say nothing are not the same")
	}
}

// TestT11_ARenewalBeforeTheStartIsNotLost: a lease that was staged, and renewed
// before its sandbox could be reached, is handed over once it can.
func TestT11_ARenewalBeforeTheStartIsNotLost(t *testing.T) {
	t.Parallel()
	s := newSignedIn(t, 8*time.Hour)
	l := &life{n: &Node{}, keys: keys{ring: secrets.NewBook().Open("s")}}
	one := &lent{tool: s.tool, mode: signin.Lease, path: s.file, found: s.found(t)}
	l.lent = []*lent{one}
	if err := s.renew(t.Context(), func(*signin.SignIn) bool { return true }); err != nil {
		t.Fatal(err)
	}
	var pushed string
	push := inSession{put: func(s signin.Staged) error {
		pushed = string(s.Content())
		return nil
	}}
	if err := l.takeOver(t.Context(), one, push); err != nil || pushed != "" {
		t.Fatalf("%v: pushed %q into nothing", err, pushed)
	}
	l.inside.Store(&inside{})
	if err := l.takeOver(t.Context(), one, push); err != nil || !strings.Contains(pushed, s.token(t)) {
		t.Errorf("%v: pushed %q", err, pushed)
	}
}

// found is the sign-in in the file.
func (s *signedIn) found(t *testing.T) *signin.SignIn {
	t.Helper()
	found, err := s.tool.At(s.file)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestB75_NoTokenInTheEvidence: a session that shows its sign-in, keeps it in
// the workspace and asks with it leaves no token where people look later: not in the node's log with all that it can say, its state and
// runtime files, its answers, or any process's words and variables meanwhile.
func TestB75_NoTokenInTheEvidence(t *testing.T) {
	t.Parallel()
	s, w := newSignedIn(t, 5*time.Minute), newWorld(t) // it is renewed at the start
	log := &lines{more: make(chan struct{}, 1)}
	r := s.serveOn(t, w, nativeEngine(t), signin.StandIn, func(o *Options) {
		o.Logger = slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	first := s.token(t)
	a := w.ask(t, r.client, s.request(`env; cat ~/.claude/.credentials.json; cp ~/.claude/.credentials.json copied; echo shown; exec sleep 600`))
	defer a.gone()
	a.out.await(t, "shown")
	secret := []string{first, s.token(t), "refresh-of-me", "FORBIDDEN"}
	if first == s.token(t) {
		t.Fatal("it was not renewed")
	}
	leaked := func(where, text string) {
		for i, token := range secret {
			if strings.Contains(text, token) {
				t.Errorf("%s holds token %d", where, i)
			}
		}
	}
	leaked("the session", a.out.String())
	status, err := r.client.SignIns(t.Context(), api.SignInsRequest{Env: []string{"HOME=" + s.home}})
	if err != nil {
		t.Fatal(err)
	}
	answer, err := json.Marshal(status)
	if err != nil || !strings.Contains(string(answer), "claude.ai") {
		t.Fatalf("%s, %v", answer, err)
	}
	leaked("signin status", string(answer))
	for _, what := range []string{"cmdline", "environ"} {
		of, err := filepath.Glob("/proc/[0-9]*/" + what)
		if err != nil || len(of) == 0 {
			t.Fatal(of, err)
		}
		for _, p := range of {
			if b, err := os.ReadFile(p); err == nil { // or it is another's, or gone
				leaked(p, string(b))
			}
		}
	}
	searched := func() (files int) {
		for _, dir := range []string{w.paths.State, w.paths.Runtime, w.repo} {
			err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
				if err == nil && d.Type().IsRegular() {
					if b, err := os.ReadFile(path); err == nil {
						files++
						leaked(path, string(b))
					}
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		}
		return files
	}
	if n := searched(); n == 0 {
		t.Error("nothing was searched")
	}
	a.gone()
	_, _ = a.end(t)
	searched()
	if text := log.String(); !strings.Contains(text, "{") {
		t.Error("nothing was logged")
	}
	leaked("the log", log.String())
}

// TestB91_AnotherSessionsStandIn: two sessions of one sign-in have a stand-in
// each, which is worth nothing to the other, and nothing to anybody once its
// session has ended.
func TestB91_AnotherSessionsStandIn(t *testing.T) {
	t.Parallel()
	s, book := newSignedIn(t, 8*time.Hour), secrets.NewBook()
	open := func(id string) (*life, *lent) {
		l := &life{n: &Node{}, keys: keys{ring: book.Open(id)}}
		one, err := l.lend(s.found(t), signin.StandIn)
		if err != nil {
			t.Fatal(err)
		}
		return l, one
	}
	taken := func(l *life, one *lent) bool {
		h := http.Header{"Authorization": {"Bearer " + one.standIn}}
		swap, misuse := l.keys.ring.Look(secrets.Request{Host: "api.anthropic.com", Port: 443, TLS: true, Path: "/v1/messages", Header: h})
		if misuse != nil {
			return false
		}
		swap.Header(h)
		return h.Get("Authorization") == "Bearer "+s.token(t)
	}
	a, ofA := open("a")
	b, ofB := open("b")
	if !taken(a, ofA) || !taken(b, ofB) || taken(a, ofB) || taken(b, ofA) || ofA.standIn == ofB.standIn {
		t.Error("a stand-in is not one session's alone")
	}
	a.keys.ring.Close()
	c, ofC := open("a") // which gets the name, too
	if taken(a, ofA) || taken(b, ofA) || taken(c, ofA) || !taken(c, ofC) || !taken(b, ofB) {
		t.Error("the stand-in of a session that has ended is worth something")
	}
}
