//go:build linux

package gatewaytest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/pkg/stdcopy"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/gatewaytest/inside"
)

// command is one to be run, in either generation.
type command struct {
	argv     []string
	dir      string
	env      map[string]string
	tty      bool
	cols     uint32
	rows     uint32
	input    []byte
	plain    bool // no login shell
	within   time.Duration
	messages <-chan message // what the client sends while it runs; nil for none
}

// message is one that a client sends to a running command. The zero value is
// the end of its input.
type message struct {
	input      []byte
	cols, rows uint32
}

// output sends one event to the client.
type output func(stdout, stderr []byte, exit *int32) error

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_./:=@%+,-]+$`)

func quote(s string) string {
	if plainWord.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'"'"'`) + "'"
}

// line is what the shell inside is given.
func (c command) line() string {
	var words []string
	for _, key := range slices.Sorted(maps.Keys(c.env)) {
		words = append(words, key+"="+quote(c.env[key]))
	}
	for _, arg := range c.argv {
		words = append(words, quote(arg))
	}
	line := strings.Join(words, " ")
	if c.dir != "" {
		line = "cd " + quote(c.dir) + " && " + line
	}
	return line
}

// environment is what every process inside begins with.
func (d *driver) environment(b *box, c *command) []string {
	b2 := d.g.view(b)
	env := map[string]string{"OPENSHELL_SANDBOX": "1", "HOME": b2.workdir, "USER": "sandbox", "SHELL": "/bin/bash", "TERM": "xterm-256color",
		"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "NODE_USE_ENV_PROXY": "1",
		"NO_PROXY": "127.0.0.1,localhost,::1", "no_proxy": "127.0.0.1,localhost,::1"}
	maps.Copy(env, b2.Env)
	for _, name := range []string{"ALL_PROXY", "HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "grpc_proxy"} {
		env[name] = b2.proxy
	}
	if c != nil && !c.tty {
		delete(env, "TERM")
	}
	var out []string
	for _, key := range slices.Sorted(maps.Keys(env)) {
		out = append(out, key+"="+env[key])
	}
	return out
}

// run carries out a command and tells all about it.
func (g *Gateway) run(ctx context.Context, b *box, c command, out output) error {
	v := g.view(b)
	switch {
	case len(c.argv) == 0:
		return status.Error(codes.InvalidArgument, "command is required")
	case v.phase != ready:
		return status.Error(codes.FailedPrecondition, "sandbox is not ready")
	}
	for key := range c.env {
		if strings.HasPrefix(key, "OPENSHELL_") && key != "OPENSHELL_PYFUNC_B64" {
			return status.Errorf(codes.InvalidArgument, "environment key '%s' is reserved", key)
		}
	}
	fault := ExecFault{}
	if ask := g.o.Faults.Exec; ask != nil {
		fault = ask(c.argv)
	}
	if fault.Hang {
		<-ctx.Done()
		return ctx.Err()
	}
	out = g.faulty(fault, out)
	if c.within > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.within)
		defer cancel()
	}
	code, err := g.driver.exec(ctx, &v, c, out)
	switch {
	case c.within > 0 && ctx.Err() == context.DeadlineExceeded:
		code = 124
	case errors.Is(err, errSilent), err == nil && fault.NoExit && fault.After == 0:
		return nil
	case err != nil:
		return err
	}
	return out(nil, nil, &code)
}

// faulty breaks an output as a test asks for it.
func (g *Gateway) faulty(f ExecFault, out output) output {
	if f == (ExecFault{}) {
		return out
	}
	seen := 0
	return func(stdout, stderr []byte, exit *int32) error {
		for f.Flood {
			if err := out(make([]byte, 64<<10), nil, nil); err != nil {
				return err
			}
		}
		if seen += len(stdout) + len(stderr); f.After > 0 && seen >= f.After || f.Break && exit != nil {
			out(stdout, stderr, nil)
			if f.Break {
				g.mu.Lock()
				server := g.server
				g.mu.Unlock()
				go server.Stop()
				return status.Error(codes.Unavailable, "broken")
			}
			return errSilent
		}
		return out(stdout, stderr, exit)
	}
}

// errSilent ends a stream without a word.
var errSilent = errors.New("silent")

// exec runs a command in a container.
func (d *driver) exec(ctx context.Context, b *box, c command, out output) (int32, error) {
	gone := status.Error(codes.Unavailable, "exec relay closed before the command reported an exit status")
	shell := []string{"/bin/bash", "-lc", c.line()}
	if c.plain {
		shell[1] = "-c"
	}
	options := container.ExecOptions{User: "0:0", Tty: c.tty, AttachStdin: true, AttachStdout: true, AttachStderr: true,
		Env: d.environment(b, &c), Cmd: append([]string{inside.Program, "enter", b.workdir}, shell...)}
	if c.tty {
		options.ConsoleSize = &[2]uint{24, 80}
		if c.cols > 0 && c.rows > 0 {
			options.ConsoleSize = &[2]uint{uint(c.rows), uint(c.cols)}
		}
	}
	made, err := d.docker.ContainerExecCreate(ctx, b.unit, options)
	if err != nil {
		return 0, gone
	}
	at, err := d.docker.ContainerExecAttach(ctx, made.ID, container.ExecAttachOptions{Tty: c.tty, ConsoleSize: options.ConsoleSize})
	if err != nil {
		return 0, gone
	}
	defer at.Close()
	stop := context.AfterFunc(ctx, at.Close)
	defer stop()
	if c.tty {
		// Older engines take no size before the start.
		d.docker.ContainerExecResize(ctx, made.ID, container.ResizeOptions{Height: options.ConsoleSize[0], Width: options.ConsoleSize[1]})
	}
	halfClosed := make(chan struct{})
	go d.feed(ctx, made.ID, c, at.Conn, at.CloseWrite, halfClosed)
	ended := make(chan error, 1)
	go func() { ended <- pump(c, at.Reader, out) }()
	select {
	case err = <-ended:
	case <-halfClosed:
		// A gateway of 0.0.111 closes the whole command with its input.
		return 0, gone
	}
	if err != nil {
		return 0, err
	}
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	return d.code(ctx, made.ID, gone)
}

// feed passes on the input, and tells where its end ends everything.
func (d *driver) feed(ctx context.Context, id string, c command, to io.Writer, end func() error, halfClosed chan<- struct{}) {
	if c.messages == nil {
		to.Write(c.input)
		end()
		return
	}
	for m := range c.messages {
		switch {
		case m.cols > 0 || m.rows > 0:
			if c.tty {
				d.docker.ContainerExecResize(ctx, id, container.ResizeOptions{Height: uint(m.rows), Width: uint(m.cols)})
			}
		case m.input == nil:
			if d.g.o.Generation == V00 {
				close(halfClosed)
				return
			}
			end()
		default:
			if _, err := to.Write(m.input); err != nil {
				return
			}
		}
	}
}

// pump passes on the output.
func pump(c command, from io.Reader, out output) error {
	var mu sync.Mutex
	stdout := writer(func(p []byte) error { mu.Lock(); defer mu.Unlock(); return out(p, nil, nil) })
	stderr := writer(func(p []byte) error { mu.Lock(); defer mu.Unlock(); return out(nil, p, nil) })
	var err error
	if c.tty {
		_, err = io.CopyBuffer(stdout, struct{ io.Reader }{from}, make([]byte, 32<<10))
	} else {
		_, err = stdcopy.StdCopy(stdout, stderr, from)
	}
	return err
}

type writer func([]byte) error

func (w writer) Write(p []byte) (int, error) {
	if err := w(p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// code asks for the exit code, which stands a moment after the output's end.
func (d *driver) code(ctx context.Context, id string, gone error) (int32, error) {
	for range 30_000 { // Docker may be busy
		info, err := d.docker.ContainerExecInspect(ctx, id)
		if err != nil {
			return 0, gone
		}
		if !info.Running {
			return int32(info.ExitCode), nil
		}
		time.Sleep(2 * time.Millisecond)
	}
	return 0, status.Error(codes.Internal, fmt.Sprintf("command %s does not end", id))
}
