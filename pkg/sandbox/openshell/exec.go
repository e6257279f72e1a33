package openshell

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/wire"
)

// Bounds of a command.
const (
	// chunk is how much input goes into one message.
	chunk = 32 << 10
	// settleWithin is how long a stream may stay open after the command has
	// ended.
	settleWithin = 2 * time.Second
	// lookEvery is how often the sandbox of a silent command is looked at: a
	// stream can outlive it.
	lookEvery = 10 * time.Second
	// mostCommand is what a command line may have in all, as it is assembled
	// there.
	mostCommand = 200 << 10
)

// session is one running command.
type session struct {
	c      *client
	l      *link
	ref    Ref
	stream grpc.ClientStream
	talk   execution
	cancel context.CancelCauseFunc
	ctx    context.Context

	sizes  chan Size // the last one that was asked for
	heard  atomic.Int64
	output atomic.Bool

	once sync.Once
	done chan struct{}
	code int // once done is closed
	err  error
}

var errAbandoned = errors.New("abandoned")

func (c *client) Exec(ctx context.Context, ref Ref, cmd Command) (Session, error) {
	if err := cmd.check(); err != nil {
		return nil, err
	}
	s, err := c.start(ctx, ref, cmd)
	if err != nil {
		return nil, err
	}
	if cmd.interactive() {
		go s.send(cmd.Stdin)
	}
	go s.look()
	go s.receive(cmd.Stdout, cmd.Stderr)
	return s, nil
}

func (cmd Command) check() error {
	size := 0
	for _, arg := range cmd.Argv {
		size += len(arg) + 3
	}
	for key, value := range cmd.Env {
		size += len(key) + len(value) + 4
	}
	switch why := checkEnv(cmd.Env); {
	case why != "":
		return &Error{Code: BadRequest, Sentence: why}
	case len(cmd.Input) > MostInput, len(cmd.Input) > 0 && cmd.interactive():
		return &Error{Code: BadRequest, Sentence: fmt.Sprintf("a whole input has at most %d bytes, and is none of a terminal", MostInput)}
	case len(cmd.Argv) == 0 || len(cmd.Argv) > 1024 || size > mostCommand:
		return &Error{Code: BadRequest, Sentence: fmt.Sprintf("a gateway takes commands of 1 to 1024 words and at most %d bytes", mostCommand)}
	}
	return nil
}

// interactive reports whether the command needs the stream that goes both
// ways. The other one is better where it serves: it can say that the input has
// ended.
func (cmd Command) interactive() bool { return cmd.Stdin != nil || cmd.TTY != nil }

// start opens the stream and sends what to run.
func (c *client) start(ctx context.Context, ref Ref, cmd Command) (*session, error) {
	talk, method, in := c.talk.exec(ref, c.reg.Workspace, cmd), wire.Exec, proto.Message(nil)
	if in = talk.start; !cmd.interactive() {
		method, in = wire.ExecOnce, talk.once
	}
	for attempt := 0; ; attempt++ {
		l, err := c.now(ctx)
		if err != nil {
			return nil, err
		}
		s := &session{c: c, l: l, ref: ref, talk: talk, sizes: make(chan Size, 1), done: make(chan struct{})}
		// A gateway that knew when time is up would end the stream itself, and
		// in other words than the caller's.
		s.ctx, s.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
		stop := context.AfterFunc(ctx, func() { s.cancel(context.Cause(ctx)) })
		context.AfterFunc(s.ctx, func() { stop() })
		s.stream, err = l.stream(s.ctx, c.reg, method, &grpc.StreamDesc{ServerStreams: true, ClientStreams: cmd.interactive()})
		if err == nil {
			err = s.stream.SendMsg(in)
			if err == nil && !cmd.interactive() {
				err = s.stream.CloseSend()
			}
			if err == nil {
				return s, nil
			}
			err = s.broken(err)
		}
		s.cancel(err)
		// Nothing has run yet where the connection was already dead.
		if attempt > 0 || !unsent(err) {
			return nil, err
		}
	}
}

// broken is why the stream ended, which an error of sending does not say.
func (s *session) broken(err error) error {
	if errors.Is(err, io.EOF) {
		out, _ := s.talk.event()
		if rerr := s.stream.RecvMsg(out); rerr != nil {
			err = rerr
		}
	}
	return s.failed(err)
}

// send passes on input and sizes, in one place because a stream takes one
// message at a time.
func (s *session) send(stdin io.Reader) {
	input := make(chan []byte)
	go s.read(stdin, input)
	for {
		var m proto.Message
		select {
		case b, ok := <-input:
			if !ok {
				// Not closed: see Command.Stdin.
				input = nil
				continue
			}
			m = s.talk.stdin(b)
		case size := <-s.sizes:
			m = s.talk.resize(size)
		case <-s.done:
			return
		}
		if s.stream.SendMsg(m) != nil {
			return // receiving says why
		}
	}
}

func (s *session) read(stdin io.Reader, input chan<- []byte) {
	defer close(input)
	if stdin == nil {
		return
	}
	for {
		b := make([]byte, chunk)
		n, err := stdin.Read(b)
		if n > 0 {
			select {
			case input <- b[:n]:
			case <-s.done:
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// receive writes the output and finds out how the command ended.
func (s *session) receive(stdout, stderr io.Writer) {
	exited, code := false, 0
	for {
		out, read := s.talk.event()
		if err := s.stream.RecvMsg(out); err != nil {
			switch {
			case exited:
				s.end(code, nil)
			case errors.Is(err, io.EOF):
				s.end(0, s.really(s.unknown(nil)))
			default:
				s.end(0, s.really(s.failed(err)))
			}
			return
		}
		s.heard.Add(1)
		e := read()
		switch {
		case exited:
			// Nothing comes after the end.
		case e.exited:
			exited, code = true, e.code
			settle := time.AfterFunc(settleWithin, func() { s.cancel(nil) })
			defer settle.Stop()
		case len(e.stdout) > 0:
			s.output.Store(true)
			stdout = put(stdout, e.stdout)
		case len(e.stderr) > 0:
			s.output.Store(true)
			stderr = put(stderr, e.stderr)
		}
	}
}

// put writes, and throws away from then on where nobody takes it any more.
func put(w io.Writer, b []byte) io.Writer {
	if w == nil {
		return nil
	}
	if _, err := w.Write(b); err != nil {
		return nil
	}
	return w
}

func (s *session) end(code int, err error) {
	s.once.Do(func() {
		s.code, s.err = code, err
		close(s.done)
		s.cancel(errAbandoned)
	})
}

// really looks whether the sandbox itself is the reason: a gateway says of a
// command that it ended without a word, but not that all else has too.
func (s *session) really(err error) error {
	if !errors.Is(err, NoExit) && !errors.Is(err, NotReady) && !errors.Is(err, NotFound) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), readWithin)
	defer cancel()
	r, gerr := s.c.Get(ctx, s.ref.Name)
	before, known := s.c.runs.Load(s.ref.ID)
	switch {
	case errors.Is(gerr, NotFound), gerr == nil && r.ID != s.ref.ID, r.Phase == Deleting:
		return s.c.lost(s.ref, "it was deleted")
	case errors.Is(gerr, Unreachable), errors.Is(gerr, NoAnswer), errors.Is(gerr, VersionChanged):
		return gerr
	case gerr != nil:
		return err
	case known && r.Instance != "" && r.Instance != before:
		return s.c.lost(s.ref, "it was started anew")
	case r.Phase == Failed, known && r.Phase != ReadyPhase: // it may have failed before anybody saw it ready
		return s.c.lost(s.ref, plain(fmt.Sprintf("it is %s: %s %s", r.Phase, r.Reason, r.Message)))
	}
	return err
}

// unknown is for a command whose end nobody tells.
func (s *session) unknown(err error) error {
	return &Error{Code: NoExit, Sentence: "how the command ended is not known: " + s.c.reg.title() + " ended its stream without saying so", Err: err}
}

// failed says why the stream of a command broke.
func (s *session) failed(err error) error {
	var lost *Error
	if cause := context.Cause(s.ctx); errors.As(cause, &lost) {
		return lost
	} else if errors.Is(cause, errAbandoned) || s.ctx.Err() != nil {
		return &Error{Code: Cancelled, Sentence: "the command was given up", Err: cause}
	}
	code, answered := sayer(err), s.answered() && !broke(err)
	switch {
	case code == codes.Unavailable && answered && (s.output.Load() || strings.Contains(messageOf(err), "exit status")):
		return s.unknown(err)
	case code == codes.Unavailable && answered, code == codes.FailedPrecondition, code == codes.DeadlineExceeded && answered:
		return &Error{Code: NotReady, Sentence: fmt.Sprintf("the sandbox %s takes no command now: %s", s.ref.Name, plain(messageOf(err))), Err: err}
	}
	var known *Error
	if errors.As(err, &known) {
		return known
	}
	return s.l.failed(s.ctx, s.c.reg, err, answered)
}

// answered reports whether the gateway itself ended the stream: it says so in
// what comes last, which a connection that breaks does not.
func (s *session) answered() bool {
	head, err := s.stream.Header()
	return len(s.stream.Trailer()) > 0 || err == nil && len(head) > 0
}

// look asks after the sandbox while its command is silent.
func (s *session) look() {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	heard, bad := int64(0), 0
	instance := ""
	if before, ok := s.c.runs.Load(s.ref.ID); ok {
		instance = before.(string)
	}
	for {
		select {
		case <-tick.C:
		case <-s.done:
			return
		}
		if now := s.heard.Load(); now != heard {
			heard = now
			continue
		}
		r, err := s.c.Get(s.ctx, s.ref.Name)
		why := ""
		switch {
		case errors.Is(err, NotFound), err == nil && r.ID != s.ref.ID:
			why = "it was deleted"
		case err != nil:
			continue // the stream itself breaks where the gateway is gone
		case instance == "":
			instance = r.Instance
		case r.Instance != instance && r.Instance != "":
			why = "it was started anew"
		}
		if r.Phase == Failed || r.Phase == Stopped || r.Phase == Completed {
			// Seen twice: a gateway that has just restarted may not know yet.
			if bad++; bad > 1 {
				why = plain(fmt.Sprintf("it is %s: %s %s", r.Phase, r.Reason, r.Message))
			}
		} else {
			bad = 0
		}
		if why != "" {
			s.cancel(s.c.lost(s.ref, why))
			return
		}
	}
}

func (s *session) Wait(ctx context.Context) (int, error) {
	select {
	case <-s.done:
		return s.code, s.err
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

func (s *session) Done() <-chan struct{} { return s.done }

func (s *session) Resize(size Size) error {
	for {
		select {
		case <-s.done:
			return &Error{Code: Lost, Sentence: "the command has ended"}
		default:
		}
		select {
		case s.sizes <- size:
			return nil
		default:
		}
		select {
		case <-s.sizes: // only the last one counts
		default:
		}
	}
}

func (s *session) Abandon() { s.cancel(errAbandoned) }
