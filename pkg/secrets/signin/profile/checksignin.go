package profile

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/mojoup/mojoup-node/pkg/policy"
	"github.com/mojoup/mojoup-node/pkg/secrets"
)

var modes = []Mode{StandIn, Lease, Hold, Copy}

func (c *checker) signIn(s *SignIn, never []string) {
	for i, m := range s.Modes {
		if !slices.Contains(modes, m) {
			c.problem(fmt.Sprintf("signin.modes[%d]", i), "modes: standin, lease, hold, copy", "%.20q is no mode", string(m))
		}
	}
	if s.Default != Off && !slices.Contains(s.Modes, s.Default) {
		c.problem("signin.default", `one of signin.modes, or "off"`, "%.20q is not among the modes", string(s.Default))
	}
	if s.Inside != "" && c.below("signin.inside", s.Inside) && covered(never, s.Inside) {
		c.problem("signin.inside", "take it out of never, or name another file", "%s is never to be in a session", s.Inside)
	}
	c.bounded("signin.place", len(s.Places))
	c.bounded("signin.login", len(s.Logins))
	c.bounded("signin.endpoint", len(s.Endpoints))
	if len(s.Places) == 0 {
		c.problem("signin.place", "add a [[signin.place]]", "it does not say where the sign-in is kept")
	}
	for i, p := range s.Places {
		c.place(fmt.Sprintf("signin.place[%d]", i), p, never)
	}
	if len(s.Logins) == 0 {
		c.problem("signin.login", "add a [[signin.login]]", "it does not say what a sign-in is")
	}
	for i, l := range s.Logins {
		c.login(fmt.Sprintf("signin.login[%d]", i), l, s)
	}
	for i, e := range s.Endpoints {
		c.endpoint(fmt.Sprintf("signin.endpoint[%d]", i), e)
	}
	for i, l := range s.Locks {
		at := fmt.Sprintf("signin.lock[%d]", i)
		if l.Kind != LockDirectory && l.Kind != LockFile {
			c.problem(at+".kind", `"directory" or "file"`, "%.20q is no kind of lock", l.Kind)
		}
		if c.below(at+".name", l.Name) && strings.Contains(l.Name, "/") {
			c.problem(at+".name", "its name alone", "a lock lies beside the sign-in's file")
		}
		if l.Stale < 0 || l.Stale > 3600 {
			c.problem(at+".stale", "seconds", "%d is no time after which a lock is stale", l.Stale)
		}
	}
	c.bounded("signin.lock", len(s.Locks))
}

func (c *checker) place(at string, p Place, never []string) {
	kinds := 0
	for _, is := range []bool{p.File != "" && len(p.Keyring) == 0, len(p.Keyring) > 0, len(p.Command) > 0} {
		if is {
			kinds++
		}
	}
	if kinds != 1 {
		c.problem(at, "a place is a file, or a keyring, or a command", "it is %d places at once", kinds)
	}
	for i, v := range p.Vars {
		if err := policy.CheckSecretName(v); err != nil {
			c.problem(fmt.Sprintf("%s.vars[%d]", at, i), "letters, digits and _", "it cannot be the name of a variable")
		}
	}
	rest, home := strings.CutPrefix(p.Default+"/", "~/")
	if rest = path.Clean(rest); p.Default != "" && p.Default != "~" && (!home || !c.below(at+".default", strings.TrimPrefix(p.Default, "~/"))) {
		c.problem(at+".default", `as "~/.config"`, "%.60q is no directory below the home", p.Default)
	}
	if p.File != "" {
		if p.Default == "" {
			c.problem(at+".default", `as "~/.config"`, "it does not say where the file is when no variable does")
		}
		if c.below(at+".file", p.File) && home && covered(never, path.Join(rest, p.File)) {
			c.problem(at+".file", "take it out of never, or name another file", "%s is never to be copied", path.Join(rest, p.File))
		}
	}
	for name, v := range p.Keyring {
		c.placeholders(at+".keyring."+name, v, "login", "home-hash")
	}
	c.bounded(at+".command", len(p.Command))
	if len(p.Command) > 0 && strings.Contains(p.Command[0], "/") && !path.IsAbs(p.Command[0]) {
		c.problem(at+".command[0]", "a name on PATH, or an absolute path", "%.60q would be another program in each directory", p.Command[0])
	}
	if len(p.Command) > 0 && (len(p.Vars) > 0 || p.Default != "" || p.Comments || len(p.Login) > 0) {
		c.problem(at, "let command stand alone", "a command has no directory and no file")
	}
	for i, w := range p.Command {
		c.words(at+".command["+strconv.Itoa(i)+"]", w, true)
	}
}

func (c *checker) login(at string, l Login, s *SignIn) {
	c.words(at+".name", l.Name, true)
	fields := func(name string, list []string) {
		c.bounded(at+"."+name, len(list))
		for i, f := range list {
			if !field.MatchString(f) {
				c.problem(fmt.Sprintf("%s.%s[%d]", at, name, i), "keys joined by dots", "%.60q is no field", f)
			}
		}
	}
	one := func(name, f string) {
		if f != "" {
			fields(name, []string{f})
		}
	}
	star := slices.Index(l.At, "*")
	if star >= 0 && star != len(l.At)-1 {
		c.problem(at+".at", "put it at the end", "* may only stand last")
	}
	fields("keep", l.Keep)
	fields("account", l.Account)
	fields("drop", l.Drop)
	one("access", l.Access)
	one("refresh", l.Refresh)
	one("expires", l.Expires)
	one("token", l.Token)
	one("renewed", l.Renewed)
	c.loginTokens(at, l, star >= 0)
	if (l.Expires == "") != (l.ExpiresAs == "") || l.Expires != "" && !slices.Contains([]string{"ms", "s", "jwt"}, l.ExpiresAs) {
		c.problem(at+".expires-as", `"ms", "s" or "jwt", beside expires`, "%.20q does not say how the expiry is written", l.ExpiresAs)
	}
	if l.Margin < 0 || l.Margin > 86400 {
		c.problem(at+".margin", "seconds", "%d is no time before an expiry", l.Margin)
	}
	if l.Env != "" && policy.CheckSecretName(l.Env) != nil {
		c.problem(at+".env", "letters, digits and _", "it cannot be the name of a variable")
	}
	if l.Env == "" && s.Inside == "" {
		c.problem(at, "name signin.inside, or env here", "nothing says how a session gets it")
	}
	for f, v := range l.Set {
		one("set", f)
		if !plain(v) {
			c.problem(at+".set."+f, "write one of them", "a text, a whole number, true, false or a list of texts is what it may be")
		}
	}
	c.binding(at, l.Binding())
}

// loginTokens checks that no token can be copied by accident.
func (c *checker) loginTokens(at string, l Login, star bool) {
	if l.Access == "" && !star {
		c.problem(at+".access", "name the field, as access = \"token\"", "it does not say which field is the token")
	}
	for name, f := range map[string]string{"access": l.Access, "refresh": l.Refresh, "token": l.Token} {
		if f != "" && !slices.Contains(l.Keep, f) {
			c.problem(at+"."+name, "add it to keep", "%s is not among those that may be copied", f)
		}
	}
	if l.Refresh == "" && (l.Withheld != "" || len(l.Drop) > 0) {
		c.problem(at+".withheld", "name it in refresh, or take this line out", "there is no refresh token to withhold")
	}
	if l.Refresh != "" && l.Refresh == l.Access {
		c.problem(at+".refresh", "leave refresh out where the token is never renewed", "the access token cannot be the refresh token as well")
	}
}

// plain reports whether a value can be put into any JSON document.
func plain(v any) bool {
	switch v := v.(type) {
	case string, int64, bool:
		return true
	case []any:
		return len(v) <= maxList && !slices.ContainsFunc(v, func(e any) bool { _, text := e.(string); return !text })
	}
	return false
}

func (c *checker) endpoint(at string, e Endpoint) {
	if p, err := policy.ParseHostPattern(e.Host); err != nil || strings.Contains(p.String(), "*") {
		c.problem(at+".host", "a name, as auth.x.example", "%.60q is not one host", e.Host)
	}
	for name, p := range map[string]string{"token": e.Token, "revoke": e.Revoke} {
		if p == "" && name == "revoke" {
			continue
		}
		if _, err := policy.ParsePathPattern(p); err != nil {
			c.problem(at+"."+name, secrets.HintOf(err), "%v", err)
		}
	}
	if e.Body != "json" && e.Body != "form" {
		c.problem(at+".body", `"json" or "form"`, "%.20q is no way to ask", e.Body)
	}
	c.words(at+".client", e.Client, false)
}

// covered reports whether a path is one of those that never are copied. A
// final ** stands for everything below.
func covered(never []string, p string) bool {
	return slices.ContainsFunc(never, func(pattern string) bool {
		if dir, all := strings.CutSuffix(pattern, "/**"); all {
			return p == dir || strings.HasPrefix(p, dir+"/")
		}
		ok, err := path.Match(pattern, p)
		return err == nil && ok
	})
}
