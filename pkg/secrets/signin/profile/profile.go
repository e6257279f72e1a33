package profile

import (
	"github.com/mojoup/mojoup-node/pkg/secrets"
)

// Version is the only one of the format that there has been.
const Version = 1

// A Profile is all that is known of one tool.
type Profile struct {
	Version int `toml:"version"`
	// Name is what --tool and settings call it: a-z, 0-9 and '-'.
	Name string `toml:"name"`
	// Title is what people call it.
	Title   string  `toml:"title"`
	Program Program `toml:"program"`
	Env     Env     `toml:"env"`
	Network Network `toml:"network"`
	// Choose says how many of the keys that there are a session gets: "first"
	// of them, or "each".
	Choose string `toml:"choose"`
	Keys   []Key  `toml:"key"`
	Files  []File `toml:"file"`
	// Never are the tool's own files and directories that no session gets, by
	// pattern below the person's home. Nothing is copied that is not named;
	// this list is what [Parse] holds the rest of a profile to.
	Never  []string `toml:"never"`
	SignIn *SignIn  `toml:"signin"`

	// Source is the file that the profile stands in, empty for a built-in one.
	Source string `toml:"-"`
}

// Program is how a tool is found and started.
type Program struct {
	// Name is looked for on PATH.
	Name string `toml:"name"`
	// Package is its package in npm, for the sentence that says how to get it.
	Package string `toml:"package"`
	// Headless are the arguments for one prompt without a person: ${prompt}
	// stands for that. An argument that is ${bypass} alone stands for Bypass.
	Headless []string `toml:"headless"`
	// Bypass are the arguments that switch the tool's own questions off. They
	// are added to a headless start only, and only where a sandbox holds.
	Bypass []string `toml:"bypass"`
}

// Env is what a tool's environment must be.
type Env struct {
	// Set are variables; ${home} and ${dir} stand for the session's.
	Set map[string]string `toml:"set"`
	// Clear are names of variables that would lead the tool elsewhere, a final
	// '*' for all that begin so. Only a person's own --env may set one.
	Clear []string `toml:"clear"`
}

// Network is what a tool must reach whatever key or sign-in it has.
type Network struct {
	// Preset is the policy preset that holds its hosts, if one does.
	Preset string `toml:"preset"`
	// Hosts are patterns as in a policy; port 443.
	Hosts []string `toml:"hosts"`
}

// A Key is one API key that a tool takes in a variable.
type Key struct {
	// Name is the variable inside, and the name of the secret that is taken
	// for it where the person has set one.
	Name string `toml:"name"`
	// From are the person's own variables that the tool would take the key
	// from, first one first; none means Name alone.
	From []string `toml:"from"`
	// Fallback are variables that the tool itself does not look at. They are
	// taken where there is neither another key nor a sign-in.
	Fallback []string `toml:"fallback"`
	// Bound binds a key that comes from a variable. A secret of the person's
	// brings its own binding.
	Bound
	// Prefixes are the beginnings that the tool takes, and that a stand-in
	// therefore keeps; none means that it does not look.
	Prefixes []string `toml:"prefixes"`
}

// Sources are the variables of the person's own that may hold the key.
func (k Key) Sources() []string {
	if len(k.From) == 0 {
		return []string{k.Name}
	}
	return k.From
}

// Bound is where something secret may go, as in [secrets.Binding].
type Bound struct {
	Hosts   []string `toml:"hosts"`
	Headers []string `toml:"headers"`
	Paths   []string `toml:"paths"`
}

// Binding is the same for who keeps to it.
func (b Bound) Binding() secrets.Binding {
	return secrets.Binding{Hosts: b.Hosts, Headers: b.Headers, Paths: b.Paths}
}

// A File is made up in the session's home, for it alone, mode 0600: the tool
// may change and replace it.
type File struct {
	// Path is relative to the session's home.
	Path string `toml:"path"`
	// Text is its content. ${home}, ${dir}, ${key:NAME} (a stand-in) and
	// ${tail:NAME} (its last 20 characters) stand for values, written as within
	// a JSON or TOML string.
	Text string `toml:"text"`
	// Key makes the file only where the session has that key, Without only
	// where it has not.
	Key     string `toml:"key"`
	Without string `toml:"without"`
}

// A Mode is how a session gets a person's sign-in.
type Mode string

// The modes, the strongest first.
const (
	// StandIn puts no token inside: a stand-in is swapped on the way out.
	StandIn Mode = "standin"
	// Lease puts the access token inside, and a new one before it expires.
	Lease Mode = "lease"
	// Hold is Lease, and the tool may ask for a new one itself: its node
	// answers.
	Hold Mode = "hold"
	// Copy puts the access token inside as it is at the start, once.
	Copy Mode = "copy"
	// Off puts nothing inside.
	Off Mode = "off"
)

// RealInside reports whether a session in that mode holds a real access token.
func (m Mode) RealInside() bool { return m == Lease || m == Hold || m == Copy }

// SignIn is where a tool keeps a person's sign-in and what a session may have
// of it.
type SignIn struct {
	// Default is the strongest mode that was proven with the real tool.
	Default Mode `toml:"default"`
	// Modes are those that work at all; Off always does.
	Modes []Mode `toml:"modes"`
	// Inside is the file below the session's home that the tool reads.
	Inside string `toml:"inside"`
	// Places are where the tool looks, first one first.
	Places []Place `toml:"place"`
	Logins []Login `toml:"login"`
	// Endpoints are the token services. A session that asks one is answered
	// that it is not available, so that it can neither renew nor end a sign-in.
	Endpoints []Endpoint `toml:"endpoint"`
	// Locks are those that the tool takes beside its file to renew, in its
	// order.
	Locks []Lock `toml:"lock"`
}

// The kinds of locks.
const (
	LockDirectory = "directory" // made and touched
	LockFile      = "file"      // stays, and is locked with flock
)

// A Lock lies in the directory of the sign-in's file.
type Lock struct {
	Kind string `toml:"kind"`
	Name string `toml:"name"`
	// Stale is for how many seconds a directory was not touched that nobody
	// holds any more.
	Stale int `toml:"stale"`
}

// A Place is one file, one item of a keyring, or one command.
type Place struct {
	// Vars name the directory, first one that is set and not empty; Default is
	// used where none is, with ~ for the home. File lies below it.
	Vars    []string `toml:"vars"`
	Default string   `toml:"default"`
	File    string   `toml:"file"`
	// Comments says that the JSON may hold comments.
	Comments bool `toml:"comments"`
	// Keyring are attributes of an item of the Secret Service. In a value,
	// ${login} stands for the account and ${home-hash} for the first 16 digits
	// of the SHA-256 of the directory that Vars and Default name.
	Keyring map[string]string `toml:"keyring"`
	// Login are the keys that lead to the account's name in File, where that is
	// what the keyring is asked for.
	Login []string `toml:"login"`
	// Command is a program of the person's, by its name on PATH or an absolute
	// path, and its arguments: it prints the token of the first login. It is run
	// outside, as the person, and only where no other place holds a login.
	Command []string `toml:"command"`
}

// A Login is one sign-in in the JSON of a place. Names of fields are paths with
// dots, below At.
type Login struct {
	// Name is the service, for people.
	Name string `toml:"name"`
	// At are the keys that lead to the login's object, none for the whole
	// document. A last "*" means every key there: accounts by their names, each
	// with the token itself as value where Access is empty.
	At []string `toml:"at"`
	// Is are fields with the value that makes the object this kind of login.
	Is map[string]string `toml:"is"`
	// Keep are the only fields that may be copied, whatever the mode.
	Keep []string `toml:"keep"`
	// Access and Refresh are the two tokens; an empty Refresh means that the
	// access token is never renewed.
	Access  string `toml:"access"`
	Refresh string `toml:"refresh"`
	// Env is the variable that takes the access token inside, in place of the
	// file.
	Env string `toml:"env"`
	// Drop are fields that go with the refresh token: they are left out where it
	// is withheld.
	Drop []string `toml:"drop"`
	// Withheld stands in place of the refresh token in a lease; empty means
	// that the field is left out.
	Withheld string `toml:"withheld"`
	// Expires is the field with the time, ExpiresAs how it is written: "ms" and
	// "s" since 1970, "jwt" (the field is a token that says it).
	Expires   string `toml:"expires"`
	ExpiresAs string `toml:"expires-as"`
	// Margin is how many seconds before the expiry the tool itself renews. The
	// node does so earlier.
	Margin int `toml:"margin"`
	// Renewed is the field with the time at which the tokens were renewed, as
	// RFC 3339.
	Renewed string `toml:"renewed"`
	// Account are fields that together name the account; with a ClaimPath they
	// are tokens (JWT) and the path leads to the name in their claims.
	Account   []string `toml:"account"`
	ClaimPath []string `toml:"claim-path"`
	// Token is a field with a token (JWT) that the tool only reads. In a
	// stand-in it is one without a signature that keeps Claims alone.
	Token  string   `toml:"token"`
	Claims []string `toml:"claims"`
	// Set are fields that a stand-in has whatever the person's file says, such
	// as an expiry that keeps the tool from renewing.
	Set map[string]any `toml:"set"`
	// Bound is where the access token goes.
	Bound
}

// An Endpoint is a token service.
type Endpoint struct {
	Host string `toml:"host"`
	// Token is the path where a refresh token is spent, Revoke where a sign-in
	// is ended.
	Token  string `toml:"token"`
	Revoke string `toml:"revoke"`
	// Client is the id by which the tool names itself there, Body how it asks:
	// "json" or "form".
	Client string `toml:"client"`
	Body   string `toml:"body"`
	// ClientField is the field of the login that holds another such id, and
	// ScopesField the one whose list the request repeats, where there are any.
	ClientField string `toml:"client-field"`
	ScopesField string `toml:"scopes-field"`
}
