package signin

import (
	"fmt"
	"strings"
	"time"

	"github.com/mojoup/mojoup-node/pkg/secrets"
)

// A Tool is one kind of sign-in of a coding agent, in values only: where it is
// kept, what of it a session may have, and who renews it. [FromProfile] fills
// it.
type Tool struct {
	Name    string // as in run --tool
	Service string // whose tokens they are: "ChatGPT"
	Title   string // of the tool, as people know it
	// Default is the strongest mode that was tried with the tool itself, and
	// Modes those that work at all.
	Default Mode
	Modes   []Mode
	// Places are where the tool looks, the first one first.
	Places []Place
	// Spare says that it counts only where the tool has no other sign-in, as
	// the tool itself looks elsewhere then.
	Spare bool
	// Document says what stands where.
	Document Document
	// Variable is what a session gets the token in, instead of a file.
	Variable string
	// Target is the file inside, below the home.
	Target string
	// Binding is where the access token goes.
	Binding secrets.Binding
	// Renewal is who renews it, or nil where nobody has to.
	Renewal *Renewal
	// Margin is how long before its end the tool itself renews it.
	Margin time.Duration
}

// A Place is a file below the directory that the first variable names that is
// set, else below Default. With a Keyring it is that item instead, and the
// file says whose it is.
type Place struct {
	Variables []string
	Default   string // "~/" and a path, or "~"
	File      string
	Comments  bool // lines of comment stand in it
	// Keyring holds attributes, in which ${login} and ${home-hash} stand for
	// what the file, or the directory, says.
	Keyring map[string]string
	Login   Path
	// Command prints the token, in place of all that.
	Command []string
}

// A Path leads to a value in a document.
type Path []string

// Document says what of a tool's document stands where.
type Document struct {
	// At is the object that the paths below begin at. A last "*" is one account
	// of several, whose value is the token itself.
	At Path
	// Is says what values must be for this to be a sign-in of that kind.
	Is []Value
	// Keep is what a session may have beside the tokens.
	Keep            []Path
	Access, Refresh Path
	// Withheld stands where the refresh token would; empty where nothing does.
	Withheld string
	// Expires holds a time in Unit: "ms" or "s" since 1970, or "jwt".
	Expires Path
	Unit    string
	// Renewed is when the tokens were, as RFC 3339.
	Renewed Path
	// Account holds what tells accounts apart, together; with a Claim they are
	// tokens that claim it.
	Account []Path
	Claim   Path
	// Identity is a token that the tool only reads, of which a session gets
	// these claims, signed by nobody.
	Identity Path
	Claims   []string
	// Set is what a stand-in's document says whatever the person's does.
	Set []Value
}

// A Value is one of a document.
type Value struct {
	Path  Path
	Value any
}

// Renewal says how new tokens are had for the refresh token.
type Renewal struct {
	URL    string
	Client string // its client id, where the document has none
	// ClientAt is where the document may have one, ScopesAt where it lists
	// what the request names.
	ClientAt, ScopesAt Path
	// Form says that the request is a form and not JSON.
	Form bool
	// Revoke is the path of the same host that ends a sign-in.
	Revoke string
	// Locks are those of the tool, taken in this order.
	Locks []Lock
}

// A Lock of a tool lies beside its document.
type Lock struct {
	// Directory says that the lock is a directory that is made and touched, and
	// stale when it was not for so many seconds. Else it is a file that stays
	// and is locked with flock.
	Directory bool
	Name      string
	Stale     int
}

// forever is an expiry that no session lives to see: 2286-11-20.
const forever = 9999999999999

// Named are those of the tool of that name.
func Named(tools []Tool, name string) (out []Tool) {
	for _, t := range tools {
		if t.Name == name {
			out = append(out, t)
		}
	}
	return out
}

// Idle says that the token can go nowhere, or is "". mayReach reports whether one
// of some hosts can be reached.
func (t Tool) Idle(mayReach func(hosts []string) bool) string {
	if mayReach(t.Binding.Hosts) {
		return ""
	}
	return fmt.Sprintf("the sign-in of %s (%s) goes to %s only, which the policy does not allow", t.Title, t.Service, strings.Join(t.Binding.Hosts, ", "))
}

// String names the sign-in for people.
func (t Tool) String() string { return t.Title }
