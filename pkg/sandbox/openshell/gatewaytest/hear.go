//go:build linux

package gatewaytest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"

	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/gatewaytest/inside"
)

// wake is another name of the socket on which one run's first process is heard.
func wake(v box) string {
	return filepath.Join(v.host, "run", fmt.Sprintf("%s.%d", filepath.Base(inside.Control), v.run))
}

// again stops and starts every container, as a gateway does that restarts.
func (d *driver) again() {
	d.g.mu.Lock()
	var up []*box
	for _, b := range d.g.boxes {
		if b.phase == ready {
			up = append(up, b)
		}
	}
	d.g.mu.Unlock()
	for _, b := range up {
		d.g.update(b, func() {
			b.run++
			b.phase, b.reason, b.message = provisioning, "DependenciesNotReady", "Supervisor session disconnected"
		})
		d.g.work.Go(func() {
			soon := 1
			err := d.listen(b)
			if err == nil {
				err = d.docker.ContainerRestart(d.g.ctx, b.unit, container.StopOptions{Timeout: &soon})
			}
			if err != nil {
				d.g.fail(b, "StartFailed", err.Error())
				return
			}
			d.g.work.Go(func() { d.attend(b, d.g.view(b)) })
		})
	}
}

// hear takes what the first process of a container says of one run of it.
func (d *driver) hear(b *box, run int, l net.Listener) {
	stop := context.AfterFunc(d.g.ctx, func() { l.Close() })
	defer stop()
	conn, err := l.Accept()
	l.Close()
	if err != nil {
		return
	}
	stop2 := context.AfterFunc(d.g.ctx, func() { conn.Close() })
	defer stop2()
	defer conn.Close()
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		word, rest, _ := strings.Cut(lines.Text(), " ")
		switch word {
		case "ready":
			select {
			case <-time.After(d.g.o.ReadyAfter):
			case <-d.g.ctx.Done():
				return
			}
			if d.g.o.Faults.Stuck {
				continue
			}
			d.g.update(b, func() {
				if b.phase == provisioning {
					b.phase, b.reason, b.message, b.instance = ready, "DependenciesReady", "Supervisor session connected", newUUID()
				}
			})
		case "exit":
			code, _ := strconv.Atoi(rest)
			d.ended(b, run, int32(code))
		}
	}
}

// ended is the end of the main process: an error in 0.0.x, even of a success.
func (d *driver) ended(b *box, run int, code int32) {
	d.g.update(b, func() {
		if b.phase == deleting || b.run != run {
			return
		}
		b.exit = &code
		switch {
		case d.g.o.Generation == V00:
			b.phase, b.reason, b.message = failed, "MainProcessExited", "Canonical main process exited"
		case code == 0:
			b.phase, b.reason, b.message = completed, "MainProcessCompleted", "Main process completed"
		default:
			b.phase, b.reason, b.message = failed, "MainProcessFailed", "Main process failed"
		}
	})
}

// carry is the way out of 0.1.x: what a container's first process has allowed
// is connected to loopback.
func (d *driver) carry(l net.Listener) {
	stop := context.AfterFunc(d.g.ctx, func() { l.Close() })
	defer stop()
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			port, err := bufio.NewReaderSize(io.LimitReader(conn, 6), 16).ReadString('\n')
			if err != nil {
				return
			}
			up, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strings.TrimSpace(port)))
			if err != nil {
				return
			}
			defer up.Close()
			conn.Write([]byte("+"))
			go func() {
				io.Copy(up, conn)
				up.(*net.TCPConn).CloseWrite()
			}()
			io.Copy(conn, up)
			conn.(*net.UnixConn).CloseWrite()
		}()
	}
}
