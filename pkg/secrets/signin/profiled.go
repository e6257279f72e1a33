package signin

import (
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/mojoup/mojoup-node/pkg/secrets/signin/profile"
)

// Builtin are the sign-ins of the tools that ship with the program.
func Builtin() []Tool { return FromProfiles(profile.Builtin()) }

// FromProfiles are the sign-ins that profiles know of.
func FromProfiles(all []*profile.Profile) (out []Tool) {
	for _, p := range all {
		out = append(out, FromProfile(p)...)
	}
	return out
}

// FromProfile are the sign-ins that one profile knows of, in its order.
func FromProfile(p *profile.Profile) (out []Tool) {
	if p.SignIn == nil {
		return nil
	}
	s := p.SignIn
	var spare []Tool
	for i, l := range s.Logins {
		t := Tool{
			Name: p.Name, Service: l.Name, Title: p.Title, Default: s.Default, Variable: l.Env, Target: s.Inside,
			Document: documentOf(l), Binding: l.Binding(), Margin: time.Duration(l.Margin) * time.Second,
		}
		for _, m := range s.Modes {
			// What is in a variable is read once: a lease of it could not be renewed.
			if l.Env == "" || m == profile.StandIn || m == profile.Copy {
				t.Modes = append(t.Modes, m)
			}
		}
		for _, place := range s.Places {
			if len(place.Command) > 0 {
				continue
			}
			t.Places = append(t.Places, Place{
				Variables: place.Vars, Default: place.Default, File: place.File, Comments: place.Comments, Keyring: place.Keyring, Login: place.Login,
			})
		}
		if l.Refresh != "" && len(s.Endpoints) > 0 {
			t.Renewal = renewalOf(s, l)
		}
		out = append(out, t)
		if i == 0 {
			spare = byCommand(t, s.Places)
		}
	}
	return append(out, spare...)
}

// byCommand are the sign-ins of the first login that commands print. They are
// renewed by whoever prints them.
func byCommand(t Tool, places []profile.Place) (out []Tool) {
	t.Spare, t.Renewal, t.Places = true, nil, nil
	t.Modes = slices.DeleteFunc(slices.Clone(t.Modes), func(m Mode) bool { return m == Lease || m == Hold })
	for _, p := range places {
		if len(p.Command) > 0 {
			t.Places = append(t.Places, Place{Command: p.Command})
		}
	}
	if len(t.Places) == 0 {
		return nil
	}
	return []Tool{t}
}

// within is the path of a field of a login.
func within(l profile.Login, field string) Path {
	if field == "" {
		return nil
	}
	return append(slices.Clone(Path(l.At)), strings.Split(field, ".")...)
}

func documentOf(l profile.Login) Document {
	d := Document{
		At: Path(l.At), Access: within(l, l.Access), Refresh: within(l, l.Refresh), Withheld: l.Withheld, Expires: within(l, l.Expires), Unit: l.ExpiresAs,
		Renewed: within(l, l.Renewed), Claim: Path(l.ClaimPath), Identity: within(l, l.Token), Claims: l.Claims,
	}
	if l.Access == "" {
		d.Access = Path(l.At)
	}
	for _, name := range slices.Sorted(maps.Keys(l.Is)) {
		d.Is = append(d.Is, Value{within(l, name), l.Is[name]})
	}
	// Fields that are written as what they mean are not merely kept.
	meant := append([]string{l.Access, l.Refresh, l.Expires, l.Token}, l.Drop...)
	for _, name := range l.Keep {
		if _, is := l.Is[name]; !is && !slices.Contains(meant, name) {
			d.Keep = append(d.Keep, within(l, name))
		}
	}
	for _, name := range l.Account {
		d.Account = append(d.Account, within(l, name))
	}
	for _, name := range slices.Sorted(maps.Keys(l.Set)) {
		d.Set = append(d.Set, Value{within(l, name), l.Set[name]})
	}
	return d
}

func renewalOf(s *profile.SignIn, l profile.Login) *Renewal {
	e := s.Endpoints[0]
	r := &Renewal{
		URL: "https://" + e.Host + e.Token, Client: e.Client, ClientAt: within(l, e.ClientField), ScopesAt: within(l, e.ScopesField),
		Form: e.Body == "form", Revoke: e.Revoke,
	}
	for _, lock := range s.Locks {
		r.Locks = append(r.Locks, Lock{Directory: lock.Kind == profile.LockDirectory, Name: path.Base(lock.Name), Stale: lock.Stale})
	}
	return r
}
