package profile

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/mojoup/mojoup-node/pkg/policy"
	"github.com/mojoup/mojoup-node/pkg/secrets"
)

// maxList bounds every list of a profile.
const maxList = 200

// What Profile.Choose may be.
const (
	ChooseFirst = "first"
	ChooseEach  = "each"
)

var (
	slug     = regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}$`)
	program  = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.+-]{0,63}$`)
	npm      = regexp.MustCompile(`^(@[a-z0-9][a-z0-9._-]*/)?[a-z0-9][a-z0-9._-]*$`)
	clearing = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*\*?$`)
	field    = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)
)

// profile checks all of it. The order is that of the file.
func (c *checker) profile(p *Profile) {
	if p.Version != Version {
		c.problem("version", "write version = 1", "version %d is not known here", p.Version)
	}
	switch {
	case !slug.MatchString(p.Name):
		c.problem("name", "a-z, 0-9 and '-', beginning with a letter", "%.40q is no name of a tool", p.Name)
	case !named(c.file, p.Name):
		c.problem("name", "rename the file to "+fileName(p.Name), "the profile of %s stands in a file of another name", p.Name)
	}
	c.words("title", p.Title, true)
	if p.Choose != ChooseFirst && p.Choose != ChooseEach {
		c.problem("choose", `write "first" or "each"`, "%.40q does not say which of the keys a session gets", p.Choose)
	}
	c.program(p.Program)
	c.env(p.Env)
	c.network(p.Network)
	for i, k := range p.Keys {
		c.key(fmt.Sprintf("key[%d]", i), k, p.Keys[:i])
	}
	c.bounded("key", len(p.Keys))
	c.bounded("file", len(p.Files))
	c.bounded("never", len(p.Never))
	for i, n := range p.Never {
		c.below(fmt.Sprintf("never[%d]", i), n)
	}
	for i, f := range p.Files {
		c.madeUp(fmt.Sprintf("file[%d]", i), f, p)
	}
	if p.SignIn != nil {
		c.signIn(p.SignIn, p.Never)
	}
}

func (c *checker) bounded(key string, n int) {
	if n > maxList {
		c.problem(key, "", "%d entries, %d at most are read", n, maxList)
	}
}

// words is a text that people and programs are shown.
func (c *checker) words(key, s string, needed bool) {
	switch {
	case s == "" && needed:
		c.problem(key, "", "it is missing")
	case len(s) > 4096 || strings.ContainsRune(s, 0):
		c.problem(key, "", "it is too long, or holds a zero byte")
	}
}

func (c *checker) program(p Program) {
	if !program.MatchString(p.Name) {
		c.problem("program.name", "the name alone, as it is typed", "%.40q is no name of a program on PATH", p.Name)
	}
	if p.Package != "" && !npm.MatchString(p.Package) {
		c.problem("program.package", "as in `npm install -g NAME`", "%.60q is no name of a package", p.Package)
	}
	for name, list := range map[string][]string{"headless": p.Headless, "bypass": p.Bypass} {
		c.bounded("program."+name, len(list))
		for i, s := range list {
			key := fmt.Sprintf("program.%s[%d]", name, i)
			c.words(key, s, false)
			if s != bypassWord {
				c.placeholders(key, s, "prompt")
			}
		}
	}
	if n := strings.Count(strings.Join(p.Headless, "\n"), "${prompt}"); len(p.Headless) > 0 && n != 1 {
		c.problem("program.headless", "one argument is, or holds, ${prompt}", "the prompt stands in %d places of the line", n)
	}
	if slices.ContainsFunc(p.Bypass, func(s string) bool { return strings.Contains(s, "${") }) {
		c.problem("program.bypass", "", "nothing stands for something else here")
	}
}

func (c *checker) env(e Env) {
	c.bounded("env.set", len(e.Set))
	for name, value := range e.Set {
		key := "env.set." + name
		if err := policy.CheckSecretName(name); err != nil {
			c.problem(key, "letters, digits and _", "it cannot be the name of a variable")
		}
		if slices.Contains(nodeOwn, name) {
			c.problem(key, "", "this variable is the node's to set")
		}
		c.words(key, value, false)
		c.placeholders(key, value, "home", "dir")
	}
	c.bounded("env.clear", len(e.Clear))
	for i, s := range e.Clear {
		if !clearing.MatchString(s) {
			c.problem(fmt.Sprintf("env.clear[%d]", i), "a name, or the beginning of one and *", "%.40q names no variable", s)
		}
	}
}

// nodeOwn are variables that lead programs inside to the way out, or say who
// they are: a profile has no say in them.
var nodeOwn = []string{
	"HOME", "PATH", "USER", "LOGNAME", "SHELL", "PWD", "MOJOUP_SESSION", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy",
	"SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "CODEX_CA_CERTIFICATE", "LD_PRELOAD", "LD_LIBRARY_PATH",
}

func (c *checker) network(n Network) {
	if n.Preset != "" {
		if rules := policy.BuiltinPresets()[n.Preset].Rules; len(rules) == 0 {
			c.problem("network.preset", "policies name the same ones", "there is no preset %.40q with hosts of its own", n.Preset)
		}
	}
	c.hosts("network.hosts", n.Hosts)
}

// hosts are of a tool's: patterns, on port 443.
func (c *checker) hosts(key string, hosts []string) {
	c.bounded(key, len(hosts))
	for i, h := range hosts {
		if _, err := policy.ParseHostPattern(h); err != nil {
			c.problem(fmt.Sprintf("%s[%d]", key, i), hintOf(err), "%v", err)
		}
	}
}

func hintOf(err error) string {
	var h interface{ Hint() string }
	if errors.As(err, &h) {
		return h.Hint()
	}
	return ""
}

func (c *checker) key(at string, k Key, before []Key) {
	for i, name := range slices.Concat([]string{k.Name}, k.From, k.Fallback) {
		if err := policy.CheckSecretName(name); err != nil {
			where := at + ".name"
			if i > 0 {
				where = at + ".from"
			}
			c.problem(where, hintOf(err), "%v", err)
		}
	}
	if slices.Contains(nodeOwn, k.Name) {
		c.problem(at+".name", "", "this variable is the node's to set")
	}
	if slices.ContainsFunc(before, func(b Key) bool { return b.Name == k.Name }) {
		c.problem(at+".name", "", "%s stands there twice", k.Name)
	}
	c.bounded(at+".from", len(k.From)+len(k.Fallback))
	c.binding(at, k.Binding())
	for i, p := range k.Prefixes {
		if p == "" || len(p) > 32 || strings.Trim(p, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.") != "" {
			c.problem(fmt.Sprintf("%s.prefixes[%d]", at, i), "letters, digits, '_', '-' and '.'", "%.40q is no beginning of a key", p)
		}
	}
	c.bounded(at+".prefixes", len(k.Prefixes))
}

// binding must name the header itself: a profile leaves nothing to chance.
func (c *checker) binding(at string, b secrets.Binding) {
	c.hosts(at+".hosts", b.Hosts)
	c.bounded(at+".headers", len(b.Headers))
	c.bounded(at+".paths", len(b.Paths))
	if len(b.Headers) == 0 {
		c.problem(at+".headers", `as "Authorization: bearer" or "X-Api-Key"`, "it does not say in which header the key goes")
	}
	if err := b.Check(); err != nil && !slices.ContainsFunc(c.problems, func(p Problem) bool { return strings.HasPrefix(p.Key, at+".hosts") }) {
		c.problem(at, hintOf(err), "%v", err)
	}
}

// below is a path, or pattern, below the home.
func (c *checker) below(key, p string) bool {
	if p == "" || len(p) > 1024 || path.IsAbs(p) || path.Clean(p) != p || p == "." || p == ".." || strings.HasPrefix(p, "../") || strings.ContainsFunc(p, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		c.problem(key, "a path below the home, without . and .. in it", "%.60q leads elsewhere", p)
		return false
	}
	return true
}

func (c *checker) madeUp(at string, f File, p *Profile) {
	switch {
	case !c.below(at+".path", f.Path):
	case strings.ContainsAny(f.Path, "*?["):
		c.problem(at+".path", "", "a file that is made has one name")
	case slices.ContainsFunc(guarded, func(dir string) bool { return f.Path == dir || strings.HasPrefix(f.Path, dir+"/") }):
		c.problem(at+".path", "", "this place is the node's to fill")
	}
	known := []string{"home", "dir"}
	for _, k := range p.Keys {
		if f.Key == k.Name {
			known = append(known, "key:"+k.Name, "tail:"+k.Name)
		}
	}
	has := func(name string) bool {
		return name == "" || slices.ContainsFunc(p.Keys, func(k Key) bool { return k.Name == name })
	}
	for name, key := range map[string]string{"key": f.Key, "without": f.Without} {
		if !has(key) {
			c.problem(at+"."+name, "", "the profile has no key %.40q", key)
		}
	}
	c.placeholders(at+".text", f.Text, known...)
}

// guarded are places in a home that programs of the system obey.
var guarded = []string{".ssh", ".gitconfig", ".config/git", ".bashrc", ".profile", ".bash_profile", ".zshrc", ".local/bin", ".local/session"}

// placeholders refuses what would stand there unfilled.
func (c *checker) placeholders(key, text string, known ...string) {
	for _, name := range names(text) {
		if !slices.Contains(known, name) {
			c.problem(key, "here: ${"+strings.Join(known, "}, ${")+"}", "${%.40s} stands for nothing here", printable(name))
		}
	}
}

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
		c.problem("signin.inside", "", "%s is never to be in a session", s.Inside)
	}
	c.bounded("signin.place", len(s.Places))
	c.bounded("signin.login", len(s.Logins))
	c.bounded("signin.endpoint", len(s.Endpoints))
	if len(s.Places) == 0 {
		c.problem("signin.place", "", "it does not say where the sign-in is kept")
	}
	for i, p := range s.Places {
		c.place(fmt.Sprintf("signin.place[%d]", i), p, never)
	}
	if len(s.Logins) == 0 {
		c.problem("signin.login", "", "it does not say what a sign-in is")
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
			c.problem(at+".name", "", "a lock lies beside the sign-in's file")
		}
		if l.Stale < 0 || l.Stale > 3600 {
			c.problem(at+".stale", "seconds", "%d is no time after which a lock is stale", l.Stale)
		}
	}
	c.bounded("signin.lock", len(s.Locks))
	for i, e := range s.Erase {
		c.below(fmt.Sprintf("signin.erase[%d]", i), e)
	}
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
			c.problem(fmt.Sprintf("%s.vars[%d]", at, i), "", "it cannot be the name of a variable")
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
			c.problem(at+".file", "", "%s is never to be copied", path.Join(rest, p.File))
		}
	}
	for name, v := range p.Keyring {
		c.placeholders(at+".keyring."+name, v, "login", "home-hash")
	}
	c.bounded(at+".command", len(p.Command))
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
		c.problem(at+".at", "", "* may only stand last")
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
		c.problem(at+".env", "", "it cannot be the name of a variable")
	}
	if l.Env == "" && s.Inside == "" {
		c.problem(at, "name signin.inside, or env here", "nothing says how a session gets it")
	}
	for f, v := range l.Set {
		one("set", f)
		if !plain(v) {
			c.problem(at+".set."+f, "", "a text, a whole number, true, false or a list of texts is what it may be")
		}
	}
	c.binding(at, l.Binding())
}

// loginTokens checks that no token can be copied by accident.
func (c *checker) loginTokens(at string, l Login, star bool) {
	if l.Access == "" && !star {
		c.problem(at+".access", "", "it does not say which field is the token")
	}
	for name, f := range map[string]string{"access": l.Access, "refresh": l.Refresh, "token": l.Token} {
		if f != "" && !slices.Contains(l.Keep, f) {
			c.problem(at+"."+name, "", "%s is not among those that may be copied", f)
		}
	}
	if l.Refresh == "" && (l.Withheld != "" || len(l.Drop) > 0) {
		c.problem(at+".withheld", "", "there is no refresh token to withhold")
	}
	if l.Refresh != "" && l.Refresh == l.Access {
		c.problem(at+".refresh", "", "the access token cannot be the refresh token as well")
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
		c.problem(at+".host", "", "%.60q is not one host", e.Host)
	}
	for name, p := range map[string]string{"token": e.Token, "revoke": e.Revoke} {
		if p == "" && name == "revoke" {
			continue
		}
		if _, err := policy.ParsePathPattern(p); err != nil {
			c.problem(at+"."+name, hintOf(err), "%v", err)
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
