package policy

import (
	"path"
	"strings"
)

// A Change is what a push does to one reference. The zero value is the one
// that is never allowed by a rule with "push".
type Change uint8

// What a push can do. Whether an existing reference is moved forward cannot be
// seen in the request; somebody has to have proved it.
const (
	ChangeRewrite Change = iota // or not known to be a fast-forward
	ChangeCreate
	ChangeForward
	ChangeDelete
)

// receivePack is the last part of the path to which git pushes.
const receivePack = "git-receive-pack"

// IsPush reports whether a path in normal form is one to which a git server
// takes pushes, however leniently it reads paths.
func IsPush(path string) bool {
	if !containsFold(path, receivePack) {
		return false // in normal form none of its letters is escaped
	}
	for seg := range strings.SplitSeq(asLenient(path), "/") {
		// Some servers take blanks and dots off the end of a name.
		if strings.EqualFold(strings.TrimRight(seg, " ."), receivePack) {
			return true
		}
	}
	return false
}

// containsFold is [strings.Contains] without regard to the case of ASCII
// letters; what is a small letter or a dash.
func containsFold(s, what string) bool {
	for i := 0; i+len(what) <= len(s); i++ {
		if s[i]|0x20 == what[0] && strings.EqualFold(s[i:i+len(what)], what) {
			return true
		}
	}
	return false
}

// checkRef accepts what git does as the full name of a reference (see git
// check-ref-format), below refs/.
func checkRef(s string) *fault {
	rest, ok := strings.CutPrefix(s, "refs/")
	switch {
	case len(s) > 1024:
		return faultf("git has no such names", "the name of the reference is longer than 1024 bytes")
	case !ok || rest == "":
		return faultf(`write its full name, as "refs/heads/`+path.Base("/"+s)+`"`, "%s is no full name of a reference", show(s))
	case strings.Contains(s, "..") || strings.Contains(s, "@{") || strings.HasSuffix(s, "."):
		return faultf("a reference in full, as refs/heads/main or refs/heads/agent/**", "%s is no name that git gives to a reference", show(s))
	}
	for seg := range strings.SplitSeq(s, "/") {
		if seg == "" || seg[0] == '.' || strings.HasSuffix(seg, ".lock") {
			return faultf("a reference in full, as refs/heads/main or refs/heads/agent/**", "%s is no name that git gives to a reference", show(s))
		}
	}
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c == 0x7f || strings.IndexByte(`~^:?*[\`, c) >= 0 {
			return faultf("a reference in full, as refs/heads/main or refs/heads/agent/**", "%s is no name that git gives to a reference", show(s))
		}
	}
	return nil
}

// CheckRef refuses what is not the full name of a reference.
func CheckRef(s string) error {
	if f := checkRef(s); f != nil {
		return f
	}
	return nil
}

func checkRefPattern(s string) *fault {
	for seg := range strings.SplitSeq(s, "/") {
		if strings.Contains(seg, "**") && seg != "**" {
			return faultf("write /**/ for any number of parts, and * within one", "%s: ** stands alone between two slashes", show(s))
		}
	}
	// With something for each star it must be a name.
	f := checkRef(strings.ReplaceAll(strings.ReplaceAll(s, "**", "x"), "*", "x"))
	if f != nil && strings.Contains(s, "*") && !strings.HasPrefix(s, "refs/") {
		return faultf(`write it in full, as "refs/heads/`+strings.TrimPrefix(s, "/")+`"`, "%s is no pattern of full names of references", show(s))
	}
	return f
}

// refPattern reads what checkRefPattern has accepted. Stars mean what they do
// in a path.
func refPattern(s string) pathPattern { return pathPattern{"/" + s, strings.Split(s, "/")} }

// isTag names never move: who has fetched one trusts that it means the same
// everywhere.
func isTag(ref string) bool { return strings.HasPrefix(ref, "refs/tags/") }

// fitsPush says how far a rule that limits pushes, whose host, port, method and
// path match, goes along with one.
func (r *rule) fitsPush(q *query) reason {
	if q.ref == "" {
		return reasonPush
	}
	ref, found := "/"+q.ref, false
	for i := range r.push {
		found = found || r.push[i].match(ref)
	}
	switch {
	case !found:
		return reasonRef
	case q.change == ChangeCreate:
		return reasonMatch
	case q.change == ChangeDelete:
		return reasonDelete
	case isTag(q.ref):
		return reasonTag
	case q.change == ChangeForward:
		return reasonMatch
	}
	return reasonRewrite
}

// claimed reports whether a rule of the index that limits pushes names the
// host and port: then such rules alone allow pushes there.
func (x *index) claimed(q *query, lists [][]int32) bool {
	if !x.pushes {
		return false
	}
	for _, list := range lists {
		for _, i := range list {
			if r := x.rules[i]; len(r.push) > 0 && r.hasPort(q.port) {
				return true
			}
		}
	}
	return false
}

// writePush makes the sentences about pushes.
func (r *rule) writePush(who string) {
	refs := make([]string, len(r.push))
	for i, p := range r.push {
		refs[i] = p.text[1:]
	}
	r.texts[reasonPush] = who + " allows pushes by reference"
	r.texts[reasonRef] = who + " allows pushes to other references only: " + list(refs, "and")
	r.texts[reasonDelete] = who + " allows new references and fast-forwards, and no reference to be deleted"
	r.texts[reasonTag] = who + " allows new tags, and none that is there to be moved"
	r.texts[reasonRewrite] = who + " allows new references and fast-forwards, and this is not proved to be one"
}
