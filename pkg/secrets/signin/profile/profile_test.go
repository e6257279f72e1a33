package profile

import (
	"encoding/json"
	"errors"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pelletier/go-toml/v2"

	"github.com/mojoup/mojoup-node/pkg/policy"
)

const smallest = `version = 1
name = "own"
title = "Own"
choose = "first"
[program]
name = "own"
`

// TestBuiltin holds the five to what the rest of the node counts on.
func TestBuiltin(t *testing.T) {
	var got []string
	for _, p := range Builtin() {
		got = append(got, p.Name)
		preset, ok := policy.BuiltinPresets().Tool(p.Name)
		if !ok || p.Network.Preset != p.Name || len(preset.Rules) == 0 {
			t.Errorf("%s: preset %q has no rules of the tool's", p.Name, p.Network.Preset)
		}
		if p.SignIn == nil || len(p.Keys) == 0 || p.Program.Package == "" || len(p.Program.Headless) == 0 || len(p.Never) == 0 {
			t.Errorf("%s says less than all of itself", p.Name)
		}
		if Find(p.Name) != p {
			t.Errorf("%s is not found", p.Name)
		}
	}
	if d := cmp.Diff([]string{"claude", "codex", "copilot", "kilo", "opencode"}, got); d != "" {
		t.Error(d)
	}
	if Find("nobody") != nil {
		t.Error("a tool that is none is found")
	}
}

// TestFilledFilesAreWhatTheyLookLike: whatever a directory or stand-in holds, a
// made-up file stays what it is.
func TestFilledFilesAreWhatTheyLookLike(t *testing.T) {
	v := Values{Home: "/home/a", Dir: "/x/\"q\" \\ \n é ${home} <&", StandIns: map[string]string{}}
	for _, p := range Builtin() {
		for _, with := range []bool{false, true} {
			if with {
				for _, k := range p.Keys {
					v.StandIns[k.Name] = "sk-ant-api03-0123456789abcdefghijAA"
				}
			} else {
				clear(v.StandIns)
			}
			for _, f := range p.MadeUp(v) {
				var doc map[string]any
				var err error
				if path.Ext(f.Path) == ".toml" {
					err = toml.Unmarshal(f.Text, &doc)
				} else {
					err = json.Unmarshal(f.Text, &doc)
				}
				if err != nil {
					t.Errorf("%s: %s: %v\n%s", p.Name, f.Path, err, f.Text)
				}
				if projects, ok := doc["projects"].(map[string]any); ok && projects[v.Dir] == nil {
					t.Errorf("%s: %s does not name the directory: %v", p.Name, f.Path, projects)
				}
			}
		}
	}
	if made := Find("claude").MadeUp(v); len(made) != 1 || !strings.Contains(string(made[0].Text), `["3456789abcdefghijAA"]`) && !strings.Contains(string(made[0].Text), `"23456789abcdefghijAA"`) {
		t.Errorf("claude is not told the end of its stand-in: %s", made[0].Text)
	}
}

func TestEnvironment(t *testing.T) {
	p := Find("claude")
	got := p.Environment(Values{Home: "/h", Dir: "/d"})
	if !slices.Contains(got, "CLAUDE_CONFIG_DIR=/h/.claude") || !slices.IsSorted(got) {
		t.Errorf("environment %v", got)
	}
	for name, want := range map[string]bool{"ANTHROPIC_BASE_URL": true, "CLAUDE_CODE_OAUTH_TOKEN": true, "ANTHROPI": false, "HOME": false} {
		if p.Clears(name) != want {
			t.Errorf("clears %s: %v", name, !want)
		}
	}
}

// D13b: nothing that switches the tool's own questions off unless a sandbox
// holds it.
func TestD13bArguments(t *testing.T) {
	for _, p := range Builtin() {
		prompt := "say ${home} --x"
		for _, bypass := range []bool{false, true} {
			argv, can := p.Arguments(prompt, bypass)
			if !can || !slices.Contains(argv, prompt) {
				t.Errorf("%s: %q", p.Name, argv)
			}
			if has := slices.Contains(argv, p.Program.Bypass[0]); has != bypass || slices.Contains(argv, bypassWord) {
				t.Errorf("%s, bypass %v: %q", p.Name, bypass, argv)
			}
		}
	}
	if _, can := (&Profile{}).Arguments("x", true); can {
		t.Error("a tool without a headless line can")
	}
}

// TestWrong names file, line and key of what is wrong.
func TestWrong(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"not TOML", "version = ", "own.toml:1: "},
		{"of another file", strings.Replace(smallest, `"own"`, `"other"`, 1), "own.toml:2: name: the profile of other stands"},
		{"version", strings.Replace(smallest, "= 1", "= 2", 1), "own.toml:1: version: version 2"},
		{"unknown key", smallest + "packages = \"x\"\n", "own.toml:7: program.packages: there is no such key"},
		{"of another kind", strings.Replace(smallest, `name = "own"`, "name = 7", 1), "own.toml:2: name: "},
		{"choose", strings.Replace(smallest, `"first"`, `"some"`, 1), "own.toml:4: choose: "},
		{"a path as program", smallest[:len(smallest)-len("name = \"own\"\n")] + "name = \"../own\"\n", "own.toml:6: program.name: "},
		{"no program", smallest[:len(smallest)-len("[program]\nname = \"own\"\n")], "own.toml: program.name: "},
		{"prompt twice", smallest + "headless = [\"${prompt}\", \"${prompt}\"]\n", "own.toml:7: program.headless: "},
		{"placeholder", smallest + "[env.set]\nX = \"1\"\nY = \"${hom}\"\n", "own.toml:9: env.set.Y: ${hom} stands for nothing here"},
		{"the way out", smallest + "[env.set]\nHTTPS_PROXY = \"http://x.example\"\n", "own.toml:8: env.set.HTTPS_PROXY: this variable is the node's"},
		{"preset", smallest + "[network]\npreset = \"public\"\n", "own.toml:8: network.preset: "},
		{"any host", smallest + "[network]\nhosts = [\"a.example\",\n\"*\"]\n", "own.toml:9: network.hosts[1]: "},
		{"no header", smallest + "[[key]]\nname = \"A_KEY\"\nhosts = [\"a.example\"]\n", "own.toml:7: key[0].headers: "},
		{"no host", smallest + "[[key]]\nname = \"A_KEY\"\nheaders = [\"X-Api-Key\"]\n", "own.toml:7: key[0]: the secret is bound to no host"},
		{"second key", smallest + "[[key]]\nname = \"A_KEY\"\nhosts = [\"a.example\"]\nheaders = [\"X-Key\"]\n[[key]]\nname = \"A-B\"\nhosts = [\"a.example\"]\nheaders = [\"X-Key\"]\n", "own.toml:12: key[1].name: "},
		{"twice", smallest + strings.Repeat("[[key]]\nname = \"A_KEY\"\nhosts = [\"a.example\"]\nheaders = [\"X-Key\"]\n", 2), "own.toml:12: key[1].name: A_KEY stands there twice"},
		{"plain HTTP", smallest + "[[key]]\nname = \"A_KEY\"\nhosts = [\"a.example:80\"]\nheaders = [\"X-Key\"]\n", "own.toml:9: key[0].hosts[0]: "},
		{"file above", smallest + "[[file]]\npath = \"../x\"\n", "own.toml:8: file[0].path: "},
		{"file of the shell's", smallest + "[[file]]\npath = \".ssh/config\"\n", "own.toml:8: file[0].path: this place"},
		{"file of a key", smallest + "[[file]]\npath = \"x\"\nkey = \"NONE\"\n", "own.toml:9: file[0].key: the profile has no key"},
		{"key of a file", smallest + "[[file]]\npath = \"x\"\ntext = \"${key:A_KEY}\"\n", "own.toml:9: file[0].text: ${key:A_KEY} stands for nothing"},
		{"sign-in of nothing", smallest + "[signin]\ndefault = \"lease\"\nmodes = [\"copy\"]\n", "own.toml:8: signin.default: "},
		{"never copied", "never = [\".own/**\"]\n" + smallest + "[signin]\ndefault = \"off\"\n[[signin.place]]\ndefault = \"~/.own\"\nfile = \"auth.json\"\n", "own.toml:12: signin.place[0].file: .own/auth.json is never"},
		{"token not named", smallest + "[signin]\ndefault = \"off\"\n[[signin.login]]\nname = \"x\"\naccess = \"a.b\"\n", "own.toml:11: signin.login[0].access: a.b is not among"},
		{"renewed by itself", smallest + "[signin]\ndefault = \"off\"\n[[signin.login]]\nname = \"x\"\naccess = \"a\"\nrefresh = \"a\"\nkeep = [\"a\"]\n", "own.toml:12: signin.login[0].refresh: "},
		{"the tool does not renew", smallest + "[signin]\ndefault = \"off\"\nrefresh = [\"-p\", \"ok\"]\n", "own.toml:9: signin.refresh: there is no such key"},
		{"a home is not kept", smallest + "[signin]\ndefault = \"off\"\nerase = [\".own/*.db\"]\n", "own.toml:9: signin.erase: there is no such key"},
		{"before the start", smallest + "[signin]\ndefault = \"off\"\n[[signin.login]]\nname = \"x\"\naccess = \"a\"\nkeep = [\"a\"]\nmargin = -1\n", "own.toml:13: signin.login[0].margin: "},
		{"a program of the directory's", smallest + "[signin]\ndefault = \"off\"\n[[signin.place]]\ncommand = [\"./gh\", \"auth\"]\n", "own.toml:10: signin.place[0].command[0]: \"./gh\" would be another program"},
		{"a command in a directory", smallest + "[signin]\ndefault = \"off\"\n[[signin.place]]\ndefault = \"~/.x\"\ncommand = [\"gh\"]\n", "own.toml:9: signin.place[0]: a command has no directory"},
		{"a command and a file", smallest + "[signin]\ndefault = \"off\"\n[[signin.place]]\nfile = \"x\"\ncommand = [\"gh\"]\n", "own.toml:9: signin.place[0]: it is 2 places at once"},
		{"not UTF-8", "\xff", "own.toml: the file is not valid UTF-8"},
		{"too long", strings.Repeat("#", MaxSize+1), "own.toml: the file has "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, err := Parse("own.toml", []byte(tt.text))
			var wrong *Errors
			if p != nil || !errors.As(err, &wrong) || wrong.Hint() == "" {
				t.Fatalf("%v, %v", p, err)
			}
			if !slices.ContainsFunc(wrong.Problems, func(p Problem) bool { return strings.HasPrefix(p.String(), tt.want) }) {
				t.Errorf("want %q in\n%v", tt.want, err)
			}
		})
	}
	if p, err := Parse("/x/own.toml", []byte(smallest)); err != nil || p.Source != "/x/own.toml" {
		t.Errorf("the smallest: %v", err)
	}
}

// FuzzParse: whatever the file, an answer; and what is let through can be used
// without a fault.
func FuzzParse(f *testing.F) {
	f.Add([]byte(smallest))
	files, err := builtin.ReadDir("tools")
	if err != nil {
		f.Fatal(err)
	}
	for _, e := range files {
		text, err := builtin.ReadFile(path.Join("tools", e.Name()))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var head struct{ Name string }
		_ = toml.Unmarshal(text, &head)
		p, err := Parse(head.Name+".toml", text)
		if err != nil {
			for _, problem := range err.(*Errors).Problems {
				if problem.Hint == "" {
					t.Errorf("a problem without a hint: %v", problem)
				}
			}
			if p != nil || err.Error() == "" || strings.ContainsAny(err.Error(), "\x1b\r\x00") {
				t.Errorf("%v, %q", p, err)
			}
			return
		}
		v := Values{Home: "/h", Dir: "/d", StandIns: map[string]string{}}
		for _, k := range p.Keys {
			v.StandIns[k.Name] = "stand-in of " + k.Name
			if err := k.Binding().Check(); err != nil {
				t.Errorf("a key that can go nowhere: %v", err)
			}
		}
		for _, kv := range p.Environment(v) {
			if name, _, ok := strings.Cut(kv, "="); !ok || name == "" || slices.Contains(nodeOwn, name) {
				t.Errorf("variable %q", kv)
			}
		}
		for _, m := range p.MadeUp(v) {
			if path.IsAbs(m.Path) || strings.HasPrefix(path.Clean("x/"+m.Path), "..") || !strings.HasPrefix(path.Join("/h", m.Path), "/h/") {
				t.Errorf("file %q", m.Path)
			}
		}
		if argv, can := p.Arguments("ask", true); can && !strings.Contains(strings.Join(argv, " "), "ask") {
			t.Errorf("the prompt is lost: %q", argv)
		}
		if p.SignIn != nil {
			for _, l := range p.SignIn.Logins {
				if err := l.Binding().Check(); err != nil {
					t.Errorf("a token that can go nowhere: %v", err)
				}
			}
		}
	})
}
