package signin

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mojoup/mojoup-node/pkg/secrets"
)

// maxAnswer bounds what a service that makes tokens may say.
const maxAnswer = 64 << 10

// lifeUnsaid is for how long an access token is taken to hold whose service does
// not say it, and lifeMost the longest that is believed.
const (
	lifeUnsaid = time.Hour
	lifeMost   = 10 * 365 * 24 * time.Hour
)

// An answer is what a service that makes tokens says, as far as it can be used.
type answer struct {
	access, refresh, identity string
	life                      time.Duration // of the access token; zero where it is not said
	whose                     []string      // account and organisation
	odd                       []string      // what is not as it should be
}

// answered reads an answer. By the time that there is one the old refresh token is
// spent, so whatever else is odd about it, the new one is what counts.
func answered(said []byte) (a answer, err error) {
	if len(said) > maxAnswer {
		return a, errors.New("it is too long")
	}
	d := json.NewDecoder(bytes.NewReader(bytes.TrimPrefix(said, []byte("\xef\xbb\xbf"))))
	d.UseNumber()
	var o map[string]any
	if err := d.Decode(&o); err != nil || o == nil {
		return a, errNotObject
	}
	word := func(name string) string {
		s, ok := o[name].(string)
		if !ok && o[name] != nil {
			a.odd = append(a.odd, "its "+name+" is no text")
		}
		return s
	}
	a.access, a.refresh, a.identity = word("access_token"), word("refresh_token"), word("id_token")
	a.life = lasting(o["expires_in"])
	for _, name := range []string{"account", "organization"} {
		if uuid := text(o, Path{name, "uuid"}); uuid != "" {
			a.whose = append(a.whose, uuid)
		}
	}
	return a, nil
}

// lasting is a number of seconds however it is written, or zero where it is none
// that can be.
func lasting(v any) time.Duration {
	s, err := strconv.ParseFloat(strings.TrimSpace(fmt.Sprint(v)), 64)
	if err != nil || !(s >= 1 && s <= lifeMost.Seconds()) {
		return 0
	}
	return time.Duration(s) * time.Second
}

// merged is the person's document with the tokens of an answer in it, and not a
// byte changed elsewhere. odd is what of the answer was not as it should be.
func (t Tool) merged(doc, said []byte, now time.Time) (out []byte, after *SignIn, odd []string, err error) {
	before, err := t.read(doc, false, "the document")
	if err != nil {
		return nil, nil, nil, err
	}
	defer before.Wipe()
	changes, odd, err := t.taken(doc, said, before, now)
	if err != nil {
		return nil, nil, nil, err
	}
	out, after, err = t.with(doc, changes)
	return out, after, odd, err
}

// taken are the changes that an answer makes to the document that it was asked for.
// It comes for a refresh token that is spent, so the new one in it is taken
// whatever else is odd, and what cannot be used leaves the old value in its place.
// Nothing is taken of an answer that has no new token, or is another account's for
// certain.
func (t Tool) taken(doc, said []byte, before *SignIn, now time.Time) ([]change, []string, error) {
	refuse := func(why string) error {
		return errorf(Refused, "sign in with "+t.Name+" again", "the answer of the service that renews the sign-in of %s cannot be used: %s", t.Title, why)
	}
	a, err := answered(said)
	if err != nil {
		return nil, nil, refuse(err.Error())
	}
	if t.foreign(a, before) {
		return nil, nil, refuse("it is for another account")
	}
	changes, odd := t.changes(a, before, now)
	if len(changes) == 0 {
		return nil, nil, refuse("it holds no token that can be used")
	}
	_, after, err := t.with(doc, changes)
	if err != nil {
		return nil, nil, refuse(plain(err))
	}
	defer after.Wipe()
	if others(after.ID, before.ID) {
		return nil, nil, refuse("it is for another account")
	}
	if !slices.Contains(odd, noAccess) && after.Left(now) <= 0 {
		odd = append(odd, "its access token has expired already by the clock of this machine, which may be wrong")
	}
	return changes, odd, nil
}

// foreign reports whether an answer names another account than the document.
func (t Tool) foreign(a answer, before *SignIn) bool {
	whose := strings.Fields(before.ID)
	return len(t.Document.Claim) == 0 && len(whose) == 2 && slices.ContainsFunc(a.whose, func(uuid string) bool { return !slices.Contains(whose, uuid) })
}

// others reports whether an account is named that the old name does not have. Who
// was not named before may be anybody.
func others(is, was string) bool {
	whose := strings.Fields(was)
	return len(whose) > 0 && slices.ContainsFunc(strings.Fields(is), func(part string) bool { return !slices.Contains(whose, part) })
}

// changes are the values of the document that an answer renews.
func (t Tool) changes(a answer, before *SignIn, now time.Time) (out []change, odd []string) {
	d, odd := t.Document, a.odd
	if a.refresh != "" { // a service that does not rotate sends no other
		out = append(out, change{d.Refresh, a.refresh})
	}
	token := secrets.NewValue([]byte(a.access))
	defer token.Wipe()
	if err := secrets.CheckShape(token); err != nil {
		return out, append(odd, noAccess)
	}
	out = append(out, change{d.Access, a.access})
	old := before.access.Equal(token)
	if old {
		odd = append(odd, "its access token is the old one")
	}
	switch {
	case a.identity == "" || len(d.Identity) == 0:
	case len(d.Claim) > 0 && text(claims(a.identity), d.Claim) == "":
		odd = append(odd, "its id_token does not say whose it is")
	default:
		out = append(out, change{d.Identity, a.identity})
	}
	if d.Unit == "ms" || d.Unit == "s" {
		if a.life == 0 {
			odd = append(odd, "it does not say for how long its token holds")
		}
		if a.life > 0 || !old {
			out = append(out, change{d.Expires, d.moment(now.Round(0).Add(cmp.Or(a.life, lifeUnsaid)))})
		}
	}
	if len(d.Renewed) > 0 {
		out = append(out, change{d.Renewed, now.UTC().Format(time.RFC3339Nano)})
	}
	return out, odd
}

// noAccess is said of an answer whose access token cannot be used.
const noAccess = "it holds no access token that can be used"

// moment is a time as the document writes it.
func (d Document) moment(at time.Time) int64 {
	if d.Unit == "s" {
		return at.Unix()
	}
	return at.UnixMilli()
}

// with is a document with some values changed, and the sign-in in it. A document
// that has no place for anything but a token goes without it.
func (t Tool) with(doc []byte, changes []change) ([]byte, *SignIn, error) {
	for _, c := range changes {
		out, err := replaced(doc, []change{c})
		token := slices.Equal(c.path, t.Document.Access) || slices.Equal(c.path, t.Document.Refresh)
		switch {
		case err == nil:
			doc = out
		case token || !errors.Is(err, errNoPlace):
			return nil, nil, err
		}
	}
	after, err := t.read(doc, false, "the document")
	return doc, after, err
}

// carried are the changes that make of a document with the sign-in s one with the
// tokens of next, where those are newer ones of the same account.
func (t Tool) carried(next []byte, s *SignIn) (out []change) {
	after, err := t.read(next, false, "the document")
	if err != nil {
		return nil
	}
	defer after.Wipe()
	doc, err := parse(next, false)
	if err != nil || !after.Renews || others(after.ID, s.ID) || after.access.Equal(s.access) && after.refresh.Equal(s.refresh) {
		return nil
	}
	d := t.Document
	for _, p := range []Path{d.Access, d.Refresh, d.Expires, d.Identity, d.Renewed} {
		if v := at(doc, p); v != nil {
			out = append(out, change{p, v})
		}
	}
	return out
}
