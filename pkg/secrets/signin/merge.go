package signin

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/mojoup/mojoup-node/pkg/secrets"
)

// maxAnswer bounds what a service that makes tokens may say.
const maxAnswer = 64 << 10

// An answer is what a service that makes tokens says.
type answer struct {
	Access  string      `json:"access_token"`
	Refresh string      `json:"refresh_token"`
	ID      string      `json:"id_token"`
	In      json.Number `json:"expires_in"`
	Account struct {
		UUID string `json:"uuid"`
	} `json:"account"`
	Organization struct {
		UUID string `json:"uuid"`
	} `json:"organization"`
}

// merged is the person's document with the tokens of an answer in it, and not a
// byte changed elsewhere. It is what stands between a service's answer and the
// file that the person's tool lives by, and takes nothing but new tokens of the
// same account: an answer that is short of one, is another account's, or has
// expired already leaves the document as it is.
func (t Tool) merged(doc, said []byte, now time.Time) ([]byte, *SignIn, error) {
	refuse := func(why string) error {
		return errorf(Refused, "sign in with "+t.Name+" again", "the answer of the service that renews the sign-in of %s cannot be used: %s", t.Title, why)
	}
	if len(said) > maxAnswer {
		return nil, nil, refuse("it is too long")
	}
	before, err := t.read(doc, false, "the document")
	if err != nil {
		return nil, nil, err
	}
	defer before.Wipe()
	if _, err := parse(said, false); err != nil {
		return nil, nil, refuse(err.Error())
	}
	var a answer
	if err := json.Unmarshal(said, &a); err != nil {
		return nil, nil, refuse("its fields are not what they should be")
	}
	changes, why := t.changes(a, before, now)
	if why != "" {
		return nil, nil, refuse(why)
	}
	out, err := replaced(doc, changes)
	if err != nil {
		return nil, nil, refuse(err.Error())
	}
	after, err := t.read(out, false, "the document")
	if err != nil {
		return nil, nil, err
	}
	if why := worse(before, after, now); why != "" {
		after.Wipe()
		return nil, nil, refuse(why)
	}
	return out, after, nil
}

// changes are the values of the document that an answer renews, or why it
// cannot be taken.
func (t Tool) changes(a answer, before *SignIn, now time.Time) (out []change, why string) {
	d := t.Document
	for _, token := range []string{a.Access, a.Refresh} {
		if token == "" {
			continue // a service that does not rotate sends no other
		}
		if err := secrets.CheckShape(secrets.NewValue([]byte(token))); err != nil {
			return nil, err.Error()
		}
	}
	if a.Access == "" {
		return nil, "it holds no access token"
	}
	whose := strings.Fields(before.ID)
	for _, uuid := range []string{a.Account.UUID, a.Organization.UUID} {
		if uuid != "" && len(d.Claim) == 0 && len(whose) == 2 && !slices.Contains(whose, uuid) {
			return nil, "it is for another account"
		}
	}
	out = append(out, change{d.Access, a.Access})
	if a.Refresh != "" {
		out = append(out, change{d.Refresh, a.Refresh})
	}
	if a.ID != "" && len(d.Identity) > 0 {
		out = append(out, change{d.Identity, a.ID})
	}
	if d.Unit == "ms" || d.Unit == "s" {
		in, err := a.In.Int64()
		if err != nil || in <= 0 || in > 10*365*24*3600 {
			return nil, "it does not say for how long its token holds"
		}
		at := now.Round(0).Add(time.Duration(in) * time.Second)
		if d.Unit == "ms" {
			out = append(out, change{d.Expires, at.UnixMilli()})
		} else {
			out = append(out, change{d.Expires, at.Unix()})
		}
	}
	if len(d.Renewed) > 0 {
		out = append(out, change{d.Renewed, now.UTC().Format(time.RFC3339Nano)})
	}
	return out, ""
}

// worse says why what would be written is not the same sign-in, renewed.
func worse(before, after *SignIn, now time.Time) string {
	switch {
	case before.ID != after.ID:
		return "it is for another account"
	case before.Renews && !after.Renews:
		return "it holds no refresh token"
	case before.access.Equal(after.access):
		return "its access token is the old one"
	case after.Left(now) <= 0:
		return "its access token has expired already"
	}
	return ""
}
