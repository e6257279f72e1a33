package signin

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"
)

// A Staged is what of a sign-in goes into a session.
type Staged struct {
	// Variable and Value, where the tool takes it from its environment.
	Variable, Value string
	// Target is the file, below the home, and Document what stands in it.
	Target   string
	Document map[string]any
}

// Content is the document as a file.
func (s Staged) Content() []byte {
	b, err := json.MarshalIndent(s.Document, "", "  ")
	if err != nil {
		return nil // values of JSON can be written
	}
	return append(b, '\n')
}

// Merged joins what goes into the same file: several sign-ins of one tool.
func Merged(all []Staged) (out []Staged) {
	for _, s := range all {
		i := slices.IndexFunc(out, func(o Staged) bool { return o.Target == s.Target && s.Target != "" })
		if i < 0 {
			s.Document = maps.Clone(s.Document)
			out = append(out, s)
			continue
		}
		maps.Copy(out[i].Document, s.Document)
	}
	return out
}

// Held stands for the refresh token in a session that may ask for new tokens.
const Held = "node-managed"

// Stage makes what a session gets in that mode. standIn takes the token's
// place where the mode is [StandIn], and is empty otherwise. A refresh token is
// never in it.
func (s *SignIn) Stage(m Mode, standIn string) (Staged, error) {
	token := standIn
	if m.RealInside() {
		token = string(s.access.RevealForTheWire())
	}
	if token == "" {
		return Staged{}, errorf(Malformed, "", "BUG: nothing of the sign-in of %s to give in mode %s", s.Tool.Title, m)
	}
	if s.Tool.Variable != "" {
		return Staged{Variable: s.Tool.Variable, Value: token}, nil
	}
	d, doc := s.Tool.Document, map[string]any{}
	for _, v := range d.Is {
		put(doc, v.Path, v.Value)
	}
	for _, p := range d.Keep {
		if v, ok := s.kept[p.key()]; ok {
			put(doc, p, v)
		}
	}
	switch {
	case len(d.Refresh) == 0:
	case m == Hold && s.Renews:
		put(doc, d.Refresh, Held)
	case d.Withheld != "":
		put(doc, d.Refresh, d.Withheld)
	}
	if v := s.expiry(m); v != nil && d.Unit != "jwt" {
		put(doc, d.Expires, v)
	}
	if len(d.Identity) > 0 {
		put(doc, d.Identity, s.identity)
	}
	if m == StandIn {
		for _, v := range d.Set {
			put(doc, v.Path, v.Value)
		}
	}
	put(doc, d.Access, token)
	return Staged{Target: s.Tool.Target, Document: doc}, nil
}

// expiry is what the document says of it, or nil where it says nothing.
func (s *SignIn) expiry(m Mode) any {
	d := s.Tool.Document
	switch {
	case len(d.Expires) == 0:
		return nil
	case m == StandIn || s.Expires.IsZero():
		if d.Unit == "s" {
			return int64(forever / 1000)
		}
		return int64(forever)
	case d.Unit == "s":
		return s.Expires.Unix()
	}
	return s.Expires.UnixMilli()
}

// standInIdentity is a token that says whose account it is and proves nothing:
// it is signed by nobody. A tool reads it and shows what it says.
func standInIdentity(keep []string, identity map[string]any) string {
	said := map[string]any{}
	for _, name := range keep {
		if v, ok := identity[name]; ok {
			said[name] = v
		}
	}
	said["exp"] = forever / 1000
	body, err := json.Marshal(said)
	if err != nil {
		body = []byte("{}")
	}
	enc := base64.RawURLEncoding
	return enc.EncodeToString([]byte(`{"alg":"none","typ":"JWT"}`)) + "." + enc.EncodeToString(body) + "." + enc.EncodeToString([]byte("unsigned"))
}

// Granted is how the service that makes tokens would say what the host has to a
// session in mode [Hold], whose refresh token stands for one that is not inside.
func (s *SignIn) Granted(now time.Time) map[string]any {
	out := map[string]any{
		"access_token": string(s.access.RevealForTheWire()), "refresh_token": Held, "token_type": "Bearer",
		"expires_in": int64(min(s.Left(now), 30*24*time.Hour).Seconds()),
	}
	if len(s.Tool.Document.Identity) > 0 {
		out["id_token"] = s.identity
	}
	if r := s.Tool.Renewal; r != nil && len(r.ScopesAt) > 0 {
		var scopes []string
		list, _ := s.kept[r.ScopesAt.key()].([]any)
		for _, v := range list {
			if scope, ok := v.(string); ok {
				scopes = append(scopes, scope)
			}
		}
		out["scope"] = strings.Join(scopes, " ")
	}
	return out
}
