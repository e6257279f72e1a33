package plan

import (
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/mojoup/mojoup-node/internal/repo"
	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

var update = flag.Bool("update", false, "write the golden files anew")

// certificate is a PEM block that stands for one authority.
func certificate(name string) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(name)})
}

// debian is a merged-/usr machine with a home.
func debian(home string, more map[string]Node) Host {
	h := Host{OS: "linux", At: map[string]Node{
		"/bin": {Kind: Dir, Real: "/usr/bin", Text: "usr/bin"}, "/sbin": {Kind: Dir, Real: "/usr/sbin", Text: "usr/sbin"},
		"/lib": {Kind: Dir, Real: "/usr/lib", Text: "usr/lib"}, "/lib64": {Kind: Dir, Real: "/usr/lib64", Text: "usr/lib64"},
		"/opt": dir("/opt"), "/usr": dir("/usr"),
		"/etc/ld.so.cache": file("/etc/ld.so.cache"), "/etc/alternatives": dir("/etc/alternatives"), "/etc/ssl/certs": dir("/etc/ssl/certs"),
		"/etc/localtime":  {Kind: File, Real: "/usr/share/zoneinfo/Europe/Berlin", Text: "/usr/share/zoneinfo/Europe/Berlin"},
		"/etc/os-release": {Kind: File, Real: "/usr/lib/os-release", Text: "../usr/lib/os-release"},
		home:              dir(home),
	}, Bundles: []Bundle{{Path: "/etc/ssl/certs/ca-certificates.crt", Content: certificate("system")}}}
	for path, n := range more {
		h.At[path] = n
	}
	return h
}

func dir(path string) Node  { return Node{Kind: Dir, Real: path} }
func file(path string) Node { return Node{Kind: File, Real: path} }

// fedora keeps its bundle behind links.
func fedora(home string) Host {
	h := debian(home, map[string]Node{
		"/etc/ssl/certs":     {Kind: Dir, Real: "/etc/pki/tls/certs", Text: "../pki/tls/certs", Links: []repo.Link{{At: "/etc/ssl/certs", To: "/etc/pki/tls/certs"}}},
		"/etc/pki/tls/certs": dir("/etc/pki/tls/certs"), "/etc/pki/ca-trust": dir("/etc/pki/ca-trust"), "/etc/fedora-release": file("/etc/fedora-release"),
	})
	h.Bundles = []Bundle{{Path: "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", Content: slices.Concat(certificate("system"), certificate("company"))}}
	h.ExtraCAs = [][]byte{slices.Concat(certificate("company"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("secret")}), certificate("other"))}
	return h
}

var ann = User{Name: "ann", Group: "ann", UID: 1000, GID: 1000, Home: "/home/ann", Shell: "/bin/bash"}

// at completes a repository as a look at the disk would.
func at(r repo.Repository) repo.Repository {
	r.Device, r.Inode, r.Reader, r.Writable = 2049, 4711, 1000, true
	if r.Given == "" {
		r.Given = r.Top
	}
	if r.Dir == "" {
		r.Dir = r.Top
	}
	r.Tree = sandbox.Tree{Top: r.Top, GitDir: r.GitDir, CommonDir: r.CommonDir, GitFile: r.Layout != repo.Main && r.Layout != repo.None, At: map[string]sandbox.Entry{}}
	for _, path := range sandbox.Watched(r.Tree) {
		e := sandbox.Entry{Is: sandbox.Directory}
		switch base := filepath.Base(path); {
		case base == "config", base == "gitdir", base == ".git" && path != r.GitDir && path != r.CommonDir, base == "commondir" && r.Layout == repo.Worktree:
			e.Is = sandbox.RegularFile
		case strings.HasPrefix(base, ".") && base != ".git", base == "config.worktree", base == "modules", base == "commondir", strings.HasPrefix(base, "opencode"), strings.HasPrefix(base, "kilo"), base == "reftable":
			e.Is = sandbox.Missing
		}
		r.Tree.At[path] = e
	}
	return r
}

func plain(top string) repo.Repository {
	return at(repo.Repository{Layout: repo.Main, Top: top, GitDir: top + "/.git", CommonDir: top + "/.git"})
}

var worktree = at(repo.Repository{Layout: repo.Worktree, Top: "/src/a", GitDir: "/src/repo/.git/worktrees/a", CommonDir: "/src/repo/.git", Worktree: "a"})

// input is a session that nothing is special about.
func input(change func(*Input)) Input {
	in := Input{
		ID: "s-1", Repository: plain("/src/repo"), User: ann, Host: debian("/home/ann", nil),
		Env:    []string{"PATH=/usr/local/bin:/usr/bin:/bin", "TERM=xterm-256color", "LANG=de_DE.UTF-8", "HOME=/home/ann", "USER=ann"},
		Author: Author{Name: "Ann", Email: "ann@example.com"}, SessionCA: certificate("session"),
		Limits: sandbox.Limits{Processes: 512}, Private: []string{"/home/ann/.local/state/mojoup"}, WorkDir: "/run/user/1000/mojoup/root",
	}
	if change != nil {
		change(&in)
	}
	return in
}

func TestPlanGolden(t *testing.T) {
	for name, in := range map[string]Input{
		"plain clone": input(nil),
		"worktree":    input(func(in *Input) { in.Repository = worktree }),
		"no git": input(func(in *Input) {
			in.Repository = at(repo.Repository{Layout: repo.None, Top: "/srv/data"})
			in.Author = Author{}
		}),
		"files of the policy": input(func(in *Input) {
			in.Repository.Hide = []repo.Hidden{{Path: "/src/repo/.env"}, {Path: "/src/repo/.vscode", Dir: true}, {Path: "/src/repo/keys", Dir: true}}
			in.Repository.Tree.Protect = []string{"/src/repo/deploy/prod.yml", "/src/repo/keys/public.pem"}
			for path, is := range map[string]sandbox.EntryKind{"/src/repo/deploy": sandbox.Directory, "/src/repo/deploy/prod.yml": sandbox.RegularFile, "/src/repo/keys": sandbox.Directory, "/src/repo/keys/public.pem": sandbox.RegularFile} {
				in.Repository.Tree.At[path] = sandbox.Entry{Is: is}
			}
		}),
		"root": input(func(in *Input) {
			in.User = User{Name: "root", Group: "root", Home: "/root", Shell: "/bin/bash"}
			in.Host = debian("/root", nil)
		}),
		"below home": input(func(in *Input) { in.Repository = plain("/home/ann/src/my repo") }),
		"image": input(func(in *Input) {
			in.Image = true
			in.Host = debian("/home/ann", map[string]Node{"/home/ann/.cargo/bin": dir("/home/ann/.cargo/bin"), "/home/ann/.cargo": dir("/home/ann/.cargo")})
			in.Env = append(in.Env, "PATH=/home/ann/.cargo/bin:/opt/x/bin:/usr/bin:/bin")
		}),
		"fedora": input(func(in *Input) { in.Host = fedora("/home/ann") }),
		"linked paths": input(func(in *Input) {
			in.User.Home = "/home/ann"
			in.Host = debian("/home/ann", map[string]Node{"/home/ann": {Kind: Dir, Real: "/var/home/ann", Links: []repo.Link{{At: "/home", To: "/var/home"}}}})
			in.Repository = at(repo.Repository{
				Layout: repo.Main, Top: "/data/src/repo", Given: "/home/ann/src/repo", Dir: "/data/src/repo/sub", GitDir: "/data/src/repo/.git", CommonDir: "/data/src/repo/.git",
				Links: []repo.Link{{At: "/home", To: "/var/home"}, {At: "/var/home/ann/src", To: "/data/src"}},
			})
		}),
		"toolchains": input(func(in *Input) {
			h := "/home/ann"
			in.Host = debian(h, map[string]Node{
				h + "/.nvm": dir(h + "/.nvm"), h + "/.nvm/versions/node/v22/etc/npmrc": file(h + "/.nvm/versions/node/v22/etc/npmrc"),
				h + "/.nvm/versions/node/v22/bin": dir(h + "/.nvm/versions/node/v22/bin"), h + "/.nvm/versions/node/v22": dir(h + "/.nvm/versions/node/v22"),
				h + "/.cargo/bin": dir(h + "/.cargo/bin"), h + "/.rustup": dir(h + "/.rustup"), h + "/go/bin": dir(h + "/go/bin"),
				h + "/.local/share/uv": dir(h + "/.local/share/uv"), h + "/.local/share/uv/credentials": dir(h + "/.local/share/uv/credentials"),
				h + "/.local/share/pnpm": dir(h + "/.local/share/pnpm"), h + "/.local/share/pnpm/store": dir(h + "/.local/share/pnpm/store"),
				h + "/.local": dir(h + "/.local"), h + "/.local/lib": dir(h + "/.local/lib"),
				h + "/.local/bin":   {Kind: Dir, Real: h + "/dotfiles/bin", Text: "../dotfiles/bin", Links: []repo.Link{{At: h + "/.local/bin", To: h + "/dotfiles/bin"}}},
				h + "/anaconda/bin": dir(h + "/anaconda/bin"), h + "/anaconda": dir(h + "/anaconda"), h + "/anaconda/lib": dir(h + "/anaconda/lib"), h + "/anaconda/.condarc": file(h + "/anaconda/.condarc"),
				h + "/project/bin": dir(h + "/project/bin"), h + "/project": dir(h + "/project"), h + "/project/lib": dir(h + "/project/lib"), h + "/project/.git": dir(h + "/project/.git"),
				h + "/.claude/bin": dir(h + "/.claude/bin"), "/data/tools/bin": dir("/data/tools/bin"), "/data/tools": dir("/data/tools"),
				"/home": dir("/home"), "/etc": dir("/etc"),
			})
			in.Env = append(in.Env, "PATH="+strings.Join([]string{
				h + "/.local/bin", h + "/.nvm/versions/node/v22/bin", h + "/.cargo/bin", h + "/go/bin", h + "/anaconda/bin", h + "/project/bin", "/data/tools/bin",
				"/src/repo/node_modules/.bin", h, "/home", h + "/.claude/bin", "/etc", h + "/gone/bin", "relative/bin", ".", "", "/usr/bin", "/bin", "/usr/bin",
			}, ":"))
		}),
		"asked for by name": input(func(in *Input) {
			in.Env = append(in.Env, "TOKEN=x=y", "HTTPS_PROXY=http://elsewhere:1", "HOME=/elsewhere", "SSH_AUTH_SOCK=/tmp/agent", "DOCKER_HOST=unix:///x", "XDG_RUNTIME_DIR=/run/user/1", "EMPTY=")
		}),
		"tool": input(func(in *Input) {
			in.Env = append(in.Env, "OWN=by name")
			in.Tool = Tool{Env: []string{"OWN=the tool's", "TOOL_HOME=/home/ann/.tool"}, Files: []OwnFile{{Path: ".tool/config.json", Text: []byte("{}\n")}}}
		}),
		"nobody without an entry": input(func(in *Input) {
			in.User = User{UID: 4242, GID: 4242, Groups: []int{4242, 27}}
			in.Host.Bundles = nil
			in.Repository.Reader, in.Repository.Writable = 4242, false
		}),
	} {
		t.Run(name, func(t *testing.T) {
			p, err := Make(in)
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join("testdata", strings.ReplaceAll(name, " ", "-")+".txt")
			got := render(p)
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("%s (-want +got; -update writes it anew):\n%s", path, diff)
			}
		})
	}
}

// render spells a plan for people who review a change of it.
func render(p Plan) string {
	var b strings.Builder
	s := p.Spec
	fmt.Fprintf(&b, "%s as %d:%d %v on %s, in %s, proxy %s, over %s\nlimits %+v\n\n", s.ID, s.Identity.UID, s.Identity.GID, s.Identity.Groups, s.Hostname, p.Dir, s.Proxy, s.WorkDir, s.Limits)
	last := ""
	for _, m := range s.Mounts {
		kind := map[sandbox.MountKind]string{sandbox.Bind: "bind", sandbox.Scratch: "scratch", sandbox.Text: "text", sandbox.Link: "link", sandbox.Seed: "own"}[m.Kind]
		if m.Access == sandbox.ReadWrite {
			kind += " rw"
		}
		line := fmt.Sprintf("%-10s %s", kind, m.Target)
		if m.Source != "" && m.Source != m.Target {
			line += " <- " + m.Source
		}
		if m.Mode != 0 {
			line += fmt.Sprintf(" %04o", m.Mode)
		}
		if m.Optional {
			line += " if there"
		}
		fmt.Fprintln(&b, line)
		content := string(m.Begin) + string(m.Content)
		switch {
		case content != "" && content == last:
			fmt.Fprintln(&b, "             | the same")
		case !utf8.ValidString(content):
			fmt.Fprintln(&b, "             | what only programs read")
		default:
			for text := range strings.Lines(content) {
				fmt.Fprint(&b, "             | "+text)
			}
		}
		last = content
	}
	fmt.Fprintln(&b)
	for _, g := range s.Protect {
		name := map[sandbox.Guard]string{sandbox.Pin: "pin", sandbox.Freeze: "freeze", sandbox.Thaw: "thaw", sandbox.HoldDir: "hold dir", sandbox.HoldFile: "hold file", sandbox.Shelter: "shelter"}[g.Guard]
		fmt.Fprintf(&b, "%-10s %s\n", name, g.Path)
	}
	fmt.Fprintf(&b, "\n%s\n\n", strings.Join(s.Env, "\n"))
	for _, c := range s.Checks {
		name := map[sandbox.CheckKind]string{sandbox.MustNotOpen: "must not open", sandbox.MustNotWrite: "must not write", sandbox.MustBeSame: "must be same", sandbox.MustWrite: "must write"}[c.Kind]
		fmt.Fprintf(&b, "%-15s%s", name, c.Path)
		if c.Kind == sandbox.MustBeSame {
			fmt.Fprintf(&b, " (%d:%d)", c.Device, c.Inode)
		}
		fmt.Fprintln(&b)
	}
	for _, f := range p.Facts {
		fmt.Fprintf(&b, "\n%s: %s: %s", f.Name, f.Strength, f.Detail)
	}
	fmt.Fprintln(&b)
	for _, n := range p.Notes {
		fmt.Fprintf(&b, "\n%s", n)
	}
	return b.String() + "\n"
}

// TestNothingOfTheHostShowsThrough looks at every golden plan for what no
// session may have.
func TestNothingOfTheHostShowsThrough(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) < 9 {
		t.Fatalf("%d golden plans, %v", len(files), err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			for _, forbidden := range []string{"docker.sock", "SSH_AUTH_SOCK=", "DBUS", "DOCKER_HOST=", "shadow <-", "bind       /etc/ssl\n", "PRIVATE KEY", "bind       /home\n", "bind       /home/ann\n", "bind       /\n", "NO_PROXY=*"} {
				if strings.Contains(line, forbidden) {
					t.Errorf("%s: %s", f, line)
				}
			}
		}
	}
}

// TestB33_Environment: both spellings, no bypass but the loopback, and every
// bundle variable at a file that is mounted.
func TestB33_Environment(t *testing.T) {
	p, err := Make(input(nil))
	if err != nil {
		t.Fatal(err)
	}
	env := map[string]string{}
	for _, kv := range p.Spec.Env {
		name, value, _ := strings.Cut(kv, "=")
		env[name] = value
	}
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"} {
		if env[name] != "http://127.0.0.1:3128" {
			t.Errorf("%s=%s", name, env[name])
		}
	}
	for _, name := range []string{"NO_PROXY", "no_proxy"} {
		if env[name] != "127.0.0.1,localhost,::1" {
			t.Errorf("%s=%s", name, env[name])
		}
	}
	content := map[string]string{}
	for _, m := range p.Spec.Mounts {
		if m.Kind == sandbox.Text {
			content[m.Target] = string(m.Begin) + string(m.Content)
		}
	}
	for _, m := range p.Spec.Mounts {
		if m.Kind == sandbox.Link && content[m.Source] != "" {
			content[m.Target] = content[m.Source]
		}
	}
	all, own := string(certificate("system"))+string(certificate("session")), string(certificate("session"))
	for name, want := range map[string]string{
		"SSL_CERT_FILE": all, "REQUESTS_CA_BUNDLE": all, "CURL_CA_BUNDLE": all, "GIT_SSL_CAINFO": all, "PIP_CERT": all, "CARGO_HTTP_CAINFO": all,
		"CODEX_CA_CERTIFICATE": all, "AWS_CA_BUNDLE": all, "NODE_EXTRA_CA_CERTS": own, "DENO_CERT": own,
	} {
		if content[env[name]] != want {
			t.Errorf("%s=%s holds %q", name, env[name], content[env[name]])
		}
	}
	if content["/etc/ssl/certs/ca-certificates.crt"] != all {
		t.Error("the system's bundle is not covered")
	}
}

// TestB51_TrustIsForTheMountedRepositoriesOnly.
func TestB51_TrustIsForTheMountedRepositoriesOnly(t *testing.T) {
	for want, r := range map[string]repo.Repository{"/src/repo": plain("/src/repo"), "/src/a /src/repo/.git": worktree} {
		p, err := Make(input(func(in *Input) { in.Repository = r }))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, kv := range p.Spec.Env {
			if n, ok := strings.CutSuffix(kv, "=safe.directory"); ok {
				value := strings.Replace(n, "KEY", "VALUE", 1) + "="
				for _, other := range p.Spec.Env {
					if v, ok := strings.CutPrefix(other, value); ok {
						got = append(got, v)
					}
				}
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("trusted %v, want %s", got, want)
		}
	}
}

func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Input)
		want   string
	}{
		"other system":      {func(in *Input) { in.Host.OS = "darwin" }, "sandboxes need Linux"},
		"colon in a home":   {func(in *Input) { in.User.Home = "/home/a:b" }, "passwd file"},
		"line in a name":    {func(in *Input) { in.User.Name = "a\nroot" }, "passwd file"},
		"relative home":     {func(in *Input) { in.User.Home = "home" }, "absolute"},
		"no name":           {func(in *Input) { in.Env = append(in.Env, "=x") }, "KEY=VALUE"},
		"no value":          {func(in *Input) { in.Env = append(in.Env, "TOKEN") }, "KEY=VALUE"},
		"nul":               {func(in *Input) { in.Env = append(in.Env, "A=\x00") }, "KEY=VALUE"},
		"linked policy":     {func(in *Input) { in.Repository.Tree.At["/src/repo/.mojoup"] = sandbox.Entry{Is: sandbox.SymbolicLink} }, "symbolic link"},
		"file of the node":  {func(in *Input) { in.Tool.Files = []OwnFile{{Path: "../../etc/passwd"}} }, "something of the host's or the node's"},
		"nothing looked at": {func(in *Input) { in.Repository = repo.Repository{} }, "BUG"},
	} {
		p, err := Make(input(func(in *Input) { in.Repository = plain("/src/repo"); c.change(in) }))
		if err == nil || !strings.Contains(err.Error(), c.want) || p.Spec.ID != "" {
			t.Errorf("%s: got %v", name, err)
			continue
		}
		var h interface{ Hint() string }
		if c.want != "BUG" && (!errors.As(err, &h) || h.Hint() == "") {
			t.Errorf("%s: no next step in %v", name, err)
		}
	}
}

// TestClientSettings: where packages come from goes in, sign-ins do not.
func TestClientSettings(t *testing.T) {
	in := input(func(in *Input) {
		in.Host.Settings = map[string][]byte{
			"/etc/npmrc":                     []byte("cafile=/x\nregistry=https://etc.example/npm/\n"),
			"/home/ann/.npmrc":               []byte("; mine\nregistry = https://ann:hunter2@mirror.example/npm/\n@acme:registry=https://acme.example/npm\n//mirror.example/npm/:_authToken=hunter2\n@x:registry=https://${TOKEN}@x.example\n"),
			"/home/ann/.config/pip/pip.conf": []byte("[global]\nindex-url = https://__token__:hunter2@pypi.example/simple\nextra_index_url =\n    https://one.example/simple\n    https://u:hunter2@two.example/simple\ntrusted-host = pypi.example\npassword = hunter2\n"),
			"/home/ann/.config/go/env":       []byte("GOPROXY=https://u:hunter2@go.example|https://second.example,direct\nGOPRIVATE=*.corp.example\nGOFLAGS=-toolexec=/x\n"),
			"/home/ann/.cargo/config.toml":   []byte("[source.crates-io]\nreplace-with = 'corp'\n[source.corp]\nregistry = 'sparse+https://u:hunter2@crates.example/index/'\n[registries.corp]\nindex = 'https://crates.example/git'\ntoken = 'hunter2'\n[registry]\ntoken = 'hunter2'\n[build]\nrustc-wrapper = '/x'\n"),
		}
		in.Host.Variables = []string{"UV_INDEX_URL=https://u:hunter2@uv.example/simple", "PIP_INDEX_URL=https://q.example/simple?token=hunter2", "AWS_KEY=hunter2"}
	})
	p, err := Make(in)
	if err != nil {
		t.Fatal(err)
	}
	got := render(p)
	for _, want := range []string{
		"registry=https://etc.example/npm/\n", "registry=https://mirror.example/npm/\n", "@acme:registry=https://acme.example/npm\n",
		"NPM_CONFIG_GLOBALCONFIG=/run/session/npmrc\n", "PIP_EXTRA_INDEX_URL= https://one.example/simple https://two.example/simple\n",
		"GOPROXY=https://go.example|https://second.example,direct\n", "GOPRIVATE=*.corp.example\n", "registry = 'sparse+https://crates.example/index/'\n",
		"replace-with = 'corp'\n", "index = 'https://crates.example/git'\n", "UV_INDEX_URL=https://uv.example/simple\n",
		"the sign-in for mirror.example stays outside", "because it may hold a token",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("nothing holds %q", want)
		}
	}
	for _, never := range []string{"hunter2", "toolexec", "rustc-wrapper", "cafile=", "AWS_KEY", "PIP_INDEX_URL=", "TOKEN}"} {
		if strings.Contains(got, never) {
			t.Errorf("the plan holds %q", never)
		}
	}
	if t.Failed() {
		t.Log(got)
	}
}

// FuzzClientSettings: whatever stands in the files, a password of an address
// does not come through.
func FuzzClientSettings(f *testing.F) {
	f.Add("registry=https://u:PASSWORD@h/", "[global]\nindex-url=https://u:PASSWORD@h/\n", "[source.a]\nregistry='https://u:PASSWORD@h/'\n")
	f.Add("@a:registry = \"https://PASSWORD@h\"", "extra-index-url = a\n  https://:PASSWORD@h", "[registry]\nindex='sparse+https://u:PASSWORD@h/'")
	f.Fuzz(func(t *testing.T, npm, pip, cargo string) {
		p, err := Make(input(func(in *Input) {
			in.Host.Settings = map[string][]byte{"/etc/npmrc": []byte(npm), "/etc/pip.conf": []byte(pip), "/home/ann/.cargo/config.toml": []byte(cargo)}
		}))
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range append(p.Notes, render(p)) {
			if i := strings.Index(text, "PASSWORD@"); i >= 0 {
				t.Errorf("it came through: %q", text[max(0, i-100):])
			}
		}
	})
}

func TestCallerEnv(t *testing.T) {
	got := CallerEnv([]string{"PATH=/bin", "LC_ALL=C", "LC_=x", "LCX=1", "AWS_SECRET_ACCESS_KEY=k", "SSH_AUTH_SOCK=s", "TERMINFO=t", "TERM=xterm", "HTTP_PROXY=p", "broken"})
	if diff := cmp.Diff([]string{"PATH=/bin", "LC_ALL=C", "LC_=x", "TERM=xterm"}, got); diff != "" {
		t.Error(diff)
	}
}

// TestSameInputSamePlan: maps have no order, plans must.
func TestSameInputSamePlan(t *testing.T) {
	first, err := Make(input(nil))
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		again, err := Make(input(nil))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(first, again); diff != "" {
			t.Fatal(diff)
		}
	}
}

// TestSecretsHaveVariablesOfTheirOwn: a name is refused if and only if a session
// would not have what was asked for in that variable.
func TestSecretsHaveVariablesOfTheirOwn(t *testing.T) {
	names := slices.Concat(factNames, neverNames, []string{"GITHUB_TOKEN", "EDITOR", "TZ", "HTTPS_PROXY"})
	p, err := Make(input(func(in *Input) {
		for _, name := range names {
			in.Env = append(in.Env, name+"=stand-in")
		}
	}))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if has := slices.Contains(p.Spec.Env, name+"=stand-in"); has != (CheckSecretVariable(name) == nil) {
			t.Errorf("%s is in the session: %v, and as a name of a secret: %v", name, has, CheckSecretVariable(name))
		}
	}
}
