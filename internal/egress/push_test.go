package egress

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/mojoup/mojoup-node/internal/egress/gitpush"
	"github.com/mojoup/mojoup-node/pkg/policy"
)

var (
	noID   = strings.Repeat("0", 40)
	hadID  = strings.Repeat("1", 40)
	nextID = strings.Repeat("2", 40)
)

func packets(payloads ...string) string {
	var b strings.Builder
	for _, p := range payloads {
		fmt.Fprintf(&b, "%04x%s", 4+len(p), p)
	}
	return b.String() + "0000"
}

// commands are a push's list; each is "old new ref".
func commands(capabilities string, list ...string) string {
	list[0] += "\x00 report-status side-band-64k " + capabilities
	return packets(list...)
}

// A gitHost is a server of one repository that takes every push.
type gitHost struct {
	mu sync.Mutex
	// mu guards what follows.
	refs   string // of its list, behind the first line
	pushed []string
	coding []string
	post   http.HandlerFunc // instead of taking it, or nil
}

func (g *gitHost) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if g.post != nil && r.Method == http.MethodPost {
		g.post(w, r)
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if strings.HasSuffix(r.URL.Path, infoRefs) {
		w.Header().Set("Content-Type", gitpush.TypeAdvertisement)
		io.WriteString(w, packets("# service=git-receive-pack\n")+g.refs)
		return
	}
	body, _ := io.ReadAll(r.Body)
	g.pushed, g.coding = append(g.pushed, string(body)), append(g.coding, r.Header.Get("Content-Encoding"))
	w.Header().Set("Content-Type", gitpush.TypeResult)
	io.WriteString(w, "pushed")
}

// took is what was pushed since the last call.
func (g *gitHost) took() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := g.pushed
	g.pushed = nil
	return out
}

// pushWorld allows agents' branches of one repository to be pushed, and all to
// be read.
func pushWorld(t *testing.T, forward func(context.Context, []Move) []error) (*world, *gitHost) {
	t.Helper()
	doc, err := policy.Parse("policy.json", []byte(`{"network": {"rules": [{"hosts": ["api.x.example"]},
		{"name": "work", "hosts": ["api.x.example"], "paths": ["/acme/widget.git/**"], "push": ["refs/heads/agent/**", "refs/tags/**"]}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	e, err := policy.Compile([]policy.Layer{{Name: policy.LayerRepository, Document: doc}}, nil, policy.BuiltinPresets())
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, e)
	w.stop()
	w.session.Forward = forward
	w.start()
	host := &gitHost{refs: packets(hadID+" refs/heads/agent/there\x00report-status", hadID+" refs/heads/main", hadID+" refs/tags/v1")}
	w.serve(443, true, host.ServeHTTP)
	return w, host
}

const widget = "https://api.x.example/acme/widget.git"

func (w *world) list(c *http.Client, url string) (int, string) {
	status, body, _ := w.get(c, url+"/info/refs?service=git-receive-pack")
	return status, body
}

func (w *world) push(c *http.Client, url, body string, headers ...string) (int, string) {
	w.t.Helper()
	req, err := http.NewRequest("POST", url, struct{ io.Reader }{strings.NewReader(body)})
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("Content-Type", gitpush.TypeRequest)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	if req.Header.Get("Method") != "" {
		req.Method = req.Header.Get("Method")
		req.Header.Del("Method")
	}
	status, said, _ := w.do(c, req)
	return status, said
}

// proved says yes to every move but those to refs/heads/agent/rewritten.
func proved(_ context.Context, moves []Move) []error {
	out := make([]error, len(moves))
	for i, m := range moves {
		if m.Was != hadID || m.Is != nextID {
			out[i] = errors.New("it is not there")
		}
	}
	return out
}

func TestD19b_EachCommandIsJudged(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("h2=%t", h2), func(t *testing.T) {
			w, host := pushWorld(t, proved)
			c := w.client(h2)
			if status, body := w.list(c, widget); status != 200 || !strings.Contains(body, "refs/heads/main") {
				t.Fatalf("%d %q", status, body)
			}
			create, move := noID+" "+nextID, hadID+" "+nextID
			for _, tt := range []struct {
				name, body, want string // want is said where the push is refused
			}{
				{"create", commands("", create+" refs/heads/agent/new"), ""},
				{"forward", commands("atomic", move+" refs/heads/agent/there"), ""},
				{"both", commands("", create+" refs/heads/agent/new", move+" refs/heads/agent/there"), ""},
				{"from a shallow clone", packets("shallow "+hadID, create+" refs/heads/agent/new\x00report-status"), ""},
				{"a new tag", commands("", create+" refs/tags/v2"), ""},
				{"a probe", "0000", ""},
				{"not proved", commands("", hadID+" "+hadID[1:]+"3 refs/heads/agent/there"), "not proved to be one: it is not there"},
				{"delete", commands("", hadID+" "+noID+" refs/heads/agent/there"), "no reference to be deleted"},
				{"another reference", commands("", create+" refs/heads/other"), "other references only"},
				{"a tag that is there", commands("", move+" refs/tags/v1"), "none that is there to be moved"},
				{"one of two", commands("", create+" refs/heads/agent/new", move+" refs/heads/main"), "another reference of this push was refused"},
				{"a lie about what is there", commands("", create+" refs/heads/agent/there"), "has this reference already"},
				{"a lie about its value", commands("", nextID+" "+nextID[1:]+"3 refs/heads/agent/there"), "another value for this reference"},
				{"a lie about what is not there", commands("", move+" refs/heads/agent/new"), "another value for this reference"},
				{"options", commands("push-options", create+" refs/heads/agent/new") + packets("merge_request.create"), "push without them"},
				{"no name of git's", commands("", create+" refs/heads/agent/../main"), "not in order"},
			} {
				status, said := w.push(c, widget+receivePack, tt.body+"PACKdata")
				if tt.name == "a probe" {
					status, said = w.push(c, widget+receivePack, tt.body)
				}
				got := host.took()
				switch {
				case tt.want == "" && (status != 200 || said != "pushed" || len(got) != 1 || !strings.HasPrefix(got[0], tt.body)):
					t.Errorf("%s: %d %q, and arrived %q", tt.name, status, said, got)
				case tt.want != "" && (status != 200 || len(got) != 0 || !strings.Contains(said, tt.want) || !strings.Contains(said, "ng refs/") || !strings.Contains(said, "id ")):
					t.Errorf("%s: %d %q, and arrived %q, want %q", tt.name, status, said, got, tt.want)
				}
				// Where the policy lets the reference be pushed, it has no other answer to give.
				asks := strings.Contains(said, "policy explain")
				if own := tt.name == "another reference" || tt.name == "one of two"; tt.want != "" && tt.name != "no name of git's" && asks != own {
					t.Errorf("%s: sends people to the policy: %t: %s", tt.name, asks, said)
				}
				verdicts := w.recorded()
				if v := verdicts[len(verdicts)-1]; v.Allowed != (tt.want == "") || v.Method != "POST" || v.Rule != "work" && tt.name != "no name of git's" {
					t.Errorf("%s: recorded %+v", tt.name, v)
				}
			}
			v := w.wait("creates", func(v Verdict) bool {
				return strings.Contains(v.Reason, "creates refs/heads/agent/new; moves forward refs/heads/agent/there")
			})
			if !v.Allowed {
				t.Errorf("%+v", v)
			}
		})
	}
}

// TestPushesThatGitWouldNotSend reach no server, however it would read them.
func TestPushesThatGitWouldNotSend(t *testing.T) {
	w, host := pushWorld(t, proved)
	c := w.client(false)
	good := commands("", noID+" "+nextID+" refs/heads/agent/new")
	if status, said := w.push(c, widget+receivePack, good); !strings.Contains(said, "not known what the server has") {
		t.Errorf("before the server was asked: %d %q", status, said)
	}
	if status, body := w.list(c, widget); status != 200 {
		t.Fatalf("%d %q", status, body)
	}
	for _, tt := range []struct {
		name, url, body string
		headers         []string
	}{
		{"in another case", widget + "/Git-Receive-Pack", good, nil},
		{"with a slash behind", widget + receivePack + "/", good, nil},
		{"with a parameter", widget + receivePack + ";x=1", good, nil},
		{"with a slash that is one only to some", "https://api.x.example/acme/widget.git%2Fgit-receive-pack", good, nil},
		{"by another method", widget + receivePack, good, []string{"Method", "PUT"}},
		{"as another type", widget + receivePack, good, []string{"Content-Type", "application/octet-stream"}},
		{"in another coding", widget + receivePack, good, []string{"Content-Encoding", "deflate"}},
		{"in two codings", widget + receivePack, good, []string{"Content-Encoding", "gzip, gzip"}},
		{"not what it says", widget + receivePack, good, []string{"Content-Encoding", "gzip"}},
		{"a probe that goes on", widget + receivePack, "0000" + good, nil},
		{"another repository", "https://api.x.example/acme/other.git" + receivePack, good, nil},
		{"half a list", widget + receivePack, good[:30], nil},
		{"too long a list", widget + receivePack, commands("", noID+" "+nextID+" refs/heads/agent/new", strings.Repeat("x", 60000), strings.Repeat("x", 60000), strings.Repeat("x", 60000), strings.Repeat("x", 60000), strings.Repeat("x", 60000)), nil},
		{"to nobody who could be told", widget + receivePack, packets(noID + " " + nextID + " refs/heads/main\x00x"), nil},
	} {
		status, said := w.push(c, tt.url, tt.body, tt.headers...)
		if got := host.took(); status != 403 || len(got) > 0 || !strings.Contains(said, "denied by policy") {
			t.Errorf("%s: %d %q, and arrived %q", tt.name, status, said, got)
		}
	}
	// A compressed one is read, and arrives as what was read.
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	io.WriteString(z, good+"PACKdata")
	z.Close()
	if status, said := w.push(c, widget+receivePack, zipped.String(), "Content-Encoding", "gzip"); status != 200 {
		t.Errorf("%d %q", status, said)
	}
	if got := host.took(); len(got) != 1 || got[0] != good+"PACKdata" || host.coding[0] != "" {
		t.Errorf("%q as %q", got, host.coding)
	}
}

// TestGitIsToldBeforeItPushes: the text of a refusal of the list is shown by
// git, that of the push itself is not.
func TestGitIsToldBeforeItPushes(t *testing.T) {
	w, _ := pushWorld(t, nil)
	c := w.client(true)
	for _, query := range []string{"service=git-receive-pack", "service=git-upload-pack&service=git-receive-pack", "x=%", "service=git-receive%2Dpack"} {
		status, body, _ := w.get(c, "https://api.x.example/acme/other.git/info/refs?"+query)
		if refused := strings.Contains(query, "receive"); (status == 403) != refused || refused && !strings.Contains(body, "git asks whether it may push") {
			t.Errorf("%s: %d %q", query, status, body)
		}
	}
	// What an answer says that is no list is not believed.
	host := &gitHost{refs: packets(nextID + " refs/heads/agent/there\x00x")[:20]}
	w.serve(443, true, host.ServeHTTP)
	c = w.client(false)
	w.list(c, widget)
	if _, said := w.push(c, widget+receivePack, commands("", noID+" "+nextID+" refs/heads/agent/new")); !strings.Contains(said, "could not be read") {
		t.Errorf("%q", said)
	}
}

// TestNobodyCanProveAForward: without somebody who knows the history an
// existing reference stays where it is.
func TestNobodyCanProveAForward(t *testing.T) {
	w, host := pushWorld(t, nil)
	c := w.client(true)
	w.list(c, widget)
	_, said := w.push(c, widget+receivePack, commands("", hadID+" "+nextID+" refs/heads/agent/there"))
	if got := host.took(); len(got) > 0 || !strings.Contains(said, "nobody here can prove it") {
		t.Errorf("%q, and arrived %q", said, got)
	}
}

// TestPacksAreNotHeld: what follows the commands goes on as it comes.
func TestPacksAreNotHeld(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		w, host := pushWorld(t, proved)
		c := w.client(h2)
		w.list(c, widget)
		head := commands("", noID+" "+nextID+" refs/heads/agent/new") + "PACK"
		arrived := make(chan string, 1)
		host.post = func(rw http.ResponseWriter, r *http.Request) {
			first := make([]byte, len(head))
			_, _ = io.ReadFull(r.Body, first)
			arrived <- string(first)
			n, _ := io.Copy(io.Discard, r.Body)
			fmt.Fprint(rw, n)
		}
		const more = 32 << 20
		from, to := io.Pipe()
		go func() {
			_, _ = io.WriteString(to, head)
			if got := <-arrived; got != head { // before the rest is sent
				t.Errorf("%q arrived", got)
			}
			_, _ = io.CopyN(to, zeros{}, more)
			_ = to.Close()
		}()
		req, _ := http.NewRequest("POST", widget+receivePack, from)
		req.Header.Set("Content-Type", gitpush.TypeRequest)
		res, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		said, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if string(said) != fmt.Sprint(more) {
			t.Errorf("%q bytes arrived", said)
		}
	}
}

// TestPushesAreNotEndless: what is read of a push before it is judged is
// bounded, and so is how many are judged at once.
func TestPushesAreNotEndless(t *testing.T) {
	began, goOn := make(chan struct{}, maxPushing+1), make(chan struct{})
	w, _ := pushWorld(t, func(ctx context.Context, moves []Move) []error {
		began <- struct{}{}
		<-goOn
		return make([]error, len(moves))
	})
	c := w.client(true)
	w.list(c, widget)
	var pushing sync.WaitGroup
	for range maxPushing + 1 {
		pushing.Go(func() {
			if _, said := w.push(c, widget+receivePack, commands("", hadID+" "+nextID+" refs/heads/agent/there")); said != "pushed" {
				t.Errorf("%q", said)
			}
		})
	}
	for range maxPushing {
		<-began
	}
	if len(began) > 0 {
		t.Error("more than are allowed are judged at once")
	}
	close(goOn)
	pushing.Wait()
	p := newPushes()
	for i := range 3 * maxListings {
		p.learn(fmt.Sprint(i/2), has{})
	}
	if len(p.known) != maxListings || len(p.order) != maxListings || p.of("0").why == "" || p.of(fmt.Sprint(3*maxListings/2-1)).why != "" {
		t.Errorf("%d repositories are known", len(p.known))
	}
}

// A long push whose length was said is not kept here before it is sent on.
func TestLongPushesPassWhole(t *testing.T) {
	w, host := pushWorld(t, proved)
	c := w.client(false)
	if status, _ := w.list(c, widget); status != 200 {
		t.Fatal(status)
	}
	body := commands("", noID+" "+nextID+" refs/heads/agent/new") + "PACK" + strings.Repeat("data", 1<<20)
	req, err := http.NewRequest("POST", widget+receivePack, strings.NewReader(body)) // with its length
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", gitpush.TypeRequest)
	res, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if got := host.took(); res.StatusCode != 200 || len(got) != 1 || got[0] != body {
		t.Errorf("%d, %d pushes of %d bytes arrived", res.StatusCode, len(got), len(body))
	}
}
