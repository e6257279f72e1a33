package node

import (
	"fmt"
	"io/fs"
	"net"
	"os"

	"github.com/mojoup/mojoup-node/internal/config"
)

// clearSocket removes a dead node's socket: the lock is held. Anything that is
// not a socket is left alone and refused.
func clearSocket(p config.Paths) error {
	path := p.Socket()
	info, err := os.Lstat(path)
	switch {
	case err == nil && info.Mode().Type() == os.ModeSocket:
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("removing the socket of a dead node: %w", err)
		}
	case err == nil:
		return fmt.Errorf("%s is in the way of the node's socket and is not a socket", path)
	}
	return nil
}

// listen makes the socket.
func (n *Node) listen() (net.Listener, error) {
	if n.o.Listener != nil {
		return n.o.Listener, nil
	}
	return Listen(n.o.Paths, 0o600)
}

// Listen makes the socket of paths for whom the mode lets. The lock must be
// held.
func Listen(paths config.Paths, mode fs.FileMode) (net.Listener, error) {
	if err := clearSocket(paths); err != nil {
		return nil, err
	}
	path := paths.Socket()
	ln, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listening on %s: %w", path, err)
	}
	if err := os.Chmod(path, mode); err != nil {
		_ = ln.Close()
		return nil, fmt.Errorf("saying who may connect to %s: %w", path, err)
	}
	return ln, nil
}
