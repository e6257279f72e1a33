package registries

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	toml "github.com/pelletier/go-toml/v2"
)

// probeManifest is a package with one dependency, so that cargo must ask its
// index. The [workspace] table keeps it from looking for one above.
const probeManifest = `[package]
name = "probe"
version = "0.0.0"
edition = "2018"
[lib]
path = "lib.rs"
[workspace]
[dependencies]
mojoup-registry-probe = "0"
`

// proxyVars are left out where the loopback listener is the proxy.
var proxyVars = []string{
	"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "CARGO_HTTP_PROXY",
}

var errNotAsked = errors.New("cargo asked for no host")

// askCargo finds cargo's default index. Cargo has no command that says it, so
// it is started with a proxy of ours on loopback, which reads the host that
// cargo asks to be connected with and refuses. Nothing leaves the machine.
func (l *look) askCargo(ctx context.Context, cargo, config string, indexes map[string]string) error {
	asked := "cargo generate-lockfile (with a proxy that refuses)"
	proxy, err := refuseAll(ctx)
	if err != nil {
		return l.failed(asked, err)
	}
	// That cargo fails is the plan; which host it wanted is the answer.
	runErr := l.runCargo(ctx, cargo, config, ask{
		without: proxyVars,
		env:     []string{"CARGO_HTTP_PROXY=" + proxy.url(), "CARGO_NET_OFFLINE=false"},
	}, func(string) {})
	hosts := proxy.stop()
	if len(hosts) == 0 {
		if !errors.Is(runErr, errTooSlow) {
			runErr = errNotAsked
		}
		return l.failed(asked, runErr)
	}
	for _, hp := range hosts {
		name := strings.TrimSuffix(hp, ":443")
		indexes["https://"+name] = "cargo (its default index)"
	}
	return nil
}

// fetchCargo lets cargo itself ask its index once, in a home of its own, and
// reads the download host there. It returns the indexes still unknown.
func (l *look) fetchCargo(ctx context.Context, cargo, config string, missing []string) []string {
	a := ask{}
	for _, k := range networkVars {
		if v, ok := l.vars[k]; ok {
			a.env = append(a.env, k+"="+v)
		}
	}
	// That the package is not there is the plan, so the error says nothing.
	_ = l.runCargo(ctx, cargo, config, a, func(home string) {
		missing = l.cargoDownloads(filepath.Join(home, "registry", "index"), missing, "the index's config.json, read by cargo")
	})
	return missing
}

// networkVars are what a client needs to get out, and only then gets.
var networkVars = []string{
	"HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy",
	"NO_PROXY", "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR",
}

// runCargo makes cargo look for a package that is not there, in a throw-away
// home with the person's settings, and calls read before that home is gone.
func (l *look) runCargo(ctx context.Context, cargo, config string, a ask, read func(home string)) error {
	dir, err := os.MkdirTemp("", "mojoup-cargo-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for name, text := range map[string]string{"Cargo.toml": probeManifest, "lib.rs": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	if err := copyCargo(dir, config); err != nil {
		return err
	}
	a.args = []string{cargo, "generate-lockfile", "--manifest-path", filepath.Join(dir, "Cargo.toml")}
	a.without = append(slices.Clone(a.without), "CARGO_HOME")
	// No retries, no toolchain fetched by a version manager.
	a.env = append(slices.Clone(a.env), "CARGO_HOME="+dir, "CARGO_NET_RETRY=0", "RUSTUP_AUTO_INSTALL=0")
	_, err = l.run(ctx, a)
	read(dir)
	return err
}

// A refuser is a proxy on loopback that says no and remembers to what.
type refuser struct {
	listener net.Listener
	done     sync.WaitGroup
	mu       sync.Mutex
	// mu guards what follows.
	hosts []string
	conns []net.Conn
}

func refuseAll(ctx context.Context) (*refuser, error) {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening on loopback: %w", err)
	}
	r := &refuser{listener: ln}
	r.done.Go(r.serve)
	return r, nil
}

func (r *refuser) url() string { return "http://" + r.listener.Addr().String() }

func (r *refuser) serve() {
	for {
		c, err := r.listener.Accept()
		if err != nil {
			return
		}
		r.mu.Lock()
		r.conns = append(r.conns, c)
		r.mu.Unlock()
		r.done.Go(func() { r.answer(c) })
	}
}

func (r *refuser) answer(c net.Conn) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(askTimeout))
	req, err := http.ReadRequest(bufio.NewReader(c))
	if err != nil {
		return
	}
	if req.Method == http.MethodConnect {
		r.mu.Lock()
		if !slices.Contains(r.hosts, req.Host) && len(r.hosts) < 16 {
			r.hosts = append(r.hosts, req.Host)
		}
		r.mu.Unlock()
	}
	_, _ = c.Write([]byte("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"))
}

// stop ends the listener, waits, and returns what was asked for.
func (r *refuser) stop() []string {
	r.listener.Close()
	r.mu.Lock()
	for _, c := range r.conns {
		c.Close()
	}
	r.mu.Unlock()
	r.done.Wait()
	return r.hosts
}

// tomlError keeps the place of an error and drops the text, which may quote
// a credential.
func tomlError(err error) error {
	if d := (*toml.DecodeError)(nil); errors.As(err, &d) {
		line, column := d.Position()
		return fmt.Errorf("line %d, column %d is not TOML that cargo reads", line, column)
	}
	return errors.New("not TOML that cargo reads")
}
