package secrets

import (
	"slices"
	"strings"
)

// signed reports whether a request is signed with a key instead of taking it
// along, in the ways of AWS and of what speaks like it: in the header
// Authorization, versions 4 and 2, or in the query.
func (r *Request) signed() bool {
	for _, v := range r.Header["Authorization"] {
		if strings.HasPrefix(v, "AWS4-") || strings.HasPrefix(v, "AWS ") {
			return true
		}
	}
	for pair := range strings.SplitSeq(r.Query, "&") {
		switch name, _, _ := strings.Cut(pair, "="); name {
		case "X-Amz-Credential", "X-Amz-Signature", "AWSAccessKeyId":
			return true
		}
	}
	return false
}

// Signs reports whether a key of that name is never sent, but used to sign what
// is, or goes together with one that is. No binding would help.
func Signs(name string) bool {
	return slices.Contains([]string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"}, name)
}

// SigningHelp is what can be done where a request has to be signed.
const SigningHelp = "make it outside of the session, or give the session keys of few rights and a short life with --env, which are then really inside"
