package signin

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mojoup/mojoup-node/pkg/secrets"
	"github.com/mojoup/mojoup-node/pkg/secrets/keyringtest"
	"github.com/mojoup/mojoup-node/pkg/secrets/signin/profile"
	"github.com/mojoup/mojoup-node/pkg/secrets/source"
)

// Tokens of the tests. Whatever holds one of the forbidden ones has failed.
const (
	accessToken  = "sk-ant-oat01-AccessAccess0123456789abcdefghijklmnAA"
	refreshToken = "sk-ant-ort01-ForbiddenRefresh0123456789abcdefgAA"
	forbidden    = "Forbidden"
)

var later = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

func token(claims map[string]any) string {
	b, _ := json.Marshal(claims)
	enc := base64.RawURLEncoding
	return enc.EncodeToString([]byte(`{"alg":"RS256"}`)) + "." + enc.EncodeToString(b) + "." + enc.EncodeToString([]byte("a signature of some length"))
}

var codexAccess = token(map[string]any{"exp": later.Unix(), "iat": 1, "padding": strings.Repeat("x", 100)})

// documents are what the tools write, with all that must stay outside.
var documents = map[string]string{
	"claude": fmt.Sprintf(`{"mcpOAuth":{"x":{"accessToken":"ForbiddenMCP"}},"claudeAiOauth":{"accessToken":%q,"refreshToken":%q,"expiresAt":%d,
		"refreshTokenExpiresAt":9,"scopes":["user:inference","user:profile"],"subscriptionType":"max","rateLimitTier":"x","accountUuid":"acc","organizationUuid":"org"},
		"pluginSecrets":{"a":"ForbiddenPlugin"}}`, accessToken, refreshToken, later.UnixMilli()),
	"codex": fmt.Sprintf(`{
  "auth_mode": "chatgpt",
  "OPENAI_API_KEY": "ForbiddenKey",
  "personal_access_token": "ForbiddenPAT",
  "tokens": {"id_token": %q, "access_token": %q, "refresh_token": "ForbiddenRefresh0123456789", "account_id": "acc-1"},
  "last_refresh": "2026-11-01T00:00:00Z"
}`, token(map[string]any{"email": "me@x.example", "secret": "Forbidden", "https://api.openai.com/auth": map[string]any{"chatgpt_account_id": "acc-1", "chatgpt_plan_type": "plus"}}), codexAccess),
	"copilot": `// a comment
{"lastLoggedInUser":{"host":"https://github.com","login":"me"},"copilotTokens":{"https://github.com:me":"gho_Access0123456789abcdefghij","https://github.com:you":"gho_Forbidden0123456789"}}`,
	"kilo": fmt.Sprintf(`{"kilo":{"type":"oauth","access":"kiloAccess0123456789abcdef","refresh":"Forbidden","expires":%d,"accountId":"org"},"mcp":{"type":"api","key":"Forbidden"}}`, later.UnixMilli()),
	"opencode": fmt.Sprintf(`{"openai":{"type":"oauth","access":%q,"refresh":"ForbiddenRefresh0123456789","expires":%d,"accountId":"acc"},"mcp":{"type":"api","key":"Forbidden"}}`,
		codexAccess, later.UnixMilli()),
}

var usual = map[string]string{
	"claude": ".claude/.credentials.json", "codex": ".codex/auth.json", "copilot": ".copilot/config.json",
	"kilo": ".local/share/kilo/auth.json", "opencode": ".local/share/opencode/auth.json",
}

func write(t testing.TB, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func world(home string, env map[string]string) World {
	return World{
		Home:   home,
		Lookup: func(name string) (string, bool) { v, ok := env[name]; return v, ok },
	}
}

func builtin(t testing.TB, name string) Tool {
	t.Helper()
	all := Named(Builtin(), name)
	if len(all) == 0 {
		t.Fatalf("there is no tool %s", name)
	}
	return all[0]
}

// firsts are the first sign-in of each tool.
func firsts(t testing.TB) (out []Tool) {
	t.Helper()
	for name := range documents {
		out = append(out, builtin(t, name))
	}
	return out
}

// TestB45_WhereTheToolsKeepIt finds each sign-in wherever the tool itself would.
func TestB45_WhereTheToolsKeepIt(t *testing.T) {
	moved := map[string][2]string{ // variable and what lies below it
		"claude": {"CLAUDE_CONFIG_DIR", ".credentials.json"}, "codex": {"CODEX_HOME", "auth.json"}, "copilot": {"COPILOT_HOME", "config.json"},
		"kilo": {"XDG_DATA_HOME", "kilo/auth.json"}, "opencode": {"XDG_DATA_HOME", "opencode/auth.json"},
	}
	account := map[string]string{"claude": "acc org", "codex": "me@x.example", "copilot": "https://github.com:me", "kilo": "org", "opencode": "acc"}
	for _, tool := range firsts(t) {
		t.Run(tool.Name, func(t *testing.T) {
			variable, below := moved[tool.Name][0], moved[tool.Name][1]
			for name, c := range map[string]struct {
				path string
				link bool
				env  func(home string) map[string]string
			}{
				"usual": {path: usual[tool.Name]},
				"moved": {path: "elsewhere/" + below, env: func(home string) map[string]string { return map[string]string{variable: home + "/elsewhere"} }},
				"set to nothing": {path: usual[tool.Name], env: func(string) map[string]string {
					return map[string]string{variable: "", "CLAUDE_SECURESTORAGE_CONFIG_DIR": ""}
				}},
				"symlink": {path: usual[tool.Name], link: true},
			} {
				home := t.TempDir()
				at := filepath.Join(home, c.path)
				write(t, at, documents[tool.Name])
				real := at
				if c.link {
					real = filepath.Join(home, "dotfiles", "x.json")
					write(t, real, documents[tool.Name])
					if err := os.Remove(at); err != nil {
						t.Fatal(err)
					}
					if err := os.Symlink("../"+strings.Repeat("../", strings.Count(c.path, "/")-1)+"dotfiles/x.json", at); err != nil {
						t.Fatal(err)
					}
				}
				var env map[string]string
				if c.env != nil {
					env = c.env(home)
				}
				s, err := tool.Find(t.Context(), world(home, env))
				if err != nil {
					t.Errorf("%s: %v", name, err)
					continue
				}
				if s.Path != real || s.Kept != "file "+at || s.Account != account[tool.Name] || s.Renews != (tool.Renewal != nil) {
					t.Errorf("%s: found %+v", name, s)
				}
				if tool.Name != "copilot" && !s.Expires.Equal(later) {
					t.Errorf("%s: expires %v", name, s.Expires)
				}
			}
		})
	}
}

// TestB45_NothingToFind: one sentence that names the tool, and the right kind.
func TestB45_NothingToFind(t *testing.T) {
	for _, tool := range firsts(t) {
		home := t.TempDir()
		at := filepath.Join(home, usual[tool.Name])
		for name, c := range map[string]struct {
			make func()
			kind Kind
		}{
			"absent":    {func() {}, None},
			"empty":     {func() { write(t, at, "") }, None},
			"blank":     {func() { write(t, at, " \n") }, None},
			"no object": {func() { write(t, at, `["x"]`) }, Malformed},
			"half":      {func() { write(t, at, documents[tool.Name][:60]) }, Malformed},
			"behind it": {func() { write(t, at, documents[tool.Name]+"{}") }, Malformed},
			"others":    {func() { write(t, at, `{"mcpOAuth":{"x":{"accessToken":"y"}}}`) }, None},
			"directory": {func() { _ = os.MkdirAll(at, 0o700) }, Unreadable},
			"huge":      {func() { write(t, at, strings.Repeat(" ", maxDocument+1)) }, Unreadable},
			"loop":      {func() { _ = os.MkdirAll(filepath.Dir(at), 0o700); _ = os.Symlink(filepath.Base(at), at) }, Unreadable},
		} {
			c.make()
			s, err := tool.Find(t.Context(), world(home, nil))
			if s != nil || KindOf(err) != c.kind || !strings.Contains(err.Error(), tool.Title) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s, %s: %v, %v", tool.Name, name, s, err)
			}
			_ = os.RemoveAll(at)
		}
	}
}

// TestBlankedIsSignedOut: what Claude Code leaves of a sign-in that was refused
// is none.
func TestBlankedIsSignedOut(t *testing.T) {
	home := t.TempDir()
	write(t, filepath.Join(home, usual["claude"]), `{"claudeAiOauth":{"accessToken":"","refreshToken":"","expiresAt":0}}`)
	if _, err := builtin(t, "claude").Find(t.Context(), world(home, nil)); KindOf(err) != Ended {
		t.Errorf("found: %v", err)
	}
}

// TestKeyring finds tokens in a real keyring, and says that it is locked.
// TestDue: a sign-in is renewed earlier than its tool does it, by what the
// profile says of that, and ten minutes before the end at the latest.
func TestDue(t *testing.T) {
	own := `version = 1
name = "own"
title = "Own"
choose = "first"
[program]
name = "own"
[signin]
default = "copy"
modes = ["copy"]
inside = ".own/auth.json"
[[signin.place]]
default = "~/.own"
file = "auth.json"
[[signin.login]]
name = "Own"
access = "a"
keep = ["a"]
expires = "e"
expires-as = "s"
hosts = ["own.example"]
headers = ["Authorization: bearer"]
`
	for _, c := range []struct {
		margin string
		left   time.Duration
		due    bool
	}{
		{"", 10 * time.Minute, false},
		{"", 10*time.Minute - time.Second, true},
		{"margin = 300", 10 * time.Minute, false},
		{"margin = 300", 10*time.Minute - time.Second, true},
		{"margin = 3600", 65 * time.Minute, false},
		{"margin = 3600", 65*time.Minute - time.Second, true},
		{"margin = 3600", -time.Second, true},
	} {
		p, err := profile.Parse("own.toml", []byte(own+c.margin))
		if err != nil {
			t.Fatal(err)
		}
		s, err := FromProfile(p)[0].read(fmt.Appendf(nil, `{"a":"AccessAccess0123456789","e":%d}`, later.Unix()), false, "x")
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Due(later.Add(-c.left)); got != c.due {
			t.Errorf("%q, %v before the end: due %v", c.margin, c.left, got)
		}
	}
	if claude := builtin(t, "claude"); claude.Margin != 5*time.Minute {
		t.Errorf("Claude Code renews %v before the end", claude.Margin)
	}
}

// TestB45_WhatACommandPrints is the first login's token where nothing else is
// found; a command that gives none is not being signed in, and one that cannot
// be used is said.
func TestB45_WhatACommandPrints(t *testing.T) {
	all := Named(Builtin(), "copilot")
	last := all[len(all)-1]
	if !last.Spare || last.Service != all[0].Service || slices.ContainsFunc(all[:len(all)-1], func(t Tool) bool { return t.Spare }) {
		t.Fatalf("%+v", all)
	}
	const gho = "gho_Printed0123456789abcdefghij"
	for script, c := range map[string]struct {
		kind Kind
		says string
	}{
		"echo " + gho:                           {},
		"exit 1":                                {None, "gives no token"},
		"true":                                  {None, "gives no token"},
		"echo " + gho + "; exit 4":              {None, "gives no token"},
		"echo short":                            {Unreadable, "too short"},
		"echo " + gho + "; echo " + gho:         {Unreadable, "a header cannot hold"},
		"head -c 100000 /dev/zero | tr '\\0' a": {Unreadable, "more than a key can be"},
	} {
		w := world(t.TempDir(), nil)
		w.Command = func(ctx context.Context, argv []string) (secrets.Value, bool, error) {
			if !slices.Equal(argv, []string{"gh", "auth", "token"}) {
				t.Errorf("runs %q", argv)
			}
			v, err := source.Reader{}.Read(ctx, source.Reference{Kind: source.Command, At: script})
			if e, is := errors.AsType[*source.Error](err); is && e.None() {
				return v, false, nil
			}
			return v, err == nil, err
		}
		s, err := last.Find(t.Context(), w)
		if KindOf(err) != c.kind || c.kind != "" && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %q: %v", script, KindOf(err), err)
		}
		if err != nil {
			if strings.Contains(err.Error(), gho) {
				t.Errorf("%s: the token is in %v", script, err)
			}
			continue
		}
		if c.kind != "" || s.Kept != "command gh auth token" || s.Renews || s.Path != "" || string(s.Access().RevealForTheWire()) != gho {
			t.Errorf("%s: found %+v", script, s)
		}
		if _, err := s.In(StandIn); err != nil {
			t.Error(err)
		}
		if _, err := s.In(Lease); err == nil {
			t.Error("what a command prints is leased")
		}
	}
	if _, err := last.Find(t.Context(), world(t.TempDir(), nil)); KindOf(err) != None {
		t.Errorf("without commands: %v", err)
	}
}

func TestKeyring(t *testing.T) {
	home := t.TempDir()
	write(t, filepath.Join(home, usual["copilot"]), `{"lastLoggedInUser":{"host":"https://github.com","login":"me"},"copilotTokens":{}}`)
	keyringtest.Start(t)
	w := world(home, nil)
	w.Keyring = source.KeyringItem
	if _, err := builtin(t, "copilot").Find(t.Context(), w); KindOf(err) != None {
		t.Errorf("an empty keyring: %v", err)
	}
	attributes := map[string]string{"service": "copilot-cli", "account": "https://github.com:me"}
	if err := source.StoreKeyringItem(t.Context(), "test", attributes, secrets.NewValue([]byte("gho_InTheKeyring0123456789abcd"))); err != nil {
		t.Fatal(err)
	}
	s, err := builtin(t, "copilot").Find(t.Context(), w)
	if err != nil || s.Kept != "keyring" || s.Account != "me" {
		t.Fatalf("found %v, %v", s, err)
	}
	keyringtest.Lock(t)
	_, err = builtin(t, "copilot").Find(t.Context(), w)
	if KindOf(err) != Locked || !strings.Contains(err.Error(), "the keyring is locked") || err.(*Error).Hint() == "" {
		t.Errorf("locked: %v", err)
	}
}

// TestStagedHoldsWhatIsNamed: of each document only named keys come inside,
// never a refresh token, and none of the real tokens in mode standin.
func TestStagedHoldsWhatIsNamed(t *testing.T) {
	const standIn = "stand-in-0123456789abcdef"
	for _, tool := range firsts(t) {
		home := t.TempDir()
		write(t, filepath.Join(home, usual[tool.Name]), documents[tool.Name])
		s, err := tool.Find(t.Context(), world(home, nil))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range tool.Modes {
			given := ""
			if m == StandIn {
				given = standIn
			}
			staged, err := s.Stage(m, given)
			if err != nil {
				t.Fatal(err)
			}
			all := staged.Value
			if staged.Variable == "" {
				all = string(staged.Content())
			}
			for _, word := range strings.FieldsFunc(all, func(r rune) bool {
				return !strings.ContainsRune("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-", r)
			}) {
				if b, err := base64.RawURLEncoding.DecodeString(word); err == nil {
					all += string(b)
				}
			}
			if strings.Contains(all, forbidden) {
				t.Errorf("%s, %s: %s", tool.Name, m, all)
			}
			real := string(s.Access().RevealForTheWire())
			if strings.Contains(all, real) != m.RealInside() || strings.Contains(all, standIn) == m.RealInside() {
				t.Errorf("%s, %s holds the wrong token: %s", tool.Name, m, all)
			}
			golden(t, tool.Name+"-"+string(m), all, staged)
		}
	}
}

// golden holds what the tools were tried with.
func golden(t *testing.T, name, _ string, s Staged) {
	t.Helper()
	if s.Variable != "" {
		return
	}
	doc, err := parse(s.Content(), false)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	keys := slices.Sorted(maps.Keys(leaves(doc, "")))
	want := map[string]string{
		"claude":   "claudeAiOauth.accessToken claudeAiOauth.expiresAt claudeAiOauth.rateLimitTier claudeAiOauth.scopes claudeAiOauth.subscriptionType",
		"codex":    "auth_mode last_refresh tokens.access_token tokens.account_id tokens.id_token tokens.refresh_token",
		"opencode": "openai.access openai.accountId openai.expires openai.refresh openai.type",
	}
	tool, mode, _ := strings.Cut(name, "-")
	if mode == string(Hold) && tool == "claude" {
		want[tool] = strings.Replace(want[tool], "claudeAiOauth.scopes", "claudeAiOauth.refreshToken claudeAiOauth.scopes", 1)
	}
	if got := strings.Join(keys, " "); got != want[tool] {
		t.Errorf("%s has %s, not %s", name, got, want[tool])
	}
}

func leaves(doc map[string]any, before string) map[string]any {
	out := map[string]any{}
	for name, v := range doc {
		if inner, ok := v.(map[string]any); ok {
			maps.Copy(out, leaves(inner, before+name+"."))
		} else {
			out[before+name] = v
		}
	}
	return out
}

// TestReplacedChangesNothingElse: values are put into the text as it stands.
func TestReplacedChangesNothingElse(t *testing.T) {
	const doc = "{ \"z\" : [1,\t{\"a\":2}],\n\"a\": {\"x\":1, \"b\" : \"old\" ,\"x\":3},\"k\":\"\\u00e9\" }\n"
	got, err := replaced([]byte(doc), []change{{Path{"a", "b"}, "new<&"}, {Path{"a", "x"}, 7}})
	want := strings.Replace(strings.Replace(doc, `"old"`, `"new\u003c\u0026"`, 1), `"x":3`, `"x":7`, 1)
	if err != nil || string(got) != want {
		t.Errorf("%s, %v, not %s", got, err, want)
	}
	for _, p := range []Path{{"none"}, {"z", "a"}, {"a", "b", "c"}} {
		if _, err := replaced([]byte(doc), []change{{p, 1}}); err == nil {
			t.Errorf("%q was replaced", p)
		}
	}
}

// BenchmarkStaged finds the sign-in of every tool where it lies and makes what
// goes inside of it: what a session waits for because of them.
func BenchmarkStaged(b *testing.B) {
	var all []Tool
	home := b.TempDir()
	for _, tool := range firsts(b) {
		write(b, filepath.Join(home, usual[tool.Name]), documents[tool.Name])
		all = append(all, tool)
	}
	for b.Loop() {
		for _, tool := range all {
			s, err := tool.Find(b.Context(), world(home, nil))
			if err != nil {
				b.Fatal(err)
			}
			if _, err := s.Stage(tool.Modes[0], "stand-in-0123456789abcdef"); err != nil {
				b.Fatal(err)
			}
		}
	}
}
