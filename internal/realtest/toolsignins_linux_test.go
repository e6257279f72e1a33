package realtest

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mojoup/mojoup-node/pkg/sandbox/kerneltest"
	"github.com/mojoup/mojoup-node/pkg/secrets/signin"
	"github.com/mojoup/mojoup-node/pkg/secrets/signin/signintest"
)

// A toolSignIn is a sign-in of a person's as one of the tools keeps it.
type toolSignIn struct {
	tool, service string
	// file is below the home, both outside and, where it is one, inside.
	file string
	// text is what the tool writes there.
	text func(access, refresh string, expires time.Time) string
	// field holds the token there.
	field string
	// words choose what the sign-in is for, where the tool asks.
	words []string
	// variable takes the token inside, where no file does.
	variable string
	// host is asked with it, and the others are not.
	host string
	// modes are those that it has.
	modes []signin.Mode
	// renews says that a service makes new tokens for it.
	renews bool
}

func jsonText(v any) string {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return string(b) + "\n"
}

// identityOf is a token that says whose account it is, as ChatGPT's do.
func identityOf(account string) string {
	enc := base64.RawURLEncoding
	claims := jsonText(map[string]any{"email": "me@example.com", "exp": 4102444800, "https://api.openai.com/auth": map[string]any{"chatgpt_account_id": account, "chatgpt_plan_type": "plus"}})
	return enc.EncodeToString([]byte(`{"alg":"RS256"}`)) + "." + enc.EncodeToString([]byte(claims)) + "." + enc.EncodeToString([]byte("the service's signature"))
}

// elsewhere lies in the file of every sign-in and belongs to something else.
const elsewhere = "FORBIDDEN-belongs-to-another-service"

func chatGPTOf(access, refresh string, expires time.Time) string {
	return jsonText(map[string]any{
		"openai": map[string]any{"type": "oauth", "access": access, "refresh": refresh, "expires": expires.UnixMilli(), "accountId": "account-of-me"},
		"other":  map[string]any{"type": "api", "key": elsewhere},
	})
}

// toolSignIns are all that the tests know.
func toolSignIns() []toolSignIn {
	return []toolSignIn{
		{
			tool: "claude", field: "accessToken", service: "claude.ai", file: ".claude/.credentials.json", host: "api.anthropic.com", renews: true,
			modes: []signin.Mode{signin.StandIn, signin.Lease, signin.Hold, signin.Copy},
			text: func(access, refresh string, expires time.Time) string {
				return jsonText(map[string]any{
					"claudeAiOauth": map[string]any{"accessToken": access, "refreshToken": refresh, "expiresAt": expires.UnixMilli(), "scopes": []string{"user:inference", "user:profile"}, "subscriptionType": "max"},
					"mcpOAuth":      map[string]any{"x": elsewhere},
				})
			},
		},
		{
			tool: "codex", field: "access_token", service: "ChatGPT", file: ".codex/auth.json", words: []string{"-m", "gpt-5.4", "-c", "features.enable_request_compression=false"}, host: "chatgpt.com", renews: true,
			modes: []signin.Mode{signin.StandIn, signin.Lease},
			text: func(access, refresh string, _ time.Time) string {
				return jsonText(map[string]any{
					"OPENAI_API_KEY": nil, "auth_mode": "chatgpt", "last_refresh": time.Now().UTC().Format(time.RFC3339Nano), "personal_access_token": elsewhere,
					"tokens": map[string]any{"id_token": identityOf("account-of-me"), "access_token": access, "refresh_token": refresh, "account_id": "account-of-me"},
				})
			},
		},
		{
			tool: "copilot", service: "GitHub", file: ".copilot/config.json", host: "api.individual.githubcopilot.com", variable: "COPILOT_GITHUB_TOKEN",
			modes: []signin.Mode{signin.StandIn, signin.Copy},
			text: func(access, _ string, _ time.Time) string {
				return "// made by the tool itself\n" + jsonText(map[string]any{
					"lastLoggedInUser": map[string]string{"host": "https://github.com", "login": "me"},
					"loggedInUsers":    []any{map[string]string{"host": "https://github.com", "login": "me"}},
					"copilotTokens":    map[string]string{"https://github.com:me": access, "https://github.com:somebody": "gho_" + elsewhere},
				})
			},
		},
		{
			tool: "opencode", field: "access", service: "ChatGPT", file: ".local/share/opencode/auth.json", host: "chatgpt.com", renews: true, words: []string{"-m", "openai/gpt-5.4"},
			modes: []signin.Mode{signin.StandIn, signin.Lease, signin.Copy}, text: chatGPTOf,
		},
		{
			tool: "kilo", service: "Kilo", file: ".local/share/kilo/auth.json", host: "api.kilo.ai", variable: "KILO_API_KEY", words: []string{"-m", "kilo/anthropic/claude-sonnet-4.5"},
			modes: []signin.Mode{signin.StandIn, signin.Copy},
			text: func(access, _ string, expires time.Time) string {
				return jsonText(map[string]any{
					"kilo":  map[string]any{"type": "oauth", "access": access, "refresh": access, "expires": expires.UnixMilli(), "accountId": "org-of-me"},
					"other": map[string]any{"type": "api", "key": elsewhere},
				})
			},
		},
		{
			tool: "kilo", field: "access", service: "ChatGPT", file: ".local/share/kilo/auth.json", host: "chatgpt.com", renews: true, words: []string{"-m", "openai/gpt-5.4"},
			modes: []signin.Mode{signin.StandIn, signin.Lease, signin.Copy}, text: chatGPTOf,
		},
	}
}

// signedInRig is a node whose person is signed in to a tool.
type signedInRig struct {
	*rig
	of toolSignIn
	up *vendors
	// tokens is the service that renews, which lets nobody in with a token that
	// it has replaced.
	tokens *signintest.Server
	mode   signin.Mode
	access string // the first
	before string // what the person's file held
	// anew is the one that a person got by signing in again, where no service
	// renews.
	anew atomic.Pointer[string]
}

func newSignedInRig(t *testing.T, who somebody, s toolSignIn, mode signin.Mode, left time.Duration) *signedInRig {
	t.Helper()
	x := &signedInRig{of: s, mode: mode, up: &vendors{}, tokens: signintest.Start(t, time.Now, left)}
	var refresh string
	if x.access, refresh = x.tokens.SignIn("me"); !s.renews {
		x.access = "gho_realtest0123456789abcdefghijklmnop"
	}
	x.tokens.Life(8 * time.Hour)
	x.up.tokens = x.tokens
	x.up.lets = func(token string) bool { return token == x.token() }
	x.before = s.text(x.access, refresh, time.Now().Add(left))
	x.rig = withVendors(t, who, s.tool, x.up, func(r *rig) {
		r.env = append(r.env, "MOJOUP_NODE_SIGNIN_MODE_"+strings.ToUpper(s.tool)+"="+string(mode))
	})
	x.write(filepath.Join("home", s.file), x.before, 0o600)
	x.own()
	return x
}

// token is the one that the service takes now.
func (x *signedInRig) token() string {
	if anew := x.anew.Load(); anew != nil {
		return *anew
	}
	if !x.of.renews {
		return x.access
	}
	return x.tokens.Access("me")
}

func (x *signedInRig) host() string {
	b, err := os.ReadFile(filepath.Join(x.home, x.of.file))
	x.must(err)
	return string(b)
}

// look is a command that writes down in found.txt where in a session a text
// is: files of its home, variables of its processes. The tool's own records of
// the command do not hold it, and nothing on the way takes it for a key that is
// said back.
func look(text string) string {
	return `t=` + hidden(text) + `; { grep -rlaF -- "$t" "$HOME"; cat /proc/[0-9]*/environ | tr '\000' '\n' | grep -aF -- "$t" | cut -d= -f1; } 2>/dev/null >found.txt; echo looked`
}

// hidden is a text as a shell reads it, and nobody else.
func hidden(text string) string {
	numbers := ""
	for _, b := range []byte(text) {
		numbers += fmt.Sprintf(`\%03o`, b)
	}
	return `$(printf '` + numbers + `')`
}

func (x *signedInRig) found() string {
	b, err := os.ReadFile(filepath.Join(x.repo, "found.txt"))
	if err != nil {
		x.t.Errorf("the tool did not look: %v", err)
	}
	return string(b)
}

// TestClaudeAndCodexTakeTheirSignIns is TestToolsTakeTheirSignIns for the two
// tools that every run of the tests fetches.
func TestClaudeAndCodexTakeTheirSignIns(t *testing.T) {
	kerneltest.Long(t)
	takeSignIns(t, inEveryRun, generations(older)...)
}

// TestToolsTakeTheirSignIns runs the real tools with a sign-in of their
// person's in each mode that they have: the token arrives, the answer comes
// back, the person's file stays what it is, and the token is inside only where
// the mode says so.
func TestToolsTakeTheirSignIns(t *testing.T) {
	wantsTools(t)
	takeSignIns(t, inToolsRun, both...)
}

func takeSignIns(t *testing.T, which func(tool string) bool, generations ...string) {
	everywhere(t, func(t *testing.T, who somebody) {
		for _, s := range toolSignIns() {
			if !which(s.tool) {
				continue
			}
			for _, mode := range s.modes {
				t.Run(s.tool+" "+s.service+" "+string(mode), func(t *testing.T) {
					x := newSignedInRig(t, who, s, mode, 8*time.Hour)
					x.up.command = look(x.access)
					res := x.runs()
					x.mention(res, wellSaid)
					x.onlyTheToken()
					x.inside(mode)
					if now := x.host(); now != x.before {
						t.Errorf("the person's file was %s and is %s", x.before, now)
					}
				})
			}
		}
	}, generations...)
}

// runs has the tool answer one prompt.
func (x *signedInRig) runs() result {
	x.t.Helper()
	return x.asks().succeed()
}

func (x *signedInRig) asks() *job {
	return x.rig.inside(x.up.open(), x.of.words...).as(x.of.tool).asked("say that all is well")
}

// onlyTheToken fails unless everything that was sent had the token or nothing.
func (x *signedInRig) onlyTheToken() {
	x.t.Helper()
	answered := false
	for _, a := range x.up.requests() {
		if a.token != "" && a.token != x.access {
			x.t.Errorf("sent with something else than the token: %v", a)
		}
		answered = answered || a.answers && a.host == x.of.host && a.token == x.access
		if strings.Contains(a.token+string(a.body), elsewhere) {
			x.t.Errorf("what belongs to others was sent: %v", a)
		}
	}
	if !answered {
		x.t.Errorf("%s was asked nothing: %v", x.of.host, x.up.requests())
	}
}

// inside fails unless the token was inside where the mode says so, and nowhere
// else: the look that finds it in a lease finds nothing of a stand-in.
func (x *signedInRig) inside(mode signin.Mode) {
	x.t.Helper()
	found := x.found()
	where := x.of.variable
	if where == "" {
		where = x.of.file
	}
	if mode.RealInside() != strings.Contains(found, where) || !mode.RealInside() && found != "" {
		x.t.Errorf("mode %s: the token was found in %q, want it in %s: %v", mode, found, where, mode.RealInside())
	}
}
