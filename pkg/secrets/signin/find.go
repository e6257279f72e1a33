package signin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/mojoup/mojoup-node/pkg/secrets"
)

// A World is where a person's programs find themselves.
type World struct {
	Home string
	// Lookup answers the person's variables that name directories.
	Lookup func(string) (value string, set bool)
	// Keyring looks an item up, or is nil where there is no keyring.
	Keyring func(ctx context.Context, attributes map[string]string) (v secrets.Value, found bool, err error)
	// Command runs a program of the person's and returns what it prints, or is
	// nil where none may be run. found is false where there is no such program,
	// or it says that it has none.
	Command func(ctx context.Context, argv []string) (v secrets.Value, found bool, err error)
}

// Find returns the sign-in that the tool itself would use in that world. The
// caller wipes it.
func (t Tool) Find(ctx context.Context, w World) (*SignIn, error) {
	var first error
	for _, p := range t.Places {
		s, err := t.inPlace(ctx, w, p)
		if err == nil {
			return s, nil
		}
		// What is there and cannot be used tells more than what is not there.
		if first == nil || KindOf(first) == None && KindOf(err) != None {
			first = err
		}
	}
	if first == nil {
		first = errorf(None, "sign in with "+t.Name, "%s is not signed in here", t.Title)
	}
	return nil, first
}

func (t Tool) inPlace(ctx context.Context, w World, p Place) (*SignIn, error) {
	if len(p.Keyring) > 0 {
		return t.inKeyring(ctx, w, p)
	}
	if len(p.Command) > 0 {
		return t.byCommand(ctx, w, p)
	}
	return t.inFile(filepath.Join(p.dir(w), p.File), p.Comments)
}

// dir is the place's directory in that world.
func (p Place) dir(w World) string {
	for _, name := range p.Variables {
		if w.Lookup == nil {
			break
		}
		v, set := w.Lookup(name)
		if filepath.IsAbs(v) {
			return v
		}
		if set && v == "" && len(p.Variables) > 1 {
			break // it means the default, and not the next variable
		}
	}
	return filepath.Join(w.Home, strings.TrimPrefix(strings.TrimPrefix(p.Default, "~"), "/"))
}

// At is the sign-in in the file at path, which a place has led to before.
func (t Tool) At(path string) (*SignIn, error) {
	return t.inFile(path, slices.ContainsFunc(t.Places, func(p Place) bool { return p.Comments }))
}

// inFile reads the document at path.
func (t Tool) inFile(path string, comments bool) (*SignIn, error) {
	content, real, others, err := t.document(path)
	if err != nil {
		return nil, err
	}
	defer clear(content)
	s, err := t.read(content, comments, path)
	if err != nil {
		return nil, err
	}
	s.Kept, s.Path, s.Named, s.OthersRead = "file "+path, real, path, others
	return s, nil
}

// document is the file that path leads to.
func (t Tool) document(path string) (content []byte, real string, othersRead bool, err error) {
	if real, err = filepath.EvalSymlinks(path); err == nil {
		content, othersRead, err = readDocument(real)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, "", false, errorf(None, "sign in with "+t.Name, "%s is not signed in here: there is no %s", t.Title, path)
	case err != nil:
		return nil, "", false, errorf(Unreadable, "make "+path+" a file of yours that you can read", "the sign-in of %s, %s, cannot be read: %v", t.Title, path, plain(err))
	}
	return content, real, othersRead, nil
}

// read is the sign-in in a document. where names it for people.
func (t Tool) read(content []byte, comments bool, where string) (*SignIn, error) {
	none := func(what string) error {
		return errorf(None, "sign in with "+t.Name, "%s is not signed in here: %s %s", t.Title, where, what)
	}
	if len(strings.TrimSpace(string(content))) == 0 {
		return nil, none("is empty")
	}
	doc, err := parse(content, comments)
	if err != nil {
		return nil, errorf(Malformed, "sign in with "+t.Name+" again", "the sign-in of %s, %s, cannot be understood: %v", t.Title, where, err)
	}
	for _, want := range t.Document.Is {
		if got := at(doc, want.Path); got != nil && got != want.Value {
			return nil, none("holds no sign-in of " + t.Service)
		}
	}
	path, ok := t.Document.oneOf(doc)
	token, there := at(doc, path).(string)
	if !ok || !there {
		return nil, none("holds no sign-in of " + t.Service)
	}
	return t.from(doc, path, token, where)
}

// oneOf is the path of the access token; of several accounts, of the one that
// was used last, or of the only one.
func (d Document) oneOf(doc map[string]any) (Path, bool) {
	last := len(d.At) - 1
	if last < 0 || d.At[last] != "*" {
		return d.Access, true
	}
	accounts, _ := at(doc, d.At[:last]).(map[string]any)
	if last == 0 {
		accounts = doc
	}
	name := lastUsed(doc)
	if _, there := accounts[name]; !there {
		if len(accounts) != 1 {
			return nil, false
		}
		name = slices.Collect(maps.Keys(accounts))[0]
	}
	return append(slices.Clone(d.At[:last]), name), true
}

// lastUsed is how Copilot calls the account that was used last.
func lastUsed(doc map[string]any) string {
	return text(doc, Path{"lastLoggedInUser", "host"}) + ":" + text(doc, Path{"lastLoggedInUser", "login"})
}

// from makes the sign-in of what a document holds.
func (t Tool) from(doc map[string]any, path Path, token, where string) (*SignIn, error) {
	if token == "" {
		// What Claude Code leaves behind of a sign-in that its service refused.
		return nil, errorf(Ended, "sign in with "+t.Name+" again", "%s was signed out: the token in %s is empty", t.Title, where)
	}
	d := t.Document
	s := &SignIn{Tool: t, access: secrets.NewValue([]byte(token)), kept: map[string]any{}}
	if err := secrets.CheckShape(s.access); err != nil {
		s.Wipe()
		return nil, errorf(Malformed, "sign in with "+t.Name+" again", "the sign-in of %s in %s cannot be used: %v", t.Title, where, err)
	}
	if refresh := text(doc, d.Refresh); refresh != "" && t.Renewal != nil {
		s.refresh, s.Renews = secrets.NewValue([]byte(refresh)), true
	}
	s.Expires = d.expiry(doc)
	identity := claims(text(doc, d.Identity))
	s.ID = d.account(doc)
	if len(d.At) > 0 && d.At[len(d.At)-1] == "*" {
		s.ID = path[len(path)-1]
	}
	if s.Account = printable(text(identity, Path{"email"})); s.Account == "" {
		s.Account = printable(s.ID)
	}
	for _, p := range d.Keep {
		if v := at(doc, p); v != nil {
			s.kept[p.key()] = v
		}
	}
	s.identity = standInIdentity(d.Claims, identity)
	return s, nil
}

func (p Path) key() string { return strings.Join(p, "\x00") }

// expiry is when the access token expires, or zero.
func (d Document) expiry(doc map[string]any) time.Time {
	switch d.Unit {
	case "jwt":
		return claimed(text(doc, d.Expires))
	case "s":
		return since1970(at(doc, d.Expires), 1000)
	}
	return since1970(at(doc, d.Expires), 1)
}

// account tells accounts apart.
func (d Document) account(doc map[string]any) string {
	var parts []string
	for _, p := range d.Account {
		v := text(doc, p)
		if len(d.Claim) > 0 {
			v = text(claims(v), d.Claim)
		}
		if v != "" {
			parts = append(parts, v)
		}
	}
	return strings.Join(parts, " ")
}

func printable(s string) string {
	if len(s) > 100 {
		s = s[:100]
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return -1
		}
		return r
	}, s)
}

// inKeyring asks the keyring.
func (t Tool) inKeyring(ctx context.Context, w World, p Place) (*SignIn, error) {
	none := errorf(None, "sign in with "+t.Name, "%s is not signed in here", t.Title)
	attributes, login, ok := t.attributes(w, p)
	if w.Keyring == nil || !ok {
		return nil, none
	}
	v, found, err := w.Keyring(ctx, attributes)
	if err != nil {
		return nil, errorf(Locked, secrets.HintOf(err), "the sign-in of %s may be in the keyring, and %v", t.Title, err)
	}
	if !found {
		return nil, none
	}
	content := v.RevealForTheWire()
	defer clear(content)
	v.Wipe()
	var s *SignIn
	if strings.HasPrefix(strings.TrimSpace(string(content)), "{") {
		s, err = t.read(content, false, "the keyring's item")
	} else {
		s, err = t.from(map[string]any{}, Path{login}, string(content), "the keyring")
	}
	if err != nil {
		return nil, err
	}
	s.Kept = "keyring"
	if login != "" {
		s.ID, s.Account = login, printable(login)
	}
	// What took a refresh token's place would have to go back into the keyring,
	// which nobody here does.
	s.refresh.Wipe()
	s.refresh, s.Renews = secrets.Value{}, false
	return s, nil
}

// byCommand has a program say the token.
func (t Tool) byCommand(ctx context.Context, w World, p Place) (*SignIn, error) {
	name := strings.Join(p.Command, " ")
	none := errorf(None, "sign in with "+t.Name, "%s is not signed in here: `%s` gives no token", t.Title, name)
	if w.Command == nil {
		return nil, none
	}
	v, found, err := w.Command(ctx, p.Command)
	if err != nil {
		return nil, errorf(Unreadable, secrets.HintOf(err), "the sign-in of %s cannot be had from `%s`: %v", t.Title, name, err)
	}
	if !found {
		return nil, none
	}
	content := v.RevealForTheWire()
	defer clear(content)
	v.Wipe()
	// Nothing but the token is known: no account, no expiry.
	s, err := t.from(map[string]any{}, Path{""}, string(content), "the output of `"+name+"`")
	if err != nil {
		return nil, err
	}
	s.Kept, s.Printed = "command "+name, true
	return s, nil
}

func (t Tool) attributes(w World, p Place) (out map[string]string, login string, ok bool) {
	dir := p.dir(w)
	if len(p.Login) > 0 {
		content, _, _, err := t.document(filepath.Join(dir, p.File))
		if err != nil {
			return nil, "", false
		}
		defer clear(content)
		doc, err := parse(content, p.Comments)
		if login = text(doc, p.Login); err != nil || login == "" {
			return nil, "", false
		}
	}
	sum := ""
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		b := sha256.Sum256([]byte(real))
		sum = hex.EncodeToString(b[:])[:16]
	}
	out = map[string]string{}
	for name, value := range p.Keyring {
		if strings.Contains(value, "${home-hash}") && sum == "" {
			return nil, "", false // without its directory the tool was never there
		}
		out[name] = strings.NewReplacer("${login}", login, "${home-hash}", sum).Replace(value)
	}
	return out, login, true
}

// plain is the innermost error: the place is named already.
func plain(err error) string {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err.Error()
	}
	return err.Error()
}

// Check refuses a sign-in whose access token has expired.
func (s *SignIn) Check(now time.Time) error {
	if s.Left(now) > 0 {
		return nil
	}
	if s.Renews {
		return errorf(Expired, "start "+s.Tool.Name+" once outside of a session, which renews it", "the sign-in of %s expired %s", s.Tool.Title, s.Expires.UTC().Format(time.DateTime+" UTC"))
	}
	return errorf(Expired, "sign in with "+s.Tool.Name+" again", "the sign-in of %s expired %s and cannot be renewed", s.Tool.Title, s.Expires.UTC().Format(time.DateTime+" UTC"))
}

// String names the sign-in and no token.
func (s *SignIn) String() string { return fmt.Sprintf("%s in %s", s.Tool.Title, s.Kept) }
