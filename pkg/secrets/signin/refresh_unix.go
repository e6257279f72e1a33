//go:build unix

package signin

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// A Refresher renews sign-ins where their tools keep them.
//
// A refresh token is spent by its use, and the service takes a second use of
// one for theft: it ends the sign-in. So one process at a time may spend it,
// whichever node it belongs to, and what it spends and gets is on the disk
// before anybody can act on it:
//
//	lock          flock on a file that only its owner can open; ends with its process
//	room          a file for the new document, written full once
//	tool's locks  so that the tool waits, and does not do the same
//	intent        "this token is being spent", synced
//	ask           one request
//	next          the new document into the file, synced
//	rename        over the tool's own, synced, where that is still what the new
//	              one was made of; else it is made anew of what is there now
//	done          the intent is removed
//
// Whoever finds an intent of a dead process finishes it where the new document
// is there. Where it is not, nobody can know whether the token was spent: it is
// not tried again before the access token has expired, when nothing can be lost
// any more. Only the death of the process itself between the service's answer
// and its line on the disk loses a sign-in, as it would the tool's own; a
// node's death does not, because a process of its own does this.
type Refresher struct {
	Client *http.Client
	Now    func() time.Time
	// Step, if not nil, is told each of the steps above when it is done.
	Step func(string)
	// Odd, if not nil, is told in a sentence what was odd about an answer that has
	// been taken.
	Odd func(string)

	settle   time.Duration // see settleWithin
	patience time.Duration // see lockWithin
}

// askWithin bounds one request.
const askWithin = 30 * time.Second

// Refresh renews the sign-in of a tool in the file at path, if it is due by the
// time that the lock is held: another may have renewed it meanwhile. It returns
// the sign-in as it is then.
func (r *Refresher) Refresh(ctx context.Context, t Tool, path string, due func(*SignIn) bool) (*SignIn, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, errorf(None, "sign in with "+t.Name, "%s is not signed in here: there is no %s", t.Title, path)
	}
	x := &renewing{Refresher: r, tool: t, path: real, dir: filepath.Dir(real)}
	if t.Renewal == nil {
		return nil, errorf(Refused, "", "nobody renews the sign-in of %s", t.Title)
	}
	unlock, err := lockOurs(ctx, x.lockPath(), cmp.Or(r.patience, lockWithin))
	if err != nil {
		return nil, errorf(Unreadable, "", "waiting for the sign-in of %s: %s", t.Title, plain(err))
	}
	defer unlock()
	x.step("lock")
	return x.run(ctx, due)
}

// renewing is one sign-in on its way, with the lock held.
type renewing struct {
	*Refresher
	tool Tool
	path string
	dir  string
}

func (x *renewing) step(name string) {
	if x.Step != nil {
		x.Step(name)
	}
}

func (x *renewing) lockPath() string {
	return filepath.Join(x.dir, ".mojoup-lock-"+filepath.Base(x.path))
}
func (x *renewing) intentPath() string {
	return filepath.Join(x.dir, ".mojoup-renewing-"+filepath.Base(x.path))
}
func (x *renewing) nextPath() string {
	return filepath.Join(x.dir, ".mojoup-next-"+filepath.Base(x.path))
}

// An intent says that a refresh token is being spent. It names it by its hash.
type intent struct {
	Parent string    `json:"parent"`
	Since  time.Time `json:"since"`
}

func hashOf(s *SignIn) string {
	b := s.refresh.RevealForTheWire()
	defer clear(b)
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func (x *renewing) read() (*SignIn, []byte, error) {
	content, _, _, err := x.tool.document(x.path)
	if err != nil {
		return nil, nil, err
	}
	s, err := x.tool.read(content, false, x.path)
	if err != nil {
		return nil, nil, err
	}
	s.Path, s.Kept = x.path, "file "+x.path
	return s, content, nil
}

func (x *renewing) run(ctx context.Context, due func(*SignIn) bool) (*SignIn, error) {
	s, doc, err := x.read()
	if err != nil {
		return nil, err
	}
	if s, doc, err = x.repair(ctx, s, doc); err != nil {
		return nil, err
	}
	if !due(s) {
		return s, nil
	}
	if !s.Renews {
		return s, errorf(Expired, "sign in with "+x.tool.Name+" again", "the sign-in of %s holds no refresh token", x.tool.Title)
	}
	if err := x.unknownFate(s); err != nil {
		return s, err
	}
	if err := x.room(len(doc)); err != nil {
		return s, err
	}
	release, err := lockLikeTheTool(ctx, x.dir, x.tool.Renewal.Locks)
	if err != nil {
		_ = os.Remove(x.nextPath())
		return s, errorf(Refused, "", "%s itself holds its sign-in: %v", x.tool.Title, err)
	}
	defer release()
	// The tool may have renewed it while it held the locks.
	fresh, doc, err := x.read()
	if err != nil {
		_ = os.Remove(x.nextPath())
		return s, err
	}
	if !fresh.access.Equal(s.access) || !due(fresh) {
		_ = os.Remove(x.nextPath())
		return fresh, nil
	}
	return x.spend(ctx, fresh, doc)
}

// repair finishes, or forgets, what a dead process began.
func (x *renewing) repair(ctx context.Context, s *SignIn, doc []byte) (*SignIn, []byte, error) {
	i, err := x.intent()
	if errors.Is(err, fs.ErrNotExist) {
		_ = os.Remove(x.nextPath())
		return s, doc, nil
	}
	if err != nil || i.Parent != hashOf(s) {
		// The tool has another sign-in by now: what was spent is nobody's.
		return s, doc, x.done()
	}
	next, _, err := readDocument(x.nextPath())
	if err != nil {
		return s, doc, nil
	}
	changes := x.tool.carried(next, s)
	if len(changes) == 0 {
		return s, doc, nil
	}
	after, err := x.keep(ctx, s, doc, changes)
	if err != nil {
		return s, doc, err
	}
	after.Wipe()
	return x.read()
}

func (x *renewing) intent() (i intent, err error) {
	b, _, err := readDocument(x.intentPath())
	if err == nil {
		err = json.Unmarshal(b, &i)
	}
	return i, err
}

// unknownFate refuses to spend a token that may have been spent, while there
// is an access token that this could end.
func (x *renewing) unknownFate(s *SignIn) error {
	i, err := x.intent()
	if err != nil || i.Parent != hashOf(s) || s.Left(x.Now()) <= 0 {
		return nil
	}
	return errorf(Unsure, "it is tried again then; or sign in with "+x.tool.Name+" again",
		"whether the sign-in of %s was renewed at %s is not known, so it is left alone until it expires", x.tool.Title, i.Since.Local().Format(time.DateTime))
}

// room makes the file that the new document goes into, before a token is spent
// for it: where there is no room, no right or a second name, nothing is spent.
func (x *renewing) room(size int) error {
	info, err := os.Lstat(x.path)
	if err != nil {
		return x.cannot(err)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || st.Nlink > 1 {
		return x.cannot(errors.New("it has another hard link, which would keep the old one"))
	}
	_ = os.Remove(x.nextPath())
	f, err := os.OpenFile(x.nextPath(), os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return x.cannot(err)
	}
	_, err = f.Write(bytes.Repeat([]byte{' '}, size+maxAnswer))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		_ = os.Remove(x.nextPath())
		return x.cannot(err)
	}
	x.step("room")
	return nil
}

func (x *renewing) cannot(err error) error {
	return errorf(Unreadable, "", "the sign-in of %s, %s, cannot be renewed: %s", x.tool.Title, x.path, plain(err))
}

// spend asks for new tokens, once, and puts them where the tool keeps them.
func (x *renewing) spend(ctx context.Context, s *SignIn, doc []byte) (*SignIn, error) {
	if err := x.write(x.intentPath(), must(json.Marshal(intent{hashOf(s), x.Now().UTC()}))); err != nil {
		return s, errors.Join(x.cannot(err), x.done())
	}
	x.step("intent")
	said, status, sent, err := x.ask(ctx, s, doc)
	switch {
	case err != nil && status/100 == 2 && whole(said): // cut behind its last word
	case err != nil && !sent:
		return s, errors.Join(errorf(Refused, "", "the service that renews the sign-in of %s cannot be reached", x.tool.Title), x.done())
	case err != nil, status >= 500 && status != http.StatusServiceUnavailable:
		return s, errorf(Unsure, "", "whether the sign-in of %s was renewed is not known: the service did not answer", x.tool.Title)
	case status/100 != 2:
		return x.refused(s, status, said)
	}
	x.step("ask")
	changes, odd, err := x.tool.taken(doc, said, s, x.Now())
	if err != nil {
		return s, err // the intent stays: the token was spent
	}
	after, err := x.keep(ctx, s, doc, changes)
	if err != nil {
		return s, err
	}
	switch {
	case slices.Contains(odd, noAccess):
		err = errorf(Refused, "", "the answer of the service that renews the sign-in of %s is not whole: %s; of what it holds the refresh token is kept", x.tool.Title, strings.Join(odd, ", "))
	case len(odd) > 0 && x.Odd != nil:
		x.Odd(fmt.Sprintf("the sign-in of %s was renewed, but the answer of the service is odd: %s", x.tool.Title, strings.Join(odd, ", ")))
	}
	return after, err
}

func whole(said []byte) bool {
	_, err := answered(said)
	return err == nil
}

// tries is how often a new document is made where the tool's own changes in the
// same moment.
const tries = 50

// keep brings what was got for the sign-in s into the tool's own document, as that
// is just before it is replaced: what else was written there meanwhile stays. Who
// signed in anew meanwhile, or out, has the last word.
func (x *renewing) keep(ctx context.Context, s *SignIn, doc []byte, changes []change) (*SignIn, error) {
	for range tries {
		next, after, err := x.tool.with(doc, changes)
		if err != nil {
			return nil, x.cannot(err)
		}
		after.Path, after.Kept = x.path, "file "+x.path
		if err := x.writeNext(next); err != nil {
			after.Wipe()
			return nil, x.cannot(err)
		}
		x.step("next")
		now, fresh, err := x.settled(ctx)
		if err == nil && hashOf(now) == hashOf(s) && bytes.Equal(fresh, doc) {
			if err := x.rename(); err != nil {
				return nil, x.cannot(err)
			}
			x.step("rename")
			return after, x.done()
		}
		after.Wipe()
		switch {
		case gone(err):
			return nil, errors.Join(errorf(Ended, "sign in with "+x.tool.Name+" again",
				"%s was signed out while its sign-in was renewed, and stays so: the new tokens are dropped", x.tool.Title), x.done())
		case err != nil:
			return nil, err // what was got waits beside it
		case hashOf(now) != hashOf(s):
			return now, x.done()
		}
		doc = fresh
	}
	return nil, errorf(Unsure, "it is tried again", "the sign-in of %s was renewed, but %s changes all the time", x.tool.Title, x.path)
}

// gone reports whether an error of reading a sign-in says that there is none.
func gone(err error) bool { return KindOf(err) == None || KindOf(err) == Ended }

// settleWithin is for how long a document may be away, empty or half written while
// its tool replaces it.
const settleWithin = time.Second

// settled reads the sign-in once it is whole again.
func (x *renewing) settled(ctx context.Context) (s *SignIn, doc []byte, err error) {
	for late := time.Now().Add(cmp.Or(x.settle, settleWithin)); ; {
		s, doc, err = x.read()
		if err == nil || KindOf(err) == Ended || time.Now().After(late) {
			return s, doc, err
		}
		_ = pause(context.WithoutCancel(ctx), lockAgain) // what is got must be kept
	}
}

// writeNext writes the new document. One that is there already, and may be all that
// is left of a sign-in, is replaced whole.
func (x *renewing) writeNext(content []byte) error {
	old, _, err := readDocument(x.nextPath())
	if err == nil {
		_, err = parse(old, false)
	}
	switch {
	case err != nil:
		return x.write(x.nextPath(), content)
	case bytes.Equal(old, content):
		return nil
	}
	again := x.nextPath() + ".new"
	if err := os.Remove(again); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := x.write(again, content); err != nil {
		_ = os.Remove(again)
		return err
	}
	return errors.Join(os.Rename(again, x.nextPath()), syncDirectory(x.dir))
}

// refused is the service's no. A token that another has spent meanwhile leaves
// another in the file.
func (x *renewing) refused(s *SignIn, status int, said []byte) (*SignIn, error) {
	if err := x.done(); err != nil {
		return s, err
	}
	if now, _, err := x.read(); err == nil && hashOf(now) != hashOf(s) {
		return now, nil
	}
	if status == http.StatusBadRequest || status == http.StatusUnauthorized {
		if bytes.Contains(said, []byte("invalid_grant")) || bytes.Contains(said, []byte("refresh_token_")) {
			return s, errorf(Ended, "sign in with "+x.tool.Name+" again", "the service has ended the sign-in of %s", x.tool.Title)
		}
	}
	return s, errorf(Refused, "", "the service does not renew the sign-in of %s now: it answers %d", x.tool.Title, status)
}

// ask sends the one request. sent says that the service may have heard it.
func (x *renewing) ask(ctx context.Context, s *SignIn, doc []byte) (said []byte, status int, sent bool, err error) {
	// Once it is sent, its answer must be had: whoever asked may have left.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askWithin)
	defer cancel()
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { sent = true }}
	body, kind := x.body(s, doc)
	defer clear(body)
	req, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, trace), http.MethodPost, x.tool.Renewal.URL, bytes.NewReader(body))
	if err != nil {
		return nil, 0, false, err
	}
	req.GetBody = nil // never sent a second time by itself
	req.Header.Set("Content-Type", kind)
	req.Header.Set("Accept", "application/json")
	client := *x.Client
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	res, err := client.Do(req)
	if err != nil {
		return nil, 0, sent, err
	}
	defer res.Body.Close()
	said, err = io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	return said, res.StatusCode, true, err
}

func (x *renewing) body(s *SignIn, doc []byte) (body []byte, kind string) {
	r := x.tool.Renewal
	fields := map[string]string{"grant_type": "refresh_token", "refresh_token": string(s.refresh.RevealForTheWire()), "client_id": r.Client}
	if whole, err := parse(doc, false); err == nil {
		if id := text(whole, r.ClientAt); id != "" {
			fields["client_id"] = id
		}
		var scopes []string
		list, _ := at(whole, r.ScopesAt).([]any)
		for _, v := range list {
			if scope, ok := v.(string); ok {
				scopes = append(scopes, scope)
			}
		}
		if len(scopes) > 0 {
			fields["scope"] = strings.Join(scopes, " ")
		}
	}
	if !r.Form {
		return must(json.Marshal(fields)), "application/json"
	}
	form := url.Values{}
	for name, v := range fields {
		form.Set(name, v)
	}
	return []byte(form.Encode()), "application/x-www-form-urlencoded"
}

// must is for values that can always be written.
func must(b []byte, err error) []byte {
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return b
}

// write puts content into a file of its own and waits until it is on the disk.
func (x *renewing) write(path string, content []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Truncate(int64(len(content)))
	}
	return errors.Join(err, f.Sync(), f.Close(), syncDirectory(x.dir))
}

func (x *renewing) rename() error {
	if err := os.Rename(x.nextPath(), x.path); err != nil {
		return err
	}
	return syncDirectory(x.dir)
}

// done forgets the intent and what was made for it.
func (x *renewing) done() error {
	for _, path := range []string{x.nextPath() + ".new", x.nextPath(), x.intentPath()} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return x.cannot(err)
		}
	}
	return syncDirectory(x.dir)
}

func syncDirectory(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
