package plan

import (
	"slices"
	"strings"

	"github.com/mojoup/mojoup-node/internal/fault"
	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// loginFile answers git's questions for a password. It holds stand-ins, which
// are worth nothing elsewhere.
const loginFile = runDir + "/git-credential"

// A kv is one line of git's configuration.
type kv struct{ key, value string }

// userNames are those that a service wants beside a token; others take any.
var userNames = map[string]string{"gitlab.com": "oauth2", "bitbucket.org": "x-token-auth"}

// logins writes the helper by which git signs in. It is a script, because the
// helpers that come with git also write what they are told to keep, and it does
// not look at variables, because tools take those that look like keys from the
// programs that they start.
func (b *builder) logins() {
	logins := b.firstLogins()
	if len(logins) == 0 {
		return
	}
	var s strings.Builder
	s.WriteString(`#!/bin/sh
# Answers "git credential" with what stands for your keys in this session.
[ "$1" = get ] || exit 0
protocol= host= username=
while IFS='=' read -r key value && [ -n "$key" ]; do
	case $key in
	protocol) protocol=$value ;;
	host) host=$value ;;
	username) username=$value ;;
	esac
done
answer() {
	printf 'username=%s\npassword=%s\n' "${username:-$1}" "$2"
	exit 0
}
case $protocol://$host in
`)
	for _, l := range logins {
		for _, pattern := range shellPatterns(l.Host) {
			s.WriteString("https://" + pattern + ") " + answer(l, pattern) + " ;;\n")
		}
	}
	s.WriteString("esac\n")
	b.add(sandbox.Mount{Kind: sandbox.Text, Target: loginFile, Content: []byte(s.String()), Mode: 0o555})
}

// firstLogins are one for each host.
func (b *builder) firstLogins() (out []Login) {
	for _, l := range b.in.Logins {
		if !slices.ContainsFunc(out, func(o Login) bool { return o.Host == l.Host }) {
			out = append(out, l)
		}
	}
	// A name of its own comes before what it also fits.
	slices.SortStableFunc(out, func(a, b Login) int { return strings.Count(a.Host, "*") - strings.Count(b.Host, "*") })
	return out
}

// shellPatterns are the patterns of a case that mean what a policy's do. The
// first of two takes out what the second would let in as well.
func shellPatterns(host string) []string {
	switch rest, many := strings.CutPrefix(host, "**."); {
	case many:
		return []string{"*." + fault.Quoted(rest)}
	case strings.HasPrefix(host, "*."):
		return []string{"*.*." + fault.Quoted(host[2:]), "*." + fault.Quoted(host[2:])}
	}
	return []string{fault.Quoted(host)}
}

func answer(l Login, pattern string) string {
	if strings.HasPrefix(pattern, "*.*.") {
		return "exit 0"
	}
	user, ok := userNames[l.Host]
	if !ok {
		user = "x-access-token"
	}
	return "answer " + user + " " + fault.Quoted(l.Password)
}

// loginConfig has git ask the helper, and go over https where a remote is
// reached by ssh: there is no way out for that, and no key inside.
func (b *builder) loginConfig() (out []kv) {
	logins := b.firstLogins()
	if len(logins) > 0 {
		out = append(out, kv{"credential.helper", "!sh " + loginFile})
	}
	for _, l := range logins {
		if strings.Contains(l.Host, "*") {
			continue // what the remote's host would be is not known
		}
		name := l.Host
		if at := strings.LastIndexByte(name, ':'); at > 0 && !strings.HasSuffix(name, "]") {
			name = name[:at]
		}
		for _, ssh := range []string{"git@" + name + ":", "ssh://git@" + name + "/", "ssh://git@" + name + ":22/", "git+ssh://git@" + name + "/", "ssh://" + name + "/"} {
			out = append(out, kv{"url.https://" + l.Host + "/.insteadOf", ssh})
		}
		if name == "github.com" { // ssh over the port of https
			out = append(out, kv{"url.https://" + l.Host + "/.insteadOf", "ssh://git@ssh.github.com:443/"})
		}
	}
	return out
}
