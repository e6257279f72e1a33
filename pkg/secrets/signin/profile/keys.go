package profile

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// A described key is one that a profile may have. What it holds is said by the
// type that it is read into; a key that is not described fails a test.
type described struct {
	key   string // "signin.place.vars"
	about string
}

// keys are all there are, in the order in which a person writes them.
var keys = []described{
	{"version", "The format of the file: 1."},
	{"name", "What `--tool` calls it, and the name of the file: a-z, 0-9 and `-`."},
	{"title", "What people call it."},
	{"choose", "How many of the keys that are found a session gets: `first` or `each`."},
	{"never", "Files and directories of the tool below your home that no session gets, whatever else stands here; `/**` at the end stands for all below."},

	{"program", "How the tool is found and started."},
	{"program.name", "Its program, which is looked for on `PATH`."},
	{"program.package", "Its package in npm, for the sentence that says how to get it."},
	{"program.headless", "Arguments for `--headless`: `${prompt}` stands for the prompt and, as an argument of its own, `${bypass}` for the arguments of `bypass`."},
	{"program.bypass", "Arguments that switch the tool's own questions off. They are used with `--headless`, and only where a sandbox holds."},

	{"env", "Its environment inside."},
	{"env.set", "Variables that it gets; `${home}` and `${dir}` are the session's home and repository."},
	{"env.clear", "Variables that it does not get from you, `*` at the end for all that begin so. Only `--env` sets one."},

	{"network", "What it reaches whichever key or sign-in it has. A policy may refuse it."},
	{"network.preset", "A preset of policies, as `anthropic`."},
	{"network.hosts", "Host patterns as in a policy, on port 443."},

	{"key", "An API key, once for each."},
	{"key.name", "The variable inside, and the name of the secret that is taken for it."},
	{"key.from", "Your variables that it is taken from, the first one first; without it the one of its name."},
	{"key.fallback", "Your variables that it is taken from where there is neither a key nor a sign-in."},
	{"key.hosts", "Hosts that the key goes to, which are reached only where it is there."},
	{"key.headers", "Headers that it may stand in, as `Authorization: bearer` or `X-Api-Key`."},
	{"key.paths", "Path patterns that it goes to; without them every path."},
	{"key.prefixes", "What a key begins with, one of these: others are not taken, and a stand-in keeps it."},

	{"file", "A file that is made in the session's home, mode 0600, once for each. The tool may change it."},
	{"file.path", "Its place below the home."},
	{"file.text", "What is in it. `${home}`, `${dir}`, `${key:NAME}` (the stand-in) and `${tail:NAME}` (its last 20 characters) stand for values, written as within a text of JSON or TOML."},
	{"file.key", "It is made only where the session has this key."},
	{"file.without", "It is made only where the session has not this key."},

	{"signin", "Where the tool keeps a subscription's sign-in, and what of it a session gets."},
	{"signin.default", "The mode: one of `modes`, or `off`. For a built-in tool it is what holds where `node.signin.mode.TOOL` says nothing."},
	{"signin.modes", "The modes that work with the tool: `standin`, `lease`, `hold`, `copy`."},
	{"signin.inside", "The file below the session's home that the tool reads."},

	{"signin.place", "A place where the tool looks, once for each, the first one first: a file, an item of the keyring, or a command."},
	{"signin.place.vars", "Variables that name the directory; the first one that is set counts."},
	{"signin.place.default", "The directory where none is set, as `~/.mine`."},
	{"signin.place.file", "The file in that directory, a JSON document."},
	{"signin.place.comments", "The JSON may hold comments."},
	{"signin.place.keyring", "Attributes of an item of the desktop's keyring, in place of the file. `${login}` stands for the account's name, `${home-hash}` for the first 16 digits of the SHA-256 of the directory."},
	{"signin.place.login", "The keys that lead to the account's name in the file, where the keyring is asked for that."},
	{"signin.place.command", "A program of yours on `PATH`, or by its absolute path, and its arguments: it prints the token. Asked only where no other place holds a sign-in; stands alone."},

	{"signin.login", "A sign-in in that JSON, once for each kind. Fields are names joined by dots, below `at`."},
	{"signin.login.name", "The service whose sign-in it is."},
	{"signin.login.at", "The keys that lead to its object; without it the whole document. A last `*` stands for every key there: accounts by their names."},
	{"signin.login.is", "Fields with the text that makes the object a sign-in of this kind."},
	{"signin.login.keep", "The only fields that may be copied, whatever the mode."},
	{"signin.login.access", "The field with the access token. It is among `keep`, as are `refresh` and `token`."},
	{"signin.login.refresh", "The field with the refresh token, which never goes inside. Without one the node renews nothing."},
	{"signin.login.env", "The variable that takes the token inside, in place of the file `inside`."},
	{"signin.login.drop", "Fields that are left out where the refresh token is."},
	{"signin.login.withheld", "What stands in place of the refresh token; without it the field is left out."},
	{"signin.login.expires", "The field with the time at which the access token expires."},
	{"signin.login.expires-as", "How that is written: `ms` or `s` since 1970, or `jwt` where the field is a token that says it."},
	{"signin.login.margin", "How many seconds before that the tool itself renews; the node does so earlier."},
	{"signin.login.renewed", "The field with the time of the last renewal, as RFC 3339."},
	{"signin.login.account", "Fields that together name the account."},
	{"signin.login.claim-path", "Where those fields are tokens (JWT): the keys that lead to the name in their claims."},
	{"signin.login.token", "A field with a token (JWT) that the tool only reads: a stand-in has one that nobody signed."},
	{"signin.login.claims", "The claims that it keeps."},
	{"signin.login.set", "Fields that a stand-in has whatever your file says, as an expiry that lies far away."},
	{"signin.login.hosts", "Hosts that the access token goes to."},
	{"signin.login.headers", "Headers that it may stand in."},
	{"signin.login.paths", "Path patterns that it goes to; without them every path."},

	{"signin.endpoint", "A service that makes tokens, once for each. A session that asks it is answered by the node; the first one is where the node renews."},
	{"signin.endpoint.host", "Its host."},
	{"signin.endpoint.token", "The path where a refresh token is spent."},
	{"signin.endpoint.revoke", "The path where a sign-in is ended."},
	{"signin.endpoint.client", "The id by which the tool names itself there."},
	{"signin.endpoint.body", "How it asks: `json` or `form`."},
	{"signin.endpoint.client-field", "The field of the sign-in that holds another such id, where it does."},
	{"signin.endpoint.scopes-field", "The field of the sign-in whose list the request repeats."},

	{"signin.lock", "A lock that the tool takes beside its file to renew, in its order. The node takes it, too."},
	{"signin.lock.kind", "`directory`, which is made and touched, or `file`, which is locked with flock."},
	{"signin.lock.name", "Its name, in the directory of the file."},
	{"signin.lock.stale", "For how many seconds a directory was not touched that nobody holds any more."},
}

// A kind is what a key holds.
type kind struct {
	words   string // "a list of texts"
	example string // of a value; empty for tables
	table   bool
	many    bool // a table that may stand there more than once
}

// kindOf is that of the type that a key is read into.
func kindOf(t reflect.Type) kind {
	switch t.Kind() {
	case reflect.Pointer:
		return kindOf(t.Elem())
	case reflect.Struct:
		return kind{words: "a table", table: true}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Struct {
			return kind{words: "a table", table: true, many: true}
		}
		return kind{words: "a list of texts", example: `["one", "two"]`}
	case reflect.Map:
		if t.Elem().Kind() == reflect.String {
			return kind{words: "texts by name", example: `{ NAME = "text" }`}
		}
		return kind{words: "values by name", example: `{ name = "text", other = 1 }`}
	case reflect.Int:
		return kind{words: "a whole number", example: "1"}
	case reflect.Bool:
		return kind{words: "true or false", example: "true"}
	}
	return kind{words: "a text", example: `"text"`}
}

// kinds are those of all keys that a profile is read into.
func kinds() map[string]kind {
	out := map[string]kind{}
	collect(reflect.TypeFor[Profile](), "", out)
	return out
}

func collect(t reflect.Type, prefix string, out map[string]kind) {
	for i := range t.NumField() {
		f := t.Field(i)
		name := f.Tag.Get("toml")
		switch {
		case f.Anonymous && name == "":
			collect(f.Type, prefix, out)
			continue
		case name == "-":
			continue
		}
		key := joined(prefix, name)
		k := kindOf(f.Type)
		out[key] = k
		if inner := f.Type; k.table {
			if inner.Kind() != reflect.Struct {
				inner = inner.Elem()
			}
			collect(inner, key, out)
		}
	}
}

// wants says what a key must hold, for a value of another type, and "" for a
// key that there is not. key may lead further, to an entry of a value.
func wants(key string) (message, hint string) {
	all := kinds()
	for ; key != ""; key = key[:max(0, strings.LastIndex(key, "."))] {
		k, known := all[key]
		switch name := key[strings.LastIndex(key, ".")+1:]; {
		case !known:
			continue
		case k.many:
			return "it is a table of which there may be several", fmt.Sprintf("write [[%s]], in two brackets each time", key)
		case k.table:
			return "it is a table of which there is one", fmt.Sprintf("write [%s], in one bracket and once", key)
		default:
			return "it must be " + k.words, fmt.Sprintf("as %s = %s", name, k.example)
		}
	}
	return "", ""
}

// Markdown is what the documentation says of every key, a table for each.
func Markdown() string {
	var b strings.Builder
	all := kinds()
	table := func(of string) {
		b.WriteString("\n| key | holds | meaning |\n|---|---|---|\n")
		for _, d := range keys {
			above, name := "", d.key
			if i := strings.LastIndex(d.key, "."); i >= 0 {
				above, name = d.key[:i], d.key[i+1:]
			}
			if k := all[d.key]; above == of && !k.table {
				fmt.Fprintf(&b, "| `%s` | %s | %s |\n", name, strings.TrimPrefix(k.words, "a "), d.about)
			}
		}
	}
	b.WriteString("At the top of the file:\n")
	table("")
	for _, d := range keys {
		switch k := all[d.key]; {
		case k.many:
			fmt.Fprintf(&b, "\n`[[%s]]`: %s\n", d.key, d.about)
			table(d.key)
		case k.table:
			fmt.Fprintf(&b, "\n`[%s]`: %s\n", d.key, d.about)
			table(d.key)
		}
	}
	return b.String()
}

// siblings are the keys that may stand where one does that there is not.
func siblings(key string) (names []string) {
	above := key[:max(0, strings.LastIndex(key, "."))]
	for _, d := range keys {
		name := strings.TrimPrefix(d.key, above+".")
		if above == "" {
			name = d.key
		}
		if (above == "" || name != d.key) && !strings.Contains(name, ".") {
			names = append(names, name)
		}
	}
	return slices.Compact(names)
}
