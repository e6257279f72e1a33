package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/mojoup/mojoup-node/internal/config"
	"github.com/mojoup/mojoup-node/pkg/console"
	"github.com/mojoup/mojoup-node/pkg/console/api"
)

// Hold makes the directories of a node and takes the lock that makes it the
// only one of them, until the file is closed. It fails with ErrRunning.
func Hold(p config.Paths) (*os.File, error) {
	if err := makePlaces(p); err != nil {
		return nil, err
	}
	return hold(p.Lock())
}

// makePlaces makes the directories of a node that runs. One empty directory
// serves all sessions, because each mounts in a namespace of its own.
func makePlaces(p config.Paths) error {
	if err := p.MakeRuntime(); err != nil {
		return err
	}
	err := os.Mkdir(p.Empty(), 0o700)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("making the directory to mount on: %w", err)
	}
	return nil
}

// idleWithin is how long somebody may hold a runtime directory without serving.
const idleWithin = 10 * time.Second

// holdIdle is [Hold] for who does something while no node runs. One that was
// killed holds its lock until the kernel has taken it apart, and so does another
// of these for the moment that it takes: both are waited for. A node that serves
// is [ErrRunning] at once.
func holdIdle(ctx context.Context, p config.Paths) (*os.File, error) {
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	until := time.Now().Add(idleWithin)
	for {
		lock, err := Hold(p)
		if !errors.Is(err, ErrRunning) || serves(ctx, p) || time.Now().After(until) {
			return lock, err
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return nil, err
		}
	}
}

// serves reports whether a node answers at the socket, whatever it says. One
// that is being taken apart still takes connections, and then lets go of them.
func serves(ctx context.Context, p config.Paths) bool {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", p.Socket())
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ECONNREFUSED)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(idleWithin))
	_, err = fmt.Fprintf(conn, "GET /%s/status HTTP/1.1\r\nHost: %s\r\n\r\n", api.Version, console.Host)
	if err == nil {
		_, err = conn.Read(make([]byte, 1))
	}
	return err == nil || errors.Is(err, os.ErrDeadlineExceeded)
}
