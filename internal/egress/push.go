package egress

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/mojoup/mojoup-node/internal/egress/gitpush"
	"github.com/mojoup/mojoup-node/pkg/policy"
)

const (
	receivePack    = "/git-receive-pack"
	infoRefs       = "/info/refs"
	receiveService = "git-receive-pack"
	// maxPushing is how many pushes of a session are read and proved at once.
	maxPushing = 4
	// What a refused push still sends is read, so that git reads the answer.
	drainFor  = time.Minute
	drainMost = 4 << 30 // bytes
)

// push judges what git asks for. A push that some rule limits by reference
// goes on only where each of its commands is allowed; the request for what the
// server has, which git makes first, only where the push could be.
func (s *serving) push(x *exchange, r *http.Request, d policy.Decision) (policy.Decision, bool) {
	if repository, ok := strings.CutSuffix(x.path, infoRefs); ok && asksToPush(r, x.query) {
		return s.beforePush(x, r, repository, d)
	}
	if !d.Push {
		return d, true
	}
	select {
	case s.pushes.room <- struct{}{}:
		defer func() { <-s.pushes.room }()
	case <-r.Context().Done():
		x.v.deny("whoever pushed went away while others were pushing")
		return d, false
	}
	body, err := plainBody(x, r)
	if err != nil {
		return s.refusePush(x, r, nil, nil, d, err)
	}
	req, err := gitpush.Read(body)
	if err == nil && len(req.Commands) == 0 {
		err = onlyProbe(body)
	}
	if err == nil && len(req.Options) > 0 {
		err = errors.New("push options may ask the server for more than references to be changed: push without them")
	}
	if err != nil {
		return s.refusePush(x, r, req, body, d, err)
	}
	verdicts, what := s.judgeCommands(x, r, req)
	for i, v := range verdicts {
		if !v.Allowed {
			v.Reason = req.Commands[i].Ref + ": " + v.Reason
			return s.answerPush(x, r, req, body, v, verdicts)
		}
		d.Rule, d.Layer, d.Reason = v.Rule, v.Layer, v.Reason
	}
	if what != "" {
		d.Reason += "; " + what
	}
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(req.Head), body), r.Body}
	return d, true
}

// asksToPush reports whether a query, however it is spelled, names the service
// for pushes.
func asksToPush(r *http.Request, query string) bool {
	if r.Method != http.MethodGet || !strings.Contains(query, "service") {
		return false
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return strings.Contains(query, receiveService)
	}
	for _, v := range values["service"] {
		if v == receiveService {
			return true
		}
	}
	return false
}

// beforePush answers for the push that is to follow: git shows the text of this
// refusal, and not that of a later one.
func (s *serving) beforePush(x *exchange, r *http.Request, repository string, d policy.Decision) (policy.Decision, bool) {
	j := s.session.Judge()
	if j == nil {
		return d, true // the next question says so
	}
	ask := policy.Request{Host: x.to.host, Port: x.to.port, TLS: x.link.tls, Method: http.MethodPost, Path: repository + receivePack}
	next := j.Decide(ask)
	switch {
	case !next.Allowed:
		next.Reason = "git asks whether it may push: " + next.Reason
		x.v.decide(next)
		s.deny(x.w, r, x.v.settle(), http.StatusForbidden)
		return next, false
	case next.Push && x.query == "service="+receiveService:
		x.listing = &listing{to: s.pushes, repository: repositoryOf(x, repository)}
		x.listing.Keep = func(ref string) bool {
			ask := ask
			ask.Ref, ask.Change = ref, policy.ChangeCreate
			return j.Decide(ask).Allowed
		}
	}
	return d, true
}

// plainBody is the body of a push without its compression, which the server is
// then not asked to undo. Requests that some server could take for a push, and
// git never sends, are refused.
func plainBody(x *exchange, r *http.Request) (*bufio.Reader, error) {
	_, exact := strings.CutSuffix(x.path, receivePack)
	if !exact || r.Method != http.MethodPost || r.Header.Get("Content-Type") != gitpush.TypeRequest || len(r.Header["Content-Type"]) != 1 {
		return nil, errors.New("this is not how git asks to push, and what it would change cannot be told")
	}
	switch encoding := r.Header["Content-Encoding"]; {
	case len(encoding) == 0 || len(encoding) == 1 && encoding[0] == "identity":
		return bufio.NewReader(r.Body), nil
	case len(encoding) == 1 && (encoding[0] == "gzip" || encoding[0] == "x-gzip"):
		zip, err := gzip.NewReader(r.Body)
		if err != nil {
			return nil, errors.New("the push says that it is compressed, and is not")
		}
		r.Header.Del("Content-Encoding")
		r.ContentLength, r.TransferEncoding = -1, []string{"chunked"}
		return bufio.NewReader(zip), nil
	}
	return nil, errors.New("the push is encoded in a way that cannot be read")
}

// onlyProbe holds a push without commands to its end.
func onlyProbe(body *bufio.Reader) error {
	if _, err := body.Peek(1); err != io.EOF {
		return errors.New("the push goes on although it changes nothing")
	}
	return nil
}

// judgeCommands asks the policy about each command, and somebody who knows the
// history about those that move a reference. what is the allowed push in words.
func (s *serving) judgeCommands(x *exchange, r *http.Request, req *gitpush.Request) (verdicts []policy.Decision, what string) {
	j := s.session.Judge()
	server := s.pushes.of(repositoryOf(x, strings.TrimSuffix(x.path, receivePack)))
	ask := policy.Request{Host: x.to.host, Port: x.to.port, TLS: x.link.tls, Method: r.Method, Path: x.path}
	var moves []Move
	var movers []int
	for i, c := range req.Commands {
		ask.Ref, ask.Change = c.Ref, changeOf(c)
		d := policy.Decision{Reason: "no policy is loaded for this session"}
		if j != nil {
			d = j.Decide(ask)
		}
		switch why := stale(c, server); {
		case !d.Allowed:
		case why != "":
			d = policy.Decision{Rule: d.Rule, Layer: d.Layer, Reason: why}
		case ask.Change == policy.ChangeForward && c.Old != c.New:
			moves, movers = append(moves, Move{c.Ref, c.Old, c.New}), append(movers, i)
		}
		verdicts = append(verdicts, d)
	}
	proofs := s.prove(r.Context(), moves)
	for n, i := range movers {
		if proofs[n] == nil {
			continue
		}
		ask.Ref, ask.Change = req.Commands[i].Ref, policy.ChangeRewrite
		if d := j.Decide(ask); !d.Allowed {
			d.Reason += ": " + proofs[n].Error()
			verdicts[i] = d
		}
	}
	return verdicts, inWords(req.Commands)
}

// changeOf is what a command says it does; a move counts as a fast-forward
// until it was asked for a proof.
func changeOf(c gitpush.Command) policy.Change {
	switch {
	case c.Deletes():
		return policy.ChangeDelete
	case c.Creates():
		return policy.ChangeCreate
	}
	return policy.ChangeForward
}

// stale says what of a command does not agree with what the server has, or "".
func stale(c gitpush.Command, server has) string {
	value, there := server.refs[c.Ref]
	switch {
	case server.why != "":
		return server.why
	case c.Creates() && there:
		return "the server has this reference already"
	case !c.Creates() && value != c.Old:
		return "the server has another value for this reference than the push says"
	}
	return ""
}

func (s *serving) prove(ctx context.Context, moves []Move) []error {
	if len(moves) == 0 {
		return nil
	}
	var proofs []error
	if s.session.Forward != nil {
		proofs = s.session.Forward(ctx, moves)
	}
	for len(proofs) < len(moves) {
		proofs = append(proofs, errors.New("nobody here can prove it"))
	}
	return proofs
}

// inWords says what an allowed push does.
func inWords(commands []gitpush.Command) string {
	var fresh, moved []string
	for _, c := range commands {
		if c.Creates() {
			fresh = append(fresh, c.Ref)
		} else {
			moved = append(moved, c.Ref)
		}
	}
	var out []string
	for _, part := range []struct {
		does string
		refs []string
	}{{"creates ", fresh}, {"moves forward ", moved}} {
		if n := len(part.refs); n > 3 {
			out = append(out, part.does+strings.Join(part.refs[:3], ", ")+fmt.Sprintf(" and %d more", n-3))
		} else if n > 0 {
			out = append(out, part.does+strings.Join(part.refs, ", "))
		}
	}
	return strings.Join(out, "; ")
}

// refusePush is for what is wrong with a push as a whole. req is nil where not
// even its commands could be read.
func (s *serving) refusePush(x *exchange, r *http.Request, req *gitpush.Request, body *bufio.Reader, d policy.Decision, why error) (policy.Decision, bool) {
	d = policy.Decision{Rule: d.Rule, Layer: d.Layer, Reason: why.Error()}
	var verdicts []policy.Decision
	if req != nil {
		verdicts = slices.Repeat([]policy.Decision{d}, len(req.Commands))
	}
	return s.answerPush(x, r, req, body, d, verdicts)
}

// answerPush answers a refused push as a git server does, where the client
// wants to hear that, else with a status. One command that is refused refuses
// all: nothing is sent on.
func (s *serving) answerPush(x *exchange, r *http.Request, req *gitpush.Request, body *bufio.Reader, d policy.Decision, verdicts []policy.Decision) (policy.Decision, bool) {
	x.v.decide(d)
	v := x.v.settle()
	if req == nil || !req.CanBeTold() {
		s.deny(x.w, r, v, http.StatusForbidden)
		return d, false
	}
	drain(r.Context(), body)
	why := map[string]string{}
	var first gitpush.Command
	for i, c := range req.Commands {
		if verdicts[i].Allowed {
			why[c.Ref] = "another reference of this push was refused, id " + v.ID
			continue
		}
		if first.Ref == "" {
			first = c
		}
		why[c.Ref] = "denied by policy, id " + v.ID + ": " + verdicts[i].Reason
	}
	h := x.w.Header()
	h.Set("Content-Type", gitpush.TypeResult)
	h.Set("Cache-Control", "no-cache")
	x.w.WriteHeader(http.StatusOK)
	text := pushDenialText(v, first.Ref)
	if s.beyondPolicy(x, r, first) {
		text = denialTextWith(v, neverPushed)
	}
	_, _ = x.w.Write(req.Refusal(text, func(c gitpush.Command) string { return why[c.Ref] }))
	return d, false
}

// beyondPolicy reports whether a refused command is one that no policy could allow, or
// that is refused although the policy lets its reference be pushed: then it is no use
// to ask the policy, or to change it.
func (s *serving) beyondPolicy(x *exchange, r *http.Request, c gitpush.Command) bool {
	j := s.session.Judge()
	return c.Deletes() || j != nil && j.Decide(policy.Request{
		Host: x.to.host, Port: x.to.port, TLS: x.link.tls, Method: r.Method, Path: x.path, Ref: c.Ref, Change: policy.ChangeCreate,
	}).Allowed
}

// drain reads what is left of a refused push: git over HTTP/1.1 reads no answer
// before it has sent all.
func drain(ctx context.Context, body io.Reader) {
	ctx, cancel := context.WithTimeout(ctx, drainFor)
	defer cancel()
	buf := borrow()
	defer give(buf)
	for left := int64(drainMost); left > 0 && ctx.Err() == nil; {
		n, err := body.Read(buf[:cap(buf)])
		if left -= int64(n); err != nil {
			return
		}
	}
}
