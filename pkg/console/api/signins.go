package api

import "time"

// SignInPlaces says where a person's tools keep their sign-ins: only the
// caller knows their variables.
type SignInPlaces struct {
	// Variables are those that name directories, KEY=VALUE. One that is set to
	// nothing is among them.
	Variables []string `json:"variables,omitempty"`
}

// SignInsRequest is the body of POST /v1/signins, which asks what was found.
type SignInsRequest struct {
	Env     []string     `json:"env"` // as in RunRequest; HOME counts
	SignIns SignInPlaces `json:"signIns,omitzero"`
}

// SignIns answers POST /v1/signins.
type SignIns struct {
	// SignIns has one for each tool and further ones that were found, by tool;
	// never null.
	SignIns []SignIn `json:"signIns"`
}

// SignInProfile is the state of a tool whose profile cannot be used, so that it is
// not known whether there is a sign-in.
const SignInProfile = "profile"

// SignIn is what a node found of one tool's sign-in, without its tokens.
type SignIn struct {
	Tool    string `json:"tool"`
	Service string `json:"service"` // whose tokens they are, as in "ChatGPT"
	// State is "found", or why there is none to use: none, unreadable,
	// malformed, ended, expired, locked, unsure, refused, profile.
	State string `json:"state"`
	// Kept says where it was found, as in "file /home/me/.codex/auth.json".
	Kept    string    `json:"kept,omitempty"`
	Account string    `json:"account,omitempty"`
	Expires time.Time `json:"expires,omitzero"` // the access token
	// Renews says that it is renewed before it expires.
	Renews bool `json:"renews"`
	// Mode is how a session gets it: standin, lease, hold, copy, off.
	Mode string `json:"mode"`
	// RealInside says that in this mode a real access token is inside.
	RealInside bool `json:"realInside"`
	// Hosts are those that its access token goes to, and no other; as in a
	// secret's binding.
	Hosts []string `json:"hosts"`
	// Sentence says why it cannot be used, or what should be known of it, and
	// Hint what to do.
	Sentence string `json:"sentence,omitempty"`
	Hint     string `json:"hint,omitempty"`
}
