package policy

import (
	"strings"
	"testing"
)

const pushRules = `
	{"preset": "github"},
	{"name": "work", "hosts": ["github.com"], "paths": ["/acme/widget.git/**"], "push": ["refs/heads/agent/**", "refs/tags/v*"]}`

// pushTo is what the proxy asks about one reference.
func pushTo(repository, ref string, change Change) Request {
	return Request{Host: "github.com", Port: 443, TLS: true, Method: "POST", Path: repository + "/git-receive-pack", Ref: ref, Change: change}
}

func TestD19b_PushesByRepositoryAndReference(t *testing.T) {
	e := rules(t, pushRules, ``)
	const widget = "/acme/widget.git"
	for _, c := range []struct {
		repository, ref string
		change          Change
		want            string // what stands in the reason; empty where it is allowed
	}{
		{widget, "refs/heads/agent/x", ChangeCreate, ""},
		{widget, "refs/heads/agent/x", ChangeForward, ""},
		{widget, "refs/heads/agent/deep/er", ChangeForward, ""},
		{widget, "refs/tags/v1", ChangeCreate, ""},
		{widget, "refs/heads/agent/x", ChangeRewrite, "not proved"},
		{widget, "refs/heads/agent/x", ChangeDelete, "no reference to be deleted"},
		{widget, "refs/tags/v1", ChangeForward, "none that is there to be moved"},
		{widget, "refs/tags/v1", ChangeRewrite, "none that is there to be moved"},
		{widget, "refs/tags/v1", ChangeDelete, "no reference to be deleted"},
		{widget, "refs/heads/main", ChangeForward, "other references only: refs/heads/agent/** and refs/tags/v*"},
		{widget, "refs/heads/agent", ChangeCreate, "other references only"},
		{widget, "refs/heads/agentx/y", ChangeCreate, "other references only"},
		{widget, "refs/heads/Agent/x", ChangeCreate, "other references only"},
		{widget, "refs/for/main", ChangeCreate, "other references only"},
		{widget, "refs/heads/agent/../main", ChangeCreate, "not in order"},
		{widget, "refs/heads/agent/x.lock", ChangeCreate, "not in order"},
		{widget, "HEAD", ChangeCreate, "not in order"},
		{"/acme/other.git", "refs/heads/agent/x", ChangeCreate, "other paths only"},
		{"/acme/widget.git/../other.git", "refs/heads/agent/x", ChangeCreate, "normal form"},
	} {
		d := e.Decide(pushTo(c.repository, c.ref, c.change))
		if d.Allowed != (c.want == "") || !strings.Contains(d.Reason, c.want) || d.Push {
			t.Errorf("%s %s %d: %+v, want %q", c.repository, c.ref, c.change, d, c.want)
		}
	}
}

func TestAPushIsAskedTwice(t *testing.T) {
	e := rules(t, pushRules, ``)
	req := pushTo("/acme/widget.git", "", 0)
	if d := e.Decide(req); !d.Allowed || !d.Push || d.Rule != "work" {
		t.Errorf("%+v, want to be asked by reference", d)
	}
	req.Path = "/acme/widget.git/git-upload-pack"
	if d := e.Decide(req); !d.Allowed || d.Push {
		t.Errorf("a fetch: %+v", d)
	}
	req.Ref = "refs/heads/agent/x"
	if d := e.Decide(req); d.Allowed {
		t.Errorf("a reference that no push changes: %+v", d)
	}
	// Whatever reads the path more leniently finds a push in it too.
	for _, path := range []string{"/acme/widget.git/Git-Receive-Pack", "/acme/widget.git/git-receive-pack/", "/acme/widget.git/git-receive-pack;x", "/acme/widget.git/git-receive-pack.", "/acme/widget.git/git-receive-pack%20", "/acme%2Fwidget.git%2Fgit-receive-pack"} {
		if d := e.Decide(Request{Host: "github.com", Port: 443, TLS: true, Method: "POST", Path: path}); d.Allowed && !d.Push {
			t.Errorf("%s: %+v", path, d)
		}
	}
}

// TestOtherRulesOfTheLayerAllowNoPush: a wide rule beside a narrow one would
// make the narrow one worthless.
func TestOtherRulesOfTheLayerAllowNoPush(t *testing.T) {
	e := rules(t, `{"hosts":["**.example", "git.example"]}, {"name": "all", "hosts":["*.example"], "protocol": "tcp"}, {"hosts":["git.example"],"push":["refs/heads/agent/*"]}`, ``)
	if d := e.Decide(connect("git.example")); !d.Allowed || !d.Inspect || d.Raw {
		t.Errorf("a connection: %+v, want it looked into", d)
	}
	if d := e.Decide(Request{Host: "git.example", Port: 443}); d.Allowed {
		t.Errorf("bytes that cannot be read: %+v", d)
	}
	if d := e.Decide(connect("other.example")); !d.Allowed || d.Inspect {
		t.Errorf("another host: %+v", d)
	}
	post := Request{Host: "git.example", Port: 443, TLS: true, Method: "POST", Path: "/x.git/git-receive-pack", Ref: "refs/heads/main", Change: ChangeCreate}
	if d := e.Decide(post); d.Allowed || !strings.Contains(d.Reason, "other references only") {
		t.Errorf("%+v", d)
	}
	post.Ref, post.Host = "refs/heads/main", "other.example"
	if d := e.Decide(post); !d.Allowed {
		t.Errorf("a host without such a rule: %+v", d)
	}
	if d := e.Decide(Request{Host: "git.example", Port: 443, TLS: true, Method: "POST", Path: "/api"}); !d.Allowed {
		t.Errorf("what is no push: %+v", d)
	}
}

func TestPushesNeedEveryLayer(t *testing.T) {
	e := compile(t,
		layer(t, LayerOrganisation, `{"network":{"rules":[{"preset":"public"},{"hosts":["github.com"],"push":["refs/heads/**"]}]}}`),
		layer(t, LayerRepository, `{"network":{"rules":[{"hosts":["github.com"],"push":["refs/**"]}]}}`))
	if d := e.Decide(pushTo("/a/b", "refs/heads/x", ChangeCreate)); !d.Allowed {
		t.Errorf("%+v", d)
	}
	if d := e.Decide(pushTo("/a/b", "refs/tags/x", ChangeCreate)); d.Allowed || d.Layer != LayerOrganisation {
		t.Errorf("%+v, want the organisation's refusal", d)
	}
	// One that says nothing of pushes allows what it always did.
	e = compile(t, layer(t, LayerRepository, `{"network":{"rules":[{"hosts":["github.com"]}]}}`))
	if d := e.Decide(pushTo("/a/b", "", 0)); !d.Allowed || d.Push {
		t.Errorf("%+v", d)
	}
}

func TestLintOfPushes(t *testing.T) {
	for src, want := range map[string]string{
		`{"hosts":["github.com"],"methods":["GET"],"push":["refs/heads/x"]}`:                                                       "pushes with POST",
		`{"hosts":["github.com"]},{"hosts":["github.com"],"paths":["/a/**"],"push":["refs/heads/x"]}`:                              "",
		`{"hosts":["github.com"],"push":["refs/**"]},{"hosts":["github.com"],"push":["refs/heads/x"]}`:                             "adds nothing",
		`{"preset":"github"},{"hosts":["github.com"],"paths":["/acme/widget.git/git-receive-pack"],"push":["refs/heads/agent/*"]}`: "",
	} {
		got := ""
		for _, w := range Lint(parse(t, `{"network":{"rules":[`+src+`]}}`)) {
			got += w.Message + "\n"
		}
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", src, got, want)
		}
	}
}
