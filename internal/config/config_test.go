package config

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/mojoup/mojoup-node/internal/fault"
)

// origin writes a file of settings and returns where it is.
func origin(t testing.TB, text string, environ ...string) Origin {
	t.Helper()
	file := filepath.Join(t.TempDir(), "node.toml")
	if err := os.WriteFile(file, []byte(text), 0o640); err != nil {
		t.Fatal(err)
	}
	return Origin{File: file, Environ: environ}
}

func load(t testing.TB, o Origin) *Config {
	t.Helper()
	c, err := o.Load()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func value(t testing.TB, c *Config, key string) Value {
	t.Helper()
	v, err := c.Get(key)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func text(t testing.TB, o Origin) string {
	t.Helper()
	b, err := os.ReadFile(o.File)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestTable(t *testing.T) {
	shape := regexp.MustCompile(`^node(\.[a-z][a-z0-9]*(_[a-z0-9]+)*)+$`)
	variables := map[string]bool{}
	for _, s := range Settings() {
		if !shape.MatchString(s.Key) {
			t.Errorf("%s is not spelt as a key", s.Key)
		}
		if variables[s.Variable()] {
			t.Errorf("%s: two settings have the variable %s", s.Key, s.Variable())
		}
		variables[s.Variable()] = true
		if _, err := s.parse(s.Default); err != nil {
			t.Errorf("default: %v", err)
		}
		if !strings.HasSuffix(s.Sentence, ".") {
			t.Errorf("%s: %q is no sentence", s.Key, s.Sentence)
		}
		for _, v := range s.Refused {
			if _, err := s.parse(v); err != nil || v == s.Default {
				t.Errorf("%s: refused value %q is not allowed, or is the default", s.Key, v)
			}
		}
		if (s.Kind == Enum) != (len(s.Allowed) > 0) {
			t.Errorf("%s: kind %s with %d allowed values", s.Key, s.Kind, len(s.Allowed))
		}
		for _, other := range Settings() {
			if strings.HasPrefix(other.Key, s.Key+".") {
				t.Errorf("%s stands above %s: no file could hold both", s.Key, other.Key)
			}
		}
	}
	if len(variables) < 40 {
		t.Errorf("only %d settings", len(variables))
	}
}

func TestDefaults(t *testing.T) {
	for name, o := range map[string]Origin{
		"NoFile":      {},
		"MissingFile": {File: filepath.Join(t.TempDir(), "none", "node.toml")},
		"EmptyFile":   origin(t, ""),
		"OnlyComment": origin(t, "# nothing\n"),
		"OtherVars":   {Environ: []string{"MOJOUP_CONFIG=/x", "MOJOUP_REQUIRE_KERNEL=1", "PATH=/bin", "NOT A VARIABLE", "MOJOUP_NODE=1"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := load(t, o)
			if len(c.Values()) != len(Settings()) {
				t.Fatalf("%d values, %d settings", len(c.Values()), len(Settings()))
			}
			for _, v := range c.Values() {
				if v.Source.Kind != FromDefault || v.Text != v.Setting.Default {
					t.Errorf("%s = %q from %s", v.Setting.Key, v.Text, v.Source)
				}
			}
			if n := c.Notices(); len(n) > 0 {
				t.Errorf("notices: %q", n)
			}
		})
	}
}

func TestTypedValues(t *testing.T) {
	c := load(t, origin(t, `
[node.sandbox]
engine = "native"
limits = { cpus = 1.5, memory = "4GiB", processes = 0x200, wall = "1h30m" }
[node]
roles.sandbox = true
network.private = ["10.2.0.0/16", "fd00::/8"]
files.mounts = [ "~/.cache/go-build", # built here
  '/srv/a,b' ]
`))
	if c.String(SandboxEngine) != "native" || !c.Bool(RolesSandbox) || c.Float(LimitCPUs) != 1.5 ||
		c.Int(LimitMemory) != 4<<30 || c.Int(LimitProcesses) != 512 || c.Duration(LimitWall) != 90*time.Minute {
		t.Errorf("wrong values: %+v", c.Values())
	}
	private := []netip.Prefix{netip.MustParsePrefix("10.2.0.0/16"), netip.MustParsePrefix("fd00::/8")}
	if diff := cmp.Diff(private, c.Prefixes(NetworkPrivate), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"~/.cache/go-build", "/srv/a,b"}, c.List(FilesMounts)); diff != "" {
		t.Error(diff)
	}
	// What is handed out is the caller's own.
	c.List(FilesMounts)[0] = "changed"
	c.Prefixes(NetworkPrivate)[0] = netip.Prefix{}
	if c.List(FilesMounts)[0] == "changed" || !c.Prefixes(NetworkPrivate)[0].IsValid() {
		t.Error("a value can be changed from outside")
	}
	for key, want := range map[string]any{
		SandboxEngine: "native", RolesSandbox: true, LimitCPUs: 1.5, LimitMemory: "4GiB", LimitProcesses: int64(512),
		LimitWall: "1h30m", NetworkPrivate: []string{"10.2.0.0/16", "fd00::/8"}, FilesMounts: []string{"~/.cache/go-build", "/srv/a,b"},
	} {
		if diff := cmp.Diff(want, value(t, c, key).Any()); diff != "" {
			t.Errorf("%s: %s", key, diff)
		}
	}
}

func TestWrongKindIsABug(t *testing.T) {
	defer func() {
		if r := recover(); r == nil || !strings.HasPrefix(fmt.Sprint(r), "BUG") {
			t.Errorf("recovered %v", r)
		}
	}()
	load(t, Origin{}).Bool(SandboxEngine)
}

// A value says which of the layers it came from, down to the line.
func TestB97_EveryValueNamesItsSource(t *testing.T) {
	o := origin(t, "# one\nnode.sandbox.engine = \"native\"\n\n[node.roles]\nsandbox = true\n",
		"MOJOUP_NODE_ROLES_SANDBOX=false", "MOJOUP_NODE_NETWORK_PRIVATE=10.0.0.0/8, fd00::/8", "MOJOUP_NODE_SANDBOX_IMAGE=a=b")
	c := load(t, o)
	for key, want := range map[string]string{
		SandboxEngine: `native ` + o.File + `:2`, RolesSandbox: "false MOJOUP_NODE_ROLES_SANDBOX",
		NetworkPrivate: "10.0.0.0/8, fd00::/8 MOJOUP_NODE_NETWORK_PRIVATE", SandboxImage: "a=b MOJOUP_NODE_SANDBOX_IMAGE", PolicyTrust: "ask default",
	} {
		if v := value(t, c, key); v.Text+" "+v.Source.String() != want {
			t.Errorf("%s = %s %s, want %s", key, v.Text, v.Source, want)
		}
	}
	if c.Bool(RolesSandbox) || len(c.Prefixes(NetworkPrivate)) != 2 {
		t.Error("the environment does not override")
	}
}

// wantPlace checks that err is one mistake at a place, that nothing could be
// found out because of it, and that it has a text.
func wantPlace(t *testing.T, err error, place, has string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	if !strings.HasPrefix(err.Error(), place) || !strings.Contains(err.Error(), has) || strings.Contains(err.Error(), "\n") {
		t.Errorf("%q does not begin with %q and hold %q", err, place, has)
	}
	if f := fault.As(err); f.Exit != fault.ExitUnknown || f.Code == fault.CodeInternal {
		t.Errorf("exit %d, code %q", f.Exit, f.Code)
	}
}

func TestB92_MisspeltSettingsAreErrorsWithPlaceAndNearest(t *testing.T) {
	for _, tt := range []struct{ file, env, place, says, nearest string }{
		{file: "\nnode.sandbox.engin = \"off\"\n", place: ":2: ", says: "node.sandbox.engin", nearest: SandboxEngine},
		{file: "[node.sandbox]\nEngine = \"off\"\n", place: ":2: ", says: "node.sandbox.Engine", nearest: SandboxEngine},
		{file: "[Node.sandbox]\nengine = \"off\"\n", place: ":1: ", says: "Node.sandbox"},
		{file: "[node.sandbx]\nengine = \"off\"\n", place: ":1: ", says: "node.sandbx"},
		{file: "[[node]]\n", place: ":1: ", says: "node"},
		{file: "[node.sandbox.engine]\n", place: ":1: ", says: "node.sandbox.engine"},
		{file: "node.sandbox = \"docker\"\n", place: ":1: ", says: "node.sandbox"},
		{file: "node = {}\n", place: ":1: ", says: "node"},
		{file: "node = { roles = { sandbx = true } }\n", place: ":1: ", says: "node.roles.sandbx", nearest: RolesSandbox},
		{file: "version = 1\n", place: ":1: ", says: "version"},
		{file: "sandbox.engine = \"off\"\n", place: ":1: ", says: "sandbox.engine", nearest: SandboxEngine},
		{file: "\"node.sandbox.engine\" = \"off\"\n", place: ":1: ", says: `"node.sandbox.engine`},
		{file: "node.hub.max-age = \"1h\"\n", place: ":1: ", says: "node.hub.max-age", nearest: "node.hub.max_age"},
		{file: "a = 1\nb = 2\nc = 3\n", place: ":1: ", says: "(and 2 more)"},
		{env: "MOJOUP_NODE_SANDBOX_ENGIN=off", place: "environment: ", says: "MOJOUP_NODE_SANDBOX_ENGIN", nearest: "MOJOUP_NODE_SANDBOX_ENGINE"},
		{env: "MOJOUP_NODE_=off", place: "environment: ", says: "MOJOUP_NODE_"},
	} {
		t.Run(tt.says, func(t *testing.T) {
			var environ []string
			if tt.env != "" {
				environ = append(environ, tt.env)
			}
			o := origin(t, tt.file, environ...)
			c, err := o.Load()
			place := tt.place
			if place[0] == ':' {
				place = o.File + place
			}
			wantPlace(t, err, place, tt.says)
			if c != nil {
				t.Error("a configuration was returned all the same")
			}
			hint := fault.As(err).Hint
			if tt.nearest != "" && !strings.HasPrefix(hint, "did you mean "+tt.nearest+"?") {
				t.Errorf("hint %q does not name %s", hint, tt.nearest)
			}
			if !strings.Contains(hint, "node.sandbox.{engine,image,max_sessions,spares}") || !strings.Contains(hint, "node.policy.trust") {
				t.Errorf("hint %q does not list the settings", hint)
			}
		})
	}
}

func TestB92_SetRefusesUnknownSettings(t *testing.T) {
	o := origin(t, "# mine\n")
	_, err := o.Set("node.sandbox.engin", "docker")
	var bad *KeyError
	if !errors.As(err, &bad) || bad.Nearest != SandboxEngine || fault.As(err).Exit != fault.ExitUsage {
		t.Errorf("%v: nearest %q, exit %d", err, bad.Nearest, fault.As(err).Exit)
	}
	for _, key := range []string{"", ".", "node", "node.", "NODE.SANDBOX.ENGINE", "node.sandbox.engine ", "a\nb", strings.Repeat("x", 1<<16)} {
		if _, err := o.Set(key, "auto"); !errors.As(err, &bad) || len(err.Error()) > 200 || strings.Contains(err.Error(), "\n") {
			t.Errorf("Set(%.20q): %.300v", key, err)
		}
		if _, err := o.Unset(key); !errors.As(err, &bad) {
			t.Errorf("Unset(%.20q): %.300v", key, err)
		}
		if _, err := load(t, o).Get(key); !errors.As(err, &bad) {
			t.Errorf("Get(%.20q): %.300v", key, err)
		}
	}
	if text(t, o) != "# mine\n" {
		t.Error("the file was changed")
	}
}

func TestRetiredSettingsSayWhatBecameOfThem(t *testing.T) {
	old := table{settings: current.settings, retired: []retiredSetting{{"node.sandbox.driver", "it is node.sandbox.engine now"}}}
	o := origin(t, "node.sandbox.driver = \"x\"\n")
	_, err := o.load(old)
	wantPlace(t, err, o.File+":1: ", "it is node.sandbox.engine now")
	_, err = Origin{Environ: []string{"MOJOUP_NODE_SANDBOX_DRIVER=x"}}.load(old)
	wantPlace(t, err, "environment: ", "it is node.sandbox.engine now")
	if _, err := o.set(old, "node.sandbox.driver", "x"); err == nil || !strings.Contains(err.Error(), "any more") {
		t.Errorf("set: %v", err)
	}
	if _, err := o.unset(old, "node.sandbox.driver"); err != nil || text(t, o) != "" {
		t.Errorf("unset: %v, left %q", err, text(t, o))
	}
}

// Values of the wrong type or shape, in each of the three places.
func TestB97_WrongValuesAreRefused(t *testing.T) {
	for _, tt := range []struct {
		key  string
		toml []string // in the file
		text []string // for set and variables
		says string
	}{
		{SandboxEngine, []string{`"banana"`, `"Docker"`, `""`, "true", "1", "[]", `["docker"]`, "1979-05-27"}, []string{"banana", "Docker", "", " docker", "null", "docker\n"}, "one of auto, docker, native, off"},
		{RolesSandbox, []string{`"true"`, `"on"`, "1", "0", "[]", `""`}, []string{"on", "yes", "1", "True", "TRUE", "", "null"}, "true or false"},
		{SandboxMaxSessions, []string{`"8"`, "-1", "1.0", "true", "1e3"}, []string{"0123", "1e3", "+1", "-1", "1.0", "", " 1", "99999999999999999999", "null", "٣"}, "whole number"},
		{LimitCPUs, []string{`"1"`, "-0.5", "inf", "nan", "true"}, []string{"1e3", "-1", "inf", "NaN", "0x1p4", "1_0", "", "1.", ".5", "01.5", "1.5.2"}, "decimal number"},
		{LimitMemory, []string{"4096", `"4096"`, `"4 GiB"`, `"4G"`, `"4gib"`, `"-1GiB"`, `"1.5GiB"`, `"16777216TiB"`, `"GiB"`}, []string{"4096", "", "0x1GiB", "01GiB", "9223372036854775807KiB"}, "size such as"},
		{LimitWall, []string{"60", `"60"`, `"-1s"`, `"1d"`}, []string{"60", "", "-1s", "+1s", "forever", "300000h0m0s300000h0m0s9999999h"}, "duration such as"},
		{NetworkPrivate, []string{`"10.0.0.0/8"`, "[10]", `["10.0.0.0"]`, `["10.1.2.3/8"]`, `[""]`, `["10.0.0.0/33"]`, `["::ffff:10.0.0.0/104"]`, `["fe80::%lo/64"]`, "[[]]"}, []string{"10.0.0.0", "10.1.2.3/8", "10.0.0.0/8,,", ",", "[10]", `["10.0.0.0/8"`}, "address ranges"},
		{NetworkPrivate, []string{`["0.0.0.0/0"]`, `["::/0"]`}, []string{"0.0.0.0/0", "10.0.0.0/8,::/0"}, "not all addresses"},
		{FilesMounts, []string{`"/a"`, "[1]", `[""]`, `["/a", 2]`}, []string{",", "[1]", `[""]`, "[\"/a\"]\nnode.roles.sandbox = true"}, "texts separated by commas"},
		{FilesMounts, []string{`["a"]`, `["~root/x"]`, `["/a/../b"]`, `["~/../x"]`, `["~"]`}, []string{"a", "/a,b", "/a/"}, "absolute paths"},
		{SandboxImage, []string{"1", "true", "[]"}, []string{"a\x00b", "\xff"}, "text in UTF-8"},
		{ConsoleListen, []string{`"7717"`, `":7717"`, `"127.0.0.1:"`, `"127.0.0.1:http"`, `"0.0.0.0:7717"`, `"10.0.0.1:7717"`, `"[::]:7717"`, `"127.0.0.1:65536"`}, []string{"", "localhost", "localhost:7717"}, "stays on this machine"},
		{"node.hub.url", []string{`"http://hub.example"`, `"hub.example"`, `"https://u:p@hub.example"`, `"https://"`}, []string{"https:hub"}, "https://"},
		{"node.archive.url", []string{`"/srv/archive"`, `"https://x"`, `"file://"`}, nil, "file:// or s3://"},
		{"node.hub.token_file", []string{`"token"`, `"/a/../b"`}, nil, "an absolute path"},
	} {
		t.Run(tt.key, func(t *testing.T) {
			for _, v := range tt.toml {
				o := origin(t, "# comment\n"+tt.key+" = "+v+"\n")
				_, err := o.Load()
				wantPlace(t, err, o.File+":2: "+tt.key, tt.says)
			}
			s, err := Lookup(tt.key)
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range tt.text {
				o := origin(t, "# comment\n")
				_, err := o.Set(tt.key, v)
				var bad *ValueError
				if !errors.As(err, &bad) || !strings.Contains(err.Error(), tt.says) || fault.As(err).Exit != fault.ExitUsage {
					t.Errorf("set %q: %v", v, err)
				}
				if text(t, o) != "# comment\n" {
					t.Errorf("set %q changed the file: %q", v, text(t, o))
				}
				o.Environ = []string{s.Variable() + "=" + v}
				_, err = o.Load()
				wantPlace(t, err, s.Variable()+": "+tt.key, tt.says)
			}
		})
	}
}

// What is set is what is read back, whatever it looks like.
func TestB97_TextsKeepTheirShape(t *testing.T) {
	for _, want := range []string{
		"", "on", "0123", "1e3", "null", "true", " spaced ", "a\nb", "a\r\nb", "tab\t", `"quoted"`, `back\slash`, "'single'", `"""`, "'''",
		"# no comment", "[x]", "{a=1}", "ä€😀", "\u0085\u2028", "\x01\x1b[2J\x7f", "$HOME", "%s", strings.Repeat("x", 64<<10),
	} {
		o := origin(t, "# keep\n\n[node.roles] # keep too\nsandbox = true\n")
		if _, err := o.Set(SandboxImage, want); err != nil {
			t.Fatalf("%.40q: %v", want, err)
		}
		if _, err := o.Set(SandboxMaxSessions, "7"); err != nil {
			t.Fatal(err)
		}
		c := load(t, o)
		if v := value(t, c, SandboxImage); v.Text != want || v.Any() != want || v.Source.Kind != FromFile {
			t.Errorf("set %.40q, read back %.40q", want, v.Text)
		}
		if _, err := o.Unset(SandboxImage); err != nil {
			t.Fatal(err)
		}
		if _, err := o.Unset(SandboxMaxSessions); err != nil {
			t.Fatal(err)
		}
		if got := text(t, o); !strings.HasPrefix(got, "# keep\n\n[node.roles] # keep too\nsandbox = true\n") {
			t.Errorf("what was left alone is not as it was: %q", got)
		}
	}
}

// Names that are somebody's data never become keys of ours: they are refused
// and shown as they were written, never in lower case or in pieces.
func TestB97_ForeignNamesKeepTheirShape(t *testing.T) {
	for written, shown := range map[string]string{
		"GITHUB_TOKEN": "GITHUB_TOKEN", `"api.git.example"`: `\"api.git.example\"`, `"/srv/work/Repo.One"`: `\"/srv/work/Repo.One\"`,
	} {
		o := origin(t, written+" = \"x\"\n")
		_, err := o.Load()
		wantPlace(t, err, o.File+":1: ", shown)
		// Another setting can be written all the same, which keeps it.
		ch, err := o.Set(RolesSandbox, "true")
		if err != nil {
			t.Fatal(err)
		}
		if got, want := text(t, o), written+" = \"x\"\nnode.roles.sandbox = true\n"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if !strings.Contains(strings.Join(ch.Notices, "\n"), "another mistake") {
			t.Errorf("notices %q do not say that the file is not taken", ch.Notices)
		}
	}
}

func TestB100_WhatHasNoEffectSaysSo(t *testing.T) {
	o := origin(t, "node.sandbox.engine = \"off\"\nnode.roles.sandbox = true\nnode.files.mounts = [\"/data\"]\nnode.policy.trust = \"ceiling\"\n", "MOJOUP_NODE_HUB_TEAM=red")
	got := load(t, o).Notices()
	want := []string{
		"node.policy.trust ceiling is not part of this version yet: sessions that need it are refused",
		"node.files.mounts (" + o.File + ":3) has no effect: " + notYet,
		"node.hub.team (MOJOUP_NODE_HUB_TEAM) has no effect: " + notYet,
		"node.roles.sandbox has no effect while node.sandbox.engine is off",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for key, want := range map[string]string{FilesMounts: "has no effect", PolicyTrust: "ceiling is not part of this version", RolesSandbox: "when the node starts", "node.hub.team": "overrides the file"} {
		v := map[string]string{FilesMounts: "/more", PolicyTrust: "ceiling", RolesSandbox: "false", "node.hub.team": "blue"}[key]
		ch, err := o.Set(key, v)
		if err != nil || !strings.Contains(strings.Join(ch.Notices, "\n"), want) {
			t.Errorf("set %s: %v, notices %q", key, err, ch.Notices)
		}
	}
}

func TestBrokenFiles(t *testing.T) {
	for name, tt := range map[string]struct{ text, place string }{
		"NoValue":    {"a = 1\nnode.roles.sandbox =\n", ":2:"},
		"NoQuote":    {"node.sandbox.engine = \"native\n", ":1:"},
		"Bare":       {"node.sandbox.engine = native\n", ":1:23: "},
		"TwoOnALine": {"node.roles.sandbox = true node.x = 1\n", ":1:27: "},
		"Twice":      {"node.roles.sandbox = true\n\nnode.roles.sandbox = false\n", ":3:"},
		"TwiceTable": {"[node.roles]\n[node.roles]\n", ":2:"},
		"JSON":       {"{\"node\": 1}\n", ":1:1: "},
		"Binary":     {"\x00\x01", ":1:1: "},
		"NotUTF8":    {"a = \"\xff\"\n", ":1:"},
		"NoClosing":  {"[node", ":1:"},
	} {
		t.Run(name, func(t *testing.T) {
			o := origin(t, tt.text)
			_, err := o.Load()
			wantPlace(t, err, o.File+tt.place, "")
			if fault.As(err).Hint == "" {
				t.Error("no next step")
			}
			var bad *SyntaxError
			for _, edit := range []func() (Change, error){
				func() (Change, error) { return o.Set(SandboxEngine, "native") },
				func() (Change, error) { return o.Unset(SandboxEngine) },
			} {
				if _, err := edit(); !errors.As(err, &bad) {
					t.Errorf("edited: %v", err)
				}
			}
			if text(t, o) != tt.text {
				t.Errorf("the file was changed: %q", text(t, o))
			}
			onlyFile(t, o)
		})
	}
}

// onlyFile checks that nothing was left beside the file.
func onlyFile(t testing.TB, o Origin) {
	t.Helper()
	list, err := os.ReadDir(filepath.Dir(o.File))
	if err != nil || len(list) != 1 {
		t.Errorf("beside the file: %v, %v", list, err)
	}
}

func TestMarkdownPageIsUpToDate(t *testing.T) {
	page := filepath.Join("..", "..", "docs", "settings.md")
	if *update {
		if err := os.WriteFile(page, []byte(Markdown()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Markdown(), string(got)); diff != "" {
		t.Errorf("docs/settings.md is stale (-update writes it):\n%s", diff)
	}
	for _, s := range Settings() {
		if !strings.Contains(string(got), "`"+s.Key+"`") {
			t.Errorf("the page lacks %s", s.Key)
		}
	}
}

// TestModeOfATool: who looks for the mode of a tool of their own is told where it is.
func TestModeOfATool(t *testing.T) {
	_, err := Lookup(SignInMode + "mine")
	e, ok := errors.AsType[*KeyError](err)
	if !ok || !strings.HasPrefix(e.Hint(), "a tool of your own has its mode in its profile") {
		t.Errorf("%v", err)
	}
}

// TestFollow reads a file again when it has changed, and keeps what was while it
// cannot be read.
func TestFollow(t *testing.T) {
	o := Origin{File: filepath.Join(t.TempDir(), "node.toml")}
	first, err := o.Load()
	if err != nil {
		t.Fatal(err)
	}
	f := o.Follow(first)
	mode := func() (string, error) {
		c, err := f.Now()
		return c.String(SignInMode + "claude"), err
	}
	for _, step := range []struct {
		text, want string
		fails      bool
	}{
		{"", "standin", false}, {"node.signin.mode.claude = \"off\"\n", "off", false}, {"node.signin.mode.claude = \"of\"\n", "off", true}, {"node.signin.mode.claude = \"lease\"\n", "lease", false},
	} {
		if step.text != "" {
			if err := os.WriteFile(o.File, []byte(step.text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			if got, err := mode(); got != step.want || (err != nil) != step.fails {
				t.Errorf("%q: %s, %v", step.text, got, err)
			}
		}
	}
	if err := os.Remove(o.File); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	f.clock = func() time.Time { return now }
	if got, err := mode(); got != "lease" || err != nil {
		t.Errorf("the file is gone, perhaps for a moment: %s, %v", got, err)
	}
	now = now.Add(rewriting)
	if got, err := mode(); got != "standin" || err != nil {
		t.Errorf("the file is gone: %s, %v", got, err)
	}
}

// TestB88_AFileThatIsBeingWrittenAllowsNothing: what was switched off is off also in
// the moment in which the file is away, or empty, because it is written anew, however
// often that is; what is new in it counts at once.
func TestB88_AFileThatIsBeingWrittenAllowsNothing(t *testing.T) {
	o := Origin{File: filepath.Join(t.TempDir(), "node.toml")}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(o.File, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("node.signin.mode.claude = \"off\"\n")
	first, err := o.Load()
	if err != nil {
		t.Fatal(err)
	}
	f, now := o.Follow(first), time.Now()
	f.clock = func() time.Time { return now }
	is := func(want, when string) {
		t.Helper()
		if c, err := f.Now(); err != nil || c.String(SignInMode+"claude") != want {
			t.Errorf("%s: %s, %v, want %s", when, c.String(SignInMode+"claude"), err, want)
		}
	}
	for range 3 {
		for when, away := range map[string]func(){
			"away": func() {
				if err := os.Remove(o.File); err != nil {
					t.Fatal(err)
				}
			},
			"empty": func() { write("") },
		} {
			away()
			is("off", when)
			now = now.Add(rewriting - 1)
			is("off", when)
			write("node.signin.mode.claude = \"off\"\n# a line more\n")
			is("off", "written")
		}
	}
	write("node.signin.mode.claude = \"lease\"\n")
	is("lease", "changed")
	write("")
	is("lease", "emptied")
	now = now.Add(rewriting)
	is("standin", "empty for good")
}

// TestHowAValueIsWritten: a value of another type is shown as the file wants it, and
// one that is nearly right as what was perhaps meant.
func TestHowAValueIsWritten(t *testing.T) {
	for line, want := range map[string]string{
		`node.network.private = "10.0.0.0/8"`:    `in the file it is written ["10.0.0.0/8"]`,
		`node.network.private = ["10.0.0.0/33"]`: `in the file it is a list: ["10.2.0.0/16"]`,
		`node.people.allow = "ann"`:              `in the file it is written ["ann"]`,
		`node.sandbox.max_sessions = "3"`:        `in the file it is written 3`,
		`node.roles.sandbox = "true"`:            `in the file it is written true`,
		`node.sandbox.limits.memory = 4`:         `in the file it is a text: "4GiB"`,
		`node.sandbox.limits.wall = 8`:           `in the file it is a text: "8h"`,
		`node.sandbox.engine = "nativ"`:          `did you mean native?`,
		`node.signin.mode.claude = "stand-in"`:   `did you mean standin?`,
		`node.sandbox.limits.cpus = "1.5"`:       `in the file it is written 1.5`,
	} {
		file := filepath.Join(t.TempDir(), "node.toml")
		if err := os.WriteFile(file, []byte(line+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := Origin{File: file}.Load()
		var h interface{ Hint() string }
		if err == nil || !errors.As(err, &h) || h.Hint() != want {
			t.Errorf("%s: %v, and no hint %q", line, err, want)
		}
	}
}
