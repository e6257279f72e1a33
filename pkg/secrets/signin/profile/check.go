package profile

import (
	"fmt"
	"path"
	"regexp"
	"slices"
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
		c.problem("name", "write the file's name here, or rename it to "+fileName(p.Name), "the profile of %s stands in a file of another name", p.Name)
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
		c.problem(key, "take some out", "%d entries, %d at most are read", n, maxList)
	}
}

// words is a text that people and programs are shown.
func (c *checker) words(key, s string, needed bool) {
	switch {
	case s == "" && needed:
		c.problem(key, "write one, as "+key[strings.LastIndex(key, ".")+1:]+` = "text"`, "it is missing")
	case len(s) > 4096 || strings.ContainsRune(s, 0):
		c.problem(key, "4096 bytes are read", "it is too long, or holds a zero byte")
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
		c.problem("program.bypass", "take the ${…} out", "nothing stands for something else here")
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
			c.problem(key, "take it out", "this variable is the node's to set")
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
			c.problem(fmt.Sprintf("%s[%d]", key, i), "a host alone, as api.x.example or *.x.example", "%v", err)
		}
	}
}

func (c *checker) key(at string, k Key, before []Key) {
	for i, name := range slices.Concat([]string{k.Name}, k.From, k.Fallback) {
		if err := policy.CheckSecretName(name); err != nil {
			where := at + ".name"
			if i > 0 {
				where = at + ".from"
			}
			c.problem(where, secrets.HintOf(err), "%v", err)
		}
	}
	if slices.Contains(nodeOwn, k.Name) {
		c.problem(at+".name", "the tool cannot have its key in it", "this variable is the node's to set")
	}
	if slices.ContainsFunc(before, func(b Key) bool { return b.Name == k.Name }) {
		c.problem(at+".name", "keep one of the two", "%s stands there twice", k.Name)
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
		c.problem(at, secrets.HintOf(err), "%v", err)
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
		c.problem(at+".path", "write it without * ? and [", "a file that is made has one name")
	case slices.ContainsFunc(guarded, func(dir string) bool { return f.Path == dir || strings.HasPrefix(f.Path, dir+"/") }):
		c.problem(at+".path", "name another place", "this place is the node's to fill")
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
			c.problem(at+"."+name, "add a [[key]] of that name, or take this line out", "the profile has no key %.40q", key)
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
