package registries

import (
	"archive/zip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// secret stands in every place of the fixtures that may hold a credential.
const secret = "hunter2"

// A machine is a home, a directory of fake clients and an environment.
type machine struct {
	t         *testing.T
	home, bin string
	vars      []string
	env       Env
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	m := &machine{t: t, home: t.TempDir(), bin: t.TempDir()}
	m.vars = []string{"PATH=" + m.bin}
	return m
}

// file writes below the home; @H@ in text stands for it.
func (m *machine) file(name, text string) string {
	m.t.Helper()
	p := name
	if !filepath.IsAbs(p) {
		p = filepath.Join(m.home, name)
	}
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(strings.ReplaceAll(text, "@H@", m.home)), 0o644); err != nil {
		m.t.Fatal(err)
	}
	return p
}

// client makes a fake that writes down how it was run and then runs script.
func (m *machine) client(name, script string) {
	m.t.Helper()
	p := filepath.Join(m.bin, name)
	text := "#!/bin/sh\necho \"$PWD\" >>\"$0.ran\"\n/usr/bin/env >\"$0.env\"\n" + script + "\n"
	m.file(p, text)
	if err := os.Chmod(p, 0o755); err != nil {
		m.t.Fatal(err)
	}
}

// prints makes a fake that prints text.
func (m *machine) prints(name, text string) {
	m.t.Helper()
	m.file(filepath.Join(m.bin, name+".says"), text)
	m.client(name, `exec /bin/cat "$0.says"`)
}

// ran returns the directories in which a fake was run.
func (m *machine) ran(name string) []string {
	b, err := os.ReadFile(filepath.Join(m.bin, name+".ran"))
	if err != nil {
		return nil
	}
	return strings.Fields(string(b))
}

func (m *machine) find(registry string) (Found, error) {
	m.t.Helper()
	env := m.env
	env.Home, env.Vars = m.home, m.vars
	f, err := Find(context.Background(), registry, env)
	said, jsonErr := json.Marshal(f)
	if jsonErr != nil {
		m.t.Fatal(jsonErr)
	}
	if s := string(said) + fmt.Sprint(err); strings.Contains(s, secret) {
		m.t.Errorf("a credential came out: %s", s)
	}
	return f, err
}

// lines writes hosts as "host:port tls|plain <- source" for comparison, the
// home as ~ and the clients' directory as BIN.
func (m *machine) lines(f Found) []string {
	var out []string
	for _, h := range f.Hosts {
		kind := "plain"
		if h.TLS {
			kind = "tls"
		}
		for _, s := range h.Sources {
			s = strings.NewReplacer(m.home, "~", m.bin, "BIN").Replace(s)
			out = append(out, fmt.Sprintf("%s:%d %s <- %s", h.Name, h.Port, kind, s))
		}
	}
	return out
}

// TestFind is long by its table: one row for each way to say a host.
func TestFind(t *testing.T) {
	const npmDefault = `{"registry": "https://default.example/", "userconfig": "@H@/.npmrc", "globalconfig": "@H@/etc/npmrc", "fund": false}`
	const pipDefault = `{"simple": "https://index.example/simple", "files": "files.example", "settings": [["user", "@H@/.config/pip/pip.conf"], ["global", "@H@/etc/pip.conf"]]}`
	tests := []struct {
		name, registry string
		files          map[string]string
		says           map[string]string // client -> answer
		vars           []string
		want           []string
		notes          int
	}{
		{name: "npm default", registry: "npm",
			says: map[string]string{"npm": npmDefault},
			want: []string{"default.example:443 tls <- npm config list --json"}},
		{name: "npm mirror and scopes", registry: "npm",
			files: map[string]string{
				".npmrc":    "; company\nregistry=https://u:" + secret + "@npm.corp.example:8443/api/" + secret + "/\n//npm.corp.example:8443/:_authToken=" + secret + "\n@acme:registry = \"http://acme.example\"\n",
				"etc/npmrc": "registry=https://overruled.example\n@tools:registry=https://tools.example/npm/\n"},
			says: map[string]string{"npm": `{"registry": "https://u:` + secret + `@npm.corp.example:8443/api/` + secret + `/", "@acme:registry": "http://acme.example", "@tools:registry": "https://tools.example/npm/", "userconfig": "@H@/.npmrc", "globalconfig": "@H@/etc/npmrc"}`},
			want: []string{"acme.example:80 plain <- ~/.npmrc:4", "npm.corp.example:8443 tls <- ~/.npmrc:2", "tools.example:443 tls <- ~/etc/npmrc:2"}},
		{name: "npm by variable", registry: "npm", vars: []string{"NPM_CONFIG_REGISTRY=https://env.example"},
			says: map[string]string{"npm": `{"registry": "https://env.example"}`},
			want: []string{"env.example:443 tls <- npm_config_registry in the environment"}},
		{name: "npm not installed", registry: "npm", vars: []string{"CORP=corp.example"},
			files: map[string]string{".npmrc": "registry=https://npm.${CORP}/\n@x:registry=https://${UNSET}/\n"},
			want:  []string{"npm.corp.example:443 tls <- ~/.npmrc:1"}, notes: 1},
		{name: "pip default", registry: "pypi", says: map[string]string{"python3": pipDefault},
			want: []string{"files.example:443 tls <- pip's own code (files of the default index)", "index.example:443 tls <- pip's own code (default index)"}},
		{name: "pip mirror", registry: "pypi", says: map[string]string{"python3": pipDefault},
			files: map[string]string{
				".config/pip/pip.conf": "[global]\nindex-url = https://u:" + secret + "@pypi.corp.example/simple\nextra_index_url =\n  https://one.example/simple\n  # not this\n  http://two.example:8080/simple\n[install]\nfind-links: https://wheels.example/ /opt/wheels\n",
				"etc/pip.conf":         "[global]\nindex-url=https://overruled.example/simple\n"},
			want: []string{"one.example:443 tls <- ~/.config/pip/pip.conf:3", "pypi.corp.example:443 tls <- ~/.config/pip/pip.conf:2", "two.example:8080 plain <- ~/.config/pip/pip.conf:3", "wheels.example:443 tls <- ~/.config/pip/pip.conf:8"}},
		{name: "pip default index named once more", registry: "pypi", says: map[string]string{"python3": pipDefault},
			vars: []string{"PIP_INDEX_URL=https://index.example/simple/"},
			want: []string{"files.example:443 tls <- pip's own code (files of the default index)", "index.example:443 tls <- PIP_INDEX_URL in the environment"}},
		{name: "pip own settings file", registry: "pypi", says: map[string]string{"python3": pipDefault},
			vars: []string{"PIP_CONFIG_FILE=@H@/own.conf"},
			files: map[string]string{"own.conf": "[global]\nindex-url = https://own.example\n",
				".config/pip/pip.conf": "[global]\nextra-index-url = https://passed-over.example\n"},
			want: []string{"own.example:443 tls <- ~/own.conf:2"}},
		{name: "pip without settings files", registry: "pypi", says: map[string]string{"python3": pipDefault},
			vars:  []string{"PIP_CONFIG_FILE=/dev/null"},
			files: map[string]string{".config/pip/pip.conf": "[global]\nindex-url = https://passed-over.example\n"},
			want:  []string{"files.example:443 tls <- pip's own code (files of the default index)", "index.example:443 tls <- pip's own code (default index)"}},
		{name: "pip from directories only", registry: "pypi", says: map[string]string{"python3": pipDefault},
			vars: []string{"PIP_NO_INDEX=1", "PIP_FIND_LINKS=/opt/wheels file:///x https://wheels.example/a"},
			want: []string{"wheels.example:443 tls <- PIP_FIND_LINKS in the environment"}},
		{name: "pip not installed", registry: "pypi",
			files: map[string]string{".config/pip/pip.conf": "[global]\nindex-url = https://pypi.corp.example/simple\n"},
			want:  []string{"pypi.corp.example:443 tls <- ~/.config/pip/pip.conf:2"}},
		{name: "go default", registry: "go",
			says: map[string]string{"go": `{"GOPROXY": "https://proxy.example,direct", "GOSUMDB": "sum.example", "GOENV": "@H@/go/env"}`},
			want: []string{"proxy.example:443 tls <- go env GOPROXY", "sum.example:443 tls <- go env GOSUMDB"}, notes: 1},
		{name: "go list", registry: "go", vars: []string{"GOSUMDB=x"},
			files: map[string]string{"go/env": "GOFLAGS=-v\nGOPROXY=…\n"},
			says:  map[string]string{"go": `{"GOPROXY": "https://u:` + secret + `@a.example/x|b.example,http://c.example:81,file:///cache,off,https://never.example", "GOSUMDB": "sum.example+abc+def https://d.example/sum", "GOENV": "@H@/go/env", "GOPRIVATE": "git.corp.example"}`},
			want:  []string{"a.example:443 tls <- ~/go/env:2", "b.example:443 tls <- ~/go/env:2", "c.example:81 plain <- ~/go/env:2", "d.example:443 tls <- GOSUMDB in the environment"}, notes: 1},
		{name: "go not installed", registry: "go", vars: []string{"GOPROXY=https://p.example", "GOSUMDB=off"},
			want: []string{"p.example:443 tls <- GOPROXY in the environment"}},
		{name: "apt", registry: "debian",
			says: map[string]string{"apt-get": "http://deb.example/debian/ /etc/apt/x.sources:1\nhttp://deb.example/debian/ /etc/apt/x.sources:1\nhttps://u:" + secret + "@corp.example:8443/d/ /etc/apt/y.list:3\ncdrom:[x]/ /etc/apt/y.list:4\nmirror+https://list.example/m /etc/apt/z.sources:1\ns3://bucket /etc/apt/z.sources:2\n"},
			want: []string{"corp.example:8443 tls <- /etc/apt/y.list, entry 3", "deb.example:80 plain <- /etc/apt/x.sources, entry 1", "list.example:443 tls <- /etc/apt/z.sources, entry 1"}, notes: 2},
		{name: "cargo replaced by a mirror", registry: "crates",
			files: map[string]string{
				".cargo/config.toml": "[source.crates-io]\nreplace-with = 'a'\n[source.a]\nreplace-with = 'b'\n[source.b]\nregistry = 'sparse+https://u:" + secret + "@index.corp.example/idx/'\n",
				".cargo/registry/index/index.corp.example-12/config.json": `{"dl": "https://dl.corp.example/{crate}/{version}", "api": "https://api.corp.example"}`},
			want: []string{"dl.corp.example:443 tls <- ~/.cargo/registry/index/index.corp.example-12/config.json", "index.corp.example:443 tls <- ~/.cargo/config.toml [source.b]"}},
		{name: "cargo replaced by a registry, one more by variable", registry: "crates",
			vars:  []string{"CARGO_HOME=@H@/c", "CARGO_REGISTRIES_TWO_INDEX=sparse+http://two.example:8080/"},
			files: map[string]string{"c/config": "[source.crates-io]\nreplace-with = 'one'\n[registries.one]\nindex = 'https://one.example/git'\n"},
			want:  []string{"one.example:443 tls <- ~/c/config [registries.one]", "two.example:8080 plain <- CARGO_REGISTRIES_TWO_INDEX in the environment"}, notes: 2},
		{name: "cargo vendored", registry: "crates",
			files: map[string]string{".cargo/config.toml": "[source.crates-io]\nreplace-with = 'v'\n[source.v]\ndirectory = '/vendor'\n"}},
		{name: "maven mirror of all, not installed", registry: "maven",
			files: map[string]string{".m2/settings.xml": "<settings><mirrors><mirror>\n<id>m</id><url>https://u:" + secret + "@mvn.corp.example/x</url><mirrorOf>*</mirrorOf></mirror></mirrors></settings>"},
			want:  []string{"mvn.corp.example:443 tls <- ~/.m2/settings.xml:2"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := newMachine(t)
			for name, text := range tt.files {
				m.file(name, text)
			}
			for name, text := range tt.says {
				m.prints(name, text)
			}
			for _, v := range tt.vars {
				m.vars = append(m.vars, strings.ReplaceAll(v, "@H@", m.home))
			}
			f, err := m.find(tt.registry)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.want, m.lines(f)); d != "" {
				t.Errorf("hosts (-want +got):\n%s", d)
			}
			if len(f.Notes) != tt.notes {
				t.Errorf("notes %q, want %d", f.Notes, tt.notes)
			}
			for name := range tt.says {
				if d := cmp.Diff([]string{"/"}, m.ran(name)); d != "" {
					t.Errorf("%s was run in (-want +got):\n%s", name, d)
				}
			}
		})
	}
}

func TestFindErrors(t *testing.T) {
	tests := []struct {
		name, registry, client, script string
		file, text                     string
		want                           string
	}{
		{name: "unknown", registry: "gems", want: `unknown package registry "gems"`},
		{name: "no npm", registry: "npm", want: "npm, which knows the default, is not installed"},
		{name: "no pip", registry: "pypi", want: "pip, which knows the default, is not installed"},
		{name: "python without pip", registry: "pypi", client: "python3", script: "exit 9", want: "pip, which knows"},
		{name: "no go", registry: "go", want: "go, which knows the default"},
		{name: "no cargo", registry: "crates", want: "cargo, which knows the default"},
		{name: "no apt", registry: "debian", want: "apt-get, which knows the default"},
		{name: "no maven", registry: "maven", want: "mvn, which knows the default"},
		{name: "npm dies", registry: "npm", client: "npm", script: "echo " + secret + "; echo " + secret + " >&2; exit 3", want: "npm config list --json: exit status 3"},
		{name: "npm says nothing", registry: "npm", client: "npm", want: "not a JSON object"},
		{name: "npm has none", registry: "npm", client: "npm", script: "echo '{}'", want: "names no registry"},
		{name: "npm says too much", registry: "npm", client: "npm", script: "exec /usr/bin/head -c 2000000 /dev/zero", want: "more than"},
		{name: "npm hangs with a child", registry: "npm", client: "npm", script: "/bin/sleep 60 & wait", want: "no answer in time"},
		{name: "cargo asks nobody", registry: "crates", client: "cargo", script: "exit 1", want: "asked for no host"},
		{name: "cargo settings", registry: "crates", file: ".cargo/config.toml", text: "[source]\n= '" + secret + "'", want: "line 2, column"},
		{name: "maven settings", registry: "maven", file: ".m2/settings.xml", text: "<a>\n</" + secret + ">", want: "line 2 is not XML"},
		{name: "settings are a directory", registry: "npm", file: ".npmrc/x", want: "not a regular file"},
		{name: "settings are huge", registry: "npm", file: ".npmrc", text: strings.Repeat("#", maxSettings+1), want: "larger than"},
		{name: "apt has no source", registry: "debian", client: "apt-get", want: "no package source"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := newMachine(t)
			if tt.client != "" {
				m.client(tt.client, tt.script)
			}
			if tt.file != "" {
				m.file(tt.file, tt.text)
			}
			if m.env.limit = time.Minute; strings.Contains(tt.script, "sleep") {
				m.env.limit = time.Second
			}
			f, err := m.find(tt.registry)
			if err == nil {
				t.Fatalf("got %+v, want an error", f)
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %q, want %q in it", err, tt.want)
			}
			hint := (interface{ Hint() string })(nil)
			if !errors.As(err, &hint) || hint.Hint() == "" {
				t.Errorf("%T has no hint", err)
			}
			if len(f.Hosts) > 0 {
				t.Errorf("hosts beside an error: %v", f.Hosts)
			}
		})
	}
	t.Run("no home", func(t *testing.T) {
		if _, err := Find(context.Background(), "npm", Env{Home: "here"}); !errors.Is(err, errNoHome) {
			t.Errorf("error %v", err)
		}
	})
}

// TestCargo lets a fake cargo ask through the refusing proxy, and, once let,
// fetch its index's settings.
func TestCargo(t *testing.T) {
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("wanted bash for the fake cargo, found none")
	}
	const script = `
if [ -n "$CARGO_HTTP_PROXY" ]; then
	exec /bin/bash -c 'exec 3<>"/dev/tcp/127.0.0.1/${CARGO_HTTP_PROXY##*:}"; printf "CONNECT index.example:443 HTTP/1.1\r\nHost: x\r\n\r\n" >&3; read -r line <&3; exit 101'
fi
[ -n "$HTTPS_PROXY" ] || exit 101
/bin/mkdir -p "$CARGO_HOME/registry/index/index.example-1"
echo '{"dl": "https://dl.example/c"}' >"$CARGO_HOME/registry/index/index.example-1/config.json"
exit 101`
	index := "index.example:443 tls <- cargo (its default index)"
	t.Run("offline", func(t *testing.T) {
		m := newMachine(t)
		m.client("cargo", script)
		m.env.Offline = true
		f, err := m.find("crates")
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff([]string{index}, m.lines(f)); d != "" || len(f.Notes) != 1 || len(m.ran("cargo")) != 1 {
			t.Errorf("hosts (-want +got):\n%snotes %q, runs %v", d, f.Notes, m.ran("cargo"))
		}
	})
	t.Run("online", func(t *testing.T) {
		m := newMachine(t)
		m.client("cargo", script)
		m.vars = append(m.vars, "HTTPS_PROXY=http://out.example", "CARGO_HTTP_PROXY=")
		m.env.Cache = &Cache{}
		for range 2 {
			f, err := m.find("crates")
			if err != nil {
				t.Fatal(err)
			}
			want := []string{"dl.example:443 tls <- the index's config.json, read by cargo", index}
			if d := cmp.Diff(want, m.lines(f)); d != "" || len(f.Notes) != 0 {
				t.Errorf("hosts (-want +got):\n%snotes %q", d, f.Notes)
			}
		}
		if n := len(m.ran("cargo")); n != 2 {
			t.Errorf("cargo ran %d times, want one question and one fetch", n)
		}
	})
	t.Run("cached by cargo", func(t *testing.T) {
		m := newMachine(t)
		m.client("cargo", script)
		m.file(".cargo/registry/index/index.example-9/config.json", `{"dl": "https://kept.example"}`)
		f, err := m.find("crates")
		if err != nil {
			t.Fatal(err)
		}
		want := []string{index, "kept.example:443 tls <- ~/.cargo/registry/index/index.example-9/config.json"}
		if d := cmp.Diff(want, m.lines(f)); d != "" || len(m.ran("cargo")) != 1 {
			t.Errorf("hosts (-want +got):\n%sruns %v", d, m.ran("cargo"))
		}
	})
}

// fakeMaven makes a Maven home with a super POM and returns it.
func fakeMaven(m *machine, settings string) {
	m.t.Helper()
	home := filepath.Join(m.home, "maven")
	m.file("maven/conf/settings.xml", settings)
	mvn := m.file("maven/bin/mvn", "#!/bin/sh\nexit 1\n")
	jar := m.file("maven/lib/maven-model-builder-0.jar", "")
	f, err := os.Create(jar)
	if err != nil {
		m.t.Fatal(err)
	}
	z := zip.NewWriter(f)
	w, err := z.Create("org/apache/maven/model/pom-4.0.0.xml")
	if err != nil {
		m.t.Fatal(err)
	}
	fmt.Fprint(w, "<project><repositories><repository><id>central</id><url>https://central.example/m2</url></repository></repositories>\n"+
		"<pluginRepositories><pluginRepository><id>central</id><url>https://central.example/m2</url></pluginRepository></pluginRepositories></project>")
	if err := errors.Join(z.Close(), f.Close(), os.Chmod(mvn, 0o755), os.Symlink(filepath.Join(home, "bin/mvn"), filepath.Join(m.bin, "mvn"))); err != nil {
		m.t.Fatal(err)
	}
}

func TestMaven(t *testing.T) {
	const jar = "super POM in ~/maven/lib/maven-model-builder-0.jar"
	const blocker = "<settings><mirrors><mirror><id>b</id><mirrorOf>external:http:*</mirrorOf><url>http://0.0.0.0/</url><blocked>true</blocked></mirror></mirrors></settings>"
	tests := []struct {
		name, user string
		want       []string
		notes      int
	}{
		{name: "default", want: []string{"central.example:443 tls <- " + jar + ":1", "central.example:443 tls <- " + jar + ":2"}},
		{name: "mirror with an exception",
			user: "<settings><mirrors>\n<mirror><id>x</id><mirrorOf>*,!keep</mirrorOf><url>https://x.example</url></mirror>\n</mirrors><profiles><profile><activation><activeByDefault>true</activeByDefault></activation><repositories>\n<repository><id>keep</id><url>https://keep.example:8443/r</url></repository></repositories><id>p</id></profile></profiles></settings>",
			want: []string{"keep.example:8443 tls <- ~/.m2/settings.xml:4", "x.example:443 tls <- ~/.m2/settings.xml:2"}},
		{name: "exact id before pattern",
			user: "<settings><mirrors><mirror><id>x</id><mirrorOf>external:*</mirrorOf><url>https://x.example</url></mirror>\n<mirror><id>y</id><mirrorOf>central</mirrorOf><url>https://y.example</url></mirror></mirrors></settings>",
			want: []string{"y.example:443 tls <- ~/.m2/settings.xml:2"}},
		{name: "profile replaces central, another is not active",
			user: "<settings><profiles><profile><id>a</id><repositories><repository><id>central</id><url>https://a.example</url></repository></repositories>\n<pluginRepositories><pluginRepository><id>central</id><url>https://${env.CORP}/p</url></pluginRepository></pluginRepositories></profile><profile><id>off</id><repositories><repository><id>o</id><url>https://off.example</url></repository></repositories></profile></profiles><activeProfiles><activeProfile>a</activeProfile></activeProfiles></settings>",
			want: []string{"a.example:443 tls <- ~/.m2/settings.xml:1", "corp.example:443 tls <- ~/.m2/settings.xml:2"}},
		{name: "plain http is blocked, a property is unknown",
			user: "<settings><profiles><profile><id>a</id><repositories><repository><id>h</id><url>http://h.example</url></repository><repository><id>i</id><url>https://${some.thing}/</url></repository></repositories></profile></profiles><activeProfiles><activeProfile>a</activeProfile></activeProfiles></settings>",
			want: []string{"central.example:443 tls <- " + jar + ":1", "central.example:443 tls <- " + jar + ":2"}, notes: 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := newMachine(t)
			m.vars = append(m.vars, "CORP=corp.example")
			fakeMaven(m, blocker)
			if tt.user != "" {
				m.file(".m2/settings.xml", tt.user)
			}
			f, err := m.find("maven")
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.want, m.lines(f)); d != "" || len(f.Notes) != tt.notes {
				t.Errorf("hosts (-want +got):\n%snotes %q, want %d", d, f.Notes, tt.notes)
			}
		})
	}
}

// TestSmallEnvironment shows what a client is given: no token of another
// program, no relative directory, nothing of the repository.
func TestSmallEnvironment(t *testing.T) {
	m := newMachine(t)
	repo := t.TempDir()
	m.file(filepath.Join(repo, "bin/npm"), "#!/bin/sh\necho '{\"registry\": \"https://repository.example\"}'\n")
	if err := os.Chmod(filepath.Join(repo, "bin/npm"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Chdir(repo)
	m.prints("npm", `{"registry": "https://npm.example"}`)
	m.file(".npmrc", "registry=https://${CORP}/\n//x/:_authToken=${NPM_TOKEN}\n")
	m.env.Avoid = []string{repo}
	m.vars = []string{"PATH=bin:" + repo + "/bin:" + m.bin, "AWS_SECRET=" + secret, "NPM_TOKEN=" + secret, "CORP=x", "PIP_INDEX_URL=" + secret, "npm_config_x=y"}
	f, err := m.find("npm")
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Hosts) != 1 || f.Hosts[0].Name != "npm.example" {
		t.Errorf("hosts %v", f.Hosts)
	}
	b, err := os.ReadFile(filepath.Join(m.bin, "npm.env"))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(b), secret) || strings.Contains(string(b), repo) {
		t.Errorf("the client was given\n%s", b)
	}
	for _, want := range []string{"CORP=x", "npm_config_x=y", "HOME=" + m.home} {
		if !slices.Contains(strings.Split(string(b), "\n"), want) {
			t.Errorf("the client was not given %s", want)
		}
	}
}

func TestCache(t *testing.T) {
	m := newMachine(t)
	m.env.Cache, m.env.CacheDir = &Cache{}, t.TempDir()
	m.prints("npm", `{"registry": "https://npm.example", "userconfig": "@H@/.npmrc"}`)
	step := func(what string, runs int) Found {
		t.Helper()
		f, err := m.find("npm")
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if n := len(m.ran("npm")); n != runs {
			t.Fatalf("%s: npm ran %d times, want %d", what, n, runs)
		}
		return f
	}
	step("first", 1).Hosts[0].Name = "changed.example"
	if f := step("second", 1); f.Hosts[0].Name != "npm.example" {
		t.Errorf("the caller changed what is kept: %v", f.Hosts)
	}
	m.file(".npmrc", "@a:registry=https://a.example\n")
	step("a settings file came", 2)
	m.vars = append(m.vars, "npm_config_registry=https://npm.example")
	step("a variable came", 3)
	m.vars = append(m.vars, "EDITOR=vi")
	step("a variable of somebody else came", 3)

	m.env.Cache = &Cache{}
	step("a new process", 3)
	kept := filepath.Join(m.env.CacheDir, "registry-npm.json")
	st, err := os.Stat(kept)
	if err != nil {
		t.Fatal(err)
	}
	if st.Mode().Perm() != 0o600 {
		t.Errorf("%s has mode %v", kept, st.Mode())
	}
	if err := os.Chmod(kept, 0o644); err != nil {
		t.Fatal(err)
	}
	m.env.Cache = nil
	step("a file that others can read", 4)
	b, err := os.ReadFile(kept)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(b), "registry=https") {
		t.Errorf("the file holds variables: %s", b)
	}
	if err := os.WriteFile(kept, []byte(strings.Replace(string(b), "npm.example", "*.example", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	step("a file with a host that is none", 5)
	left, err := filepath.Glob(filepath.Join(m.env.CacheDir, ".*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

func TestEndsWithContext(t *testing.T) {
	m := newMachine(t)
	m.client("npm", "/bin/sleep 60")
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	start := time.Now()
	_, err := Find(ctx, "npm", Env{Home: m.home, Vars: m.vars})
	if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > 30*time.Second {
		t.Errorf("error %v after %v", err, time.Since(start))
	}
}
