package registries

import (
	"encoding/json"
	"strings"
	"testing"
)

// newTestLook is a look that has found nothing yet.
func newTestLook(t testing.TB) *look {
	l, err := newLook("npm", Env{Home: "/home/u", Vars: []string{"A=b"}})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// wellFormed fails for an answer that a policy could not use as it is.
func wellFormed(t *testing.T, f Found) {
	t.Helper()
	for _, h := range f.Hosts {
		n, ok := normalHost(h.Name)
		if !ok || n != h.Name || h.Port == 0 || strings.ContainsAny(h.Name, "*@/ \n") || len(h.Sources) == 0 {
			t.Errorf("host %+v", h)
		}
	}
	for _, n := range f.Notes {
		if strings.ContainsAny(n, "\n\x1b") {
			t.Errorf("note %q", n)
		}
	}
}

func TestNormalHost(t *testing.T) {
	for in, want := range map[string]string{
		"A.Example.": "a.example", "nexus": "nexus", "192.0.2.1": "192.0.2.1", "2001:DB8::1": "2001:db8::1",
		"bücher.example": "xn--bcher-kva.example", "a_b.example": "a_b.example",
		"": "", ".": "", "*.example": "", "a..example": "", "-a.example": "", "a b": "", "0x7f000001": "",
		"127.1": "", "2130706433": "", "fe80::1%lo": "", strings.Repeat("a", 64) + ".example": "",
	} {
		got, ok := normalHost(in)
		if !ok {
			got = ""
		}
		if got != want {
			t.Errorf("normalHost(%q) = %q, want %q", in, got, want)
		}
	}
}

func FuzzURL(f *testing.F) {
	for _, s := range []string{"https://u:p@a.example:8443/x?y#z", "http://[2001:db8::1]/", "https://*.example", "sparse+https://a.example", "file:///x", "https://a.example:0", "https://a.example:99999", "://", "https://\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		l := newTestLook(t)
		l.addURL(raw, "here")
		got := l.found()
		wellFormed(t, got)
		if len(got.Hosts) > 1 {
			t.Errorf("one URL gave %v", got.Hosts)
		}
	})
}

func FuzzNpmrc(f *testing.F) {
	for _, s := range []string{"registry=https://a.example", "[x]\nregistry=y", "@a:registry = \"http://b.example\"\r\n;c\n#d\n=\n", "a=${B}${C?}${", "'x'='"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		lines := strings.Count(text, "\n") + 1
		for _, s := range parseNpmrc([]byte(text)) {
			if s.line < 1 || s.line > lines || strings.ContainsAny(s.key+s.value, "\n") {
				t.Errorf("setting %+v of %d lines", s, lines)
			}
			expandNpm(s.value, func(string) (string, bool) { return "", false })
		}
		l := newTestLook(t)
		_ = l.npmFromFile("/home/u/.npmrc", parseNpmrc([]byte(text)))
		wellFormed(t, l.found())
	})
}

func FuzzPipConf(f *testing.F) {
	for _, s := range []string{"[global]\nindex-url = https://a.example", "[install]\nfind_links:\n https://b.example\n\t# c\n https://d.example\n", " a\n=b\n[", "[x]\ny\n z", "____"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		settings := parsePipConf([]byte(text))
		for _, s := range settings {
			if s.line < 1 || strings.ContainsRune(s.key, '_') {
				t.Errorf("setting %+v", s)
			}
		}
		l := newTestLook(t)
		for _, c := range pipCommands {
			l.addPip(c, []pipFile{{"/home/u/pip.conf", settings}})
		}
		wellFormed(t, l.found())
	})
}

func FuzzMaven(f *testing.F) {
	for _, s := range []string{"<settings><mirrors><mirror><id>a</id><mirrorOf>*,!b</mirrorOf><url>https://c.example</url></mirror></mirrors></settings>", "<a><b></a>", "</x>", "<url/>", "<profiles><profile><repositories><repository><url>${env.X}</url></repository></repositories></profile></profiles>", strings.Repeat("<a>", 100)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := parseMaven([]byte(text), "/settings.xml")
		if err != nil {
			if len(s.mirrors)+len(s.repos) > 0 {
				t.Errorf("settings beside the error %v", err)
			}
			return
		}
		l := newTestLook(t)
		l.addMavenRepos(s, s.activeRepos(s.repos))
		wellFormed(t, l.found())
	})
}

func FuzzCargo(f *testing.F) {
	for _, s := range []string{"[source.crates-io]\nreplace-with='a'\n[source.a]\nreplace-with='crates-io'", "[registries.x]\nindex='sparse+https://a.example'", "[source.crates-io]\ndirectory='/v'", "[source]\na=1", "source=[]"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := parseCargo([]byte(text))
		if err != nil {
			return
		}
		l := newTestLook(t)
		indexes, _ := c.indexes("/home/u/.cargo/config.toml")
		for raw, source := range indexes {
			l.addURL(strings.TrimPrefix(raw, "sparse+"), source)
		}
		wellFormed(t, l.found())
	})
}

func FuzzAnswers(f *testing.F) {
	for _, s := range []string{"https://a.example /etc/apt/x:1\n", "https://a.example|b.example,direct", "name+1+2 https://c.example", `{"dl": "https://d.example/{crate}"}`, "mirror+file:/x y", ":/,"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		l := newTestLook(t)
		l.addGoProxy(text, "go env GOPROXY")
		l.addGoSum(text, "go env GOSUMDB")
		l.addURL(parseIndexConfig([]byte(text)), "config.json")
		if !strings.Contains(text, "/") { // no path of this machine is looked at
			l.addApt(text, "apt")
		}
		if c, err := parseNpmConfig([]byte(text)); err == nil && c == nil {
			t.Error("neither settings nor an error")
		}
		for _, h := range l.found().Hosts {
			wellFormed(t, Found{Hosts: []Host{h}})
		}
	})
}

func FuzzKeptAnswer(f *testing.F) {
	good, err := json.Marshal(entry{Key: "k", Found: Found{Registry: "npm", Hosts: []Host{{Name: "a.example", Port: 443, Sources: []string{"s"}}}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(good))
	f.Add(`{"key":"k","found":{"hosts":[{"name":"*","port":1,"sources":["s"]}]}}`)
	f.Fuzz(func(t *testing.T, text string) {
		kept, ok := decodeEntry([]byte(text), "k")
		if !ok && len(kept.Found.Hosts) > 0 {
			t.Error("hosts of a refused answer")
		}
		wellFormed(t, Found{Hosts: kept.Found.Hosts})
	})
}
