package node

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/mojoup/mojoup-node/internal/egress"
	"github.com/mojoup/mojoup-node/internal/fault"
	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/secrets/signin"
)

// putScript puts a file into a directory of its own by rename, as the tools do:
// one that reads it meanwhile sees the old one or the new one. From the first
// moment on nobody else may read it. The name that it has first nobody inside knows
// before, so that no pipe waits there.
func putScript(home string, s signin.Staged) string {
	if s.Target == "" {
		return ""
	}
	file := path.Join(home, s.Target)
	dir := path.Dir(file)
	fresh := path.Join(dir, ".mojoup-"+rand.Text())
	return fmt.Sprintf("umask 077\nset -C\n[ ! -d %[4]s ] || { echo %[4]s is a directory >&2; exit 1; }\n"+
		"mkdir -p -- %[1]s && printf %%s %[2]s >%[3]s && mv -f -- %[3]s %[4]s || { rm -f -- %[3]s; exit 1; }\n",
		fault.Quoted(dir), fault.Quoted(string(s.Content())), fault.Quoted(fresh), fault.Quoted(file))
}

// removeScript removes such a file.
func removeScript(home, target string) string {
	return fmt.Sprintf("rm -f -- %s || exit 1\n", fault.Quoted(path.Join(home, target)))
}

// An inSession changes files of sign-ins inside.
type inSession struct {
	put    func(signin.Staged) error
	remove func(target string) error
}

// restage puts the file of a sign-in inside as it is to be now, or removes it where
// nothing is left of it.
func (l *life) restage(one *lent, in inSession) error {
	err := l.putInside(one, in)
	one.behind.Store(err != nil)
	if errors.Is(err, errNotYet) {
		return nil // by the next looks
	}
	return err
}

func (l *life) putInside(one *lent, in inSession) error {
	if one.tool.Target == "" {
		return nil // a variable
	}
	if in.put == nil || l.inside.Load() == nil {
		return errNotYet // though its file may lie there already
	}
	l.staging.Lock() // several sign-ins may be in one file
	defer l.staging.Unlock()
	all, err := stagedOf(l.lent)
	if err != nil {
		return err
	}
	for _, s := range all {
		if s.Target == one.tool.Target {
			return in.put(s)
		}
	}
	return in.remove(one.tool.Target)
}

// maxSaid bounds what a script may say.
const maxSaid = 4 << 10

// scriptWithin bounds a script: a session may stop it, and the next look tries again.
const scriptWithin = 5 * time.Second

// inSandbox runs a script as a command of the sandbox, with the rights of any
// other. It comes by stdin, so that no list of processes shows what it holds.
func (l *life) inSandbox(ctx context.Context, box sandbox.Sandbox, script string) error {
	ctx, cancel := context.WithTimeout(ctx, min(l.n.o.Times.Remove, scriptWithin))
	defer cancel()
	said := &limitedBuffer{}
	proc, err := l.start(ctx, box, sandbox.Command{Argv: []string{"/bin/sh", "-s"}, Dir: "/"}, sandbox.Stdio{Stdin: strings.NewReader(script), Stderr: said})
	if err != nil {
		return err
	}
	exit, err := bounded(ctx, l.n.o.Times.Patience, func() (sandbox.Exit, error) { return proc.Wait(ctx) }, nil)
	switch {
	case err != nil:
		return err
	case exit.Code != 0:
		return fmt.Errorf("exit status %d: %s", exit.Code, strings.TrimSpace(said.String()))
	}
	return nil
}

type limitedBuffer struct{ bytes.Buffer }

func (b *limitedBuffer) Write(p []byte) (int, error) {
	b.Buffer.Write(p[:min(len(p), max(0, maxSaid-b.Len()))])
	return len(p), nil
}

// signInAnswers answers, in the place of the services that make tokens, what
// the tools inside ask of them: nothing of it is sent on. A refresh token is
// spent by its use and a sign-in ended by one request, and neither is a
// session's to do.
type signInAnswers struct{ lent []*lent }

// answers are those of the session, or nil where it has no such sign-in.
func (l *life) answers() egress.Answers {
	if !slices.ContainsFunc(l.lent, func(one *lent) bool { return one.tool.Renewal != nil }) {
		return nil
	}
	return signInAnswers{l.lent}
}

// Host implements [egress.Answers].
func (a signInAnswers) Host(host string, port uint16) bool {
	return port == 443 && slices.ContainsFunc(a.lent, func(one *lent) bool {
		at := one.tokenURL()
		return at != nil && at.Hostname() == host
	})
}

// Answer implements [egress.Answers].
func (a signInAnswers) Answer(host string, port uint16, path string) (http.Handler, string) {
	for _, one := range a.lent {
		at := one.tokenURL()
		if at == nil || port != 443 || at.Hostname() != host {
			continue
		}
		switch {
		case path == at.Path:
			return http.HandlerFunc(one.token), "answered by the node: it renews the sign-in of " + one.tool.Title + " on the host"
		case path == one.tool.Renewal.Revoke && path != "":
			return http.HandlerFunc(unavailable), "answered by the node: a session does not end the sign-in of " + one.tool.Title
		}
	}
	return nil, ""
}

// tokenURL is where the tool asks for new tokens, or nil.
func (o *lent) tokenURL() *url.URL {
	if o.tool.Renewal == nil {
		return nil
	}
	u, err := url.Parse(o.tool.Renewal.URL)
	if err != nil {
		return nil
	}
	return u
}

// token answers a request for new tokens. In mode hold the tool may ask, and
// gets what the host has: renewed there first, where that is due. It never gets
// more than that, however often it asks.
func (o *lent) token(w http.ResponseWriter, r *http.Request) {
	if o.mode != signin.Hold || o.path == "" || o.isWithdrawn() || r.Method != http.MethodPost {
		unavailable(w, r)
		return
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(r.Body, 64<<10))
	fresh, err := o.tool.At(o.path)
	if err == nil && renewalDue(fresh) {
		fresh.Wipe()
		if err = o.renews(r.Context(), ""); err == nil {
			fresh, err = o.tool.At(o.path)
		}
	}
	if err != nil {
		unavailable(w, r)
		return
	}
	defer fresh.Wipe()
	// A right that is withdrawn meanwhile takes this token along, too.
	if !fresh.Same(o.now()) || fresh.Left(time.Now()) <= 0 || o.owned(fresh) != nil || o.isWithdrawn() {
		unavailable(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(fresh.Granted(time.Now()))
}

// unavailable is the one answer at which every tool goes on with the token that
// it has, and looks again later whether there is a new one. A refusal makes
// some of them forget it.
func unavailable(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, io.LimitReader(r.Body, 64<<10))
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusServiceUnavailable)
	_, _ = io.WriteString(w, `{"error":"temporarily_unavailable","error_description":"sign-ins are renewed outside of this sandbox"}`+"\n")
}
