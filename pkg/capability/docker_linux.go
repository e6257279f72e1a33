package capability

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/client"
)

// askDocker asks the daemon at host, or at the usual socket, and waits no
// longer than wait. The variable DOCKER_API_VERSION is not obeyed: a version
// pinned there would make a good daemon look broken.
func askDocker(ctx context.Context, host string, wait time.Duration) DockerAnswer {
	if host == "" {
		host = client.DefaultDockerHost
	}
	a := DockerAnswer{Address: host}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()

	line := &dialer{}
	c, err := line.connect(host)
	if err != nil {
		a.Trouble, a.Detail = DockerMisset, err.Error()
		return a
	}
	defer c.Close()

	ping, err := c.Ping(ctx)
	a.API = ping.APIVersion
	if err != nil {
		return line.explain(ctx, a, err)
	}
	c.NegotiateAPIVersionPing(ping)
	version, err := c.ServerVersion(ctx)
	switch {
	case errdefs.IsInvalidArgument(err):
		// Of all requests this one can be wrong only in its version.
		a.Trouble, a.Detail = DockerTooNew, err.Error()
	case err != nil:
		return line.explain(ctx, a, err)
	}
	a.API = first(version.APIVersion, a.API)
	a.LeastAPI, a.Engine = version.MinAPIVersion, version.Version
	if info, err := c.Info(ctx); err == nil { // without it there is nothing to say
		for _, option := range info.SecurityOptions {
			a.Rootless = a.Rootless || strings.Contains(option, "name=rootless")
			a.Remapped = a.Remapped || strings.Contains(option, "name=userns")
		}
		a.Snap = strings.HasPrefix(info.DockerRootDir, "/var/snap/")
	}
	return a
}

// dialer connects, and remembers why it could not: the client's own error
// forgets whether nothing listens or permission is missing.
type dialer struct {
	network, address string

	mu     sync.Mutex // guards failed
	failed error
}

func (d *dialer) connect(host string) (*client.Client, error) {
	u, err := client.ParseHostURL(host)
	if err != nil {
		return nil, err
	}
	switch u.Scheme {
	case "unix":
		d.network, d.address = "unix", u.Host
	case "tcp", "http", "https":
	default:
		return nil, errors.New("this node reaches Docker by unix:// and tcp:// only")
	}
	return client.NewClientWithOpts(client.WithTLSClientConfigFromEnv(), client.WithHost(host),
		client.WithDialContext(d.dial), client.WithAPIVersionNegotiation())
}

func (d *dialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if d.network != "" {
		network, address = d.network, d.address
	}
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failed = err
	return conn, err
}

// explain turns the error of a call into a kind of trouble.
func (d *dialer) explain(ctx context.Context, a DockerAnswer, err error) DockerAnswer {
	d.mu.Lock()
	failed := d.failed
	d.mu.Unlock()
	switch {
	case errors.Is(failed, fs.ErrPermission):
		a.Trouble, a.Group = DockerForbidden, socketGroup(d.address)
	case ctx.Err() != nil, errors.Is(err, context.DeadlineExceeded):
		a.Trouble = DockerSilent
	case failed != nil:
		a.Trouble, a.Detail = DockerDown, failed.Error()
	default:
		a.Trouble, a.Detail = DockerErrs, err.Error()
	}
	return a
}

// socketGroup names the group that owns a socket, or is "" where that cannot
// be seen.
func socketGroup(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return ""
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return groupName(int(stat.Gid))
	}
	return ""
}
