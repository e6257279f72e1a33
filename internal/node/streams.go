package node

import (
	"io"
	"os"
	"sync"

	"github.com/mojoup/mojoup-node/pkg/console"
	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// pipes joins a client's streams to a command's. Without a terminal stdin is a
// pipe whose reading end the command gets, and output goes straight to the
// client's frames; with one everything passes its master side.
type pipes struct {
	client  console.Stream
	stdio   sandbox.Stdio
	inside  *os.File // the command's end of stdin, ours only until it has started
	outside *os.File // where the client's stdin is written
	screen  *os.File // the terminal's master side, which close closes
	copies  sync.WaitGroup
	painted sync.WaitGroup
}

func openPipes(client console.Stream, terminal bool) (*pipes, error) {
	p := &pipes{client: client}
	if terminal {
		return p, nil
	}
	var err error
	if p.inside, p.outside, err = os.Pipe(); err != nil {
		return nil, err
	}
	p.stdio = sandbox.Stdio{Stdin: p.inside, Stdout: client.Stdout(), Stderr: client.Stderr()}
	return p, nil
}

// started gives the command's own end of stdin up, and takes its terminal
// over. There is no command where it could not be started.
func (p *pipes) started(proc sandbox.Process) {
	if p.inside != nil {
		_ = p.inside.Close()
	}
	if proc != nil {
		p.screen = proc.Terminal()
	}
}

// serve begins to copy. What the client types ends with the client's end of
// file or with close.
func (p *pipes) serve() {
	if p.screen != nil {
		p.copies.Go(func() { _, _ = io.Copy(p.screen, p.client.Stdin()) })
		// Ends when the terminal's last writer is gone, which the kernel
		// reports as an error on the master side.
		p.painted.Go(func() { _, _ = io.Copy(p.client.Stdout(), p.screen) })
		return
	}
	p.copies.Go(func() {
		_, _ = io.Copy(p.outside, p.client.Stdin())
		_ = p.outside.Close()
	})
}

// close ends the copying and waits for it. Output that the command wrote
// before it ended has been read by then.
func (p *pipes) close() {
	_ = p.client.Stdin().Close()
	if p.screen != nil {
		drain(p.screen)
		p.painted.Wait()
		_ = p.screen.Close()
	}
	if p.outside != nil {
		_ = p.outside.Close()
	}
	p.copies.Wait()
}
