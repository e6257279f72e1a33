package capability

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// fakeDaemon is a Docker daemon on a socket of its own, as far as doctor asks.
type fakeDaemon struct {
	api, least, engine string
	status             int // where not 200, of every answer
}

func (d fakeDaemon) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Api-Version", d.api)
	w.Header().Set("Content-Type", "application/json")
	if d.status != 0 {
		w.WriteHeader(d.status)
		fmt.Fprint(w, `{"message":"broken \u001b[2J inside"}`)
		return
	}
	if strings.HasSuffix(r.URL.Path, "/_ping") {
		return
	}
	if asked, _, ok := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v"), "/"); !ok || !atLeast(asked, d.least) {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(w, `{"message":"client version %s is too old. Minimum supported API version is %s"}`, asked, d.least)
		return
	}
	fmt.Fprintf(w, `{"Version":%q,"ApiVersion":%q,"MinAPIVersion":%q}`, d.engine, d.api, d.least)
}

// listen serves handler on a unix socket and returns its DOCKER_HOST.
func listen(t *testing.T, handler http.Handler) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "docker.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: handler}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(l) }()
	t.Cleanup(func() { server.Close(); <-done })
	return "unix://" + path
}

// silent accepts and never answers.
func silent(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "docker.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		var open []net.Conn
		for {
			conn, err := l.Accept()
			if err != nil {
				break
			}
			open = append(open, conn)
		}
		for _, conn := range open {
			conn.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return "unix://" + path
}

// dockerHost is a good host that asks the real client for host.
func dockerHost(host string, variables map[string]string) Host {
	h := goodHost()
	h.Getenv = environment(variables)
	h.Limit = 2 * time.Minute
	h.Docker = func(ctx context.Context) DockerAnswer { return askDocker(ctx, host, time.Minute) }
	return h
}

func TestB06_DockerThatDoesNotAnswer(t *testing.T) {
	stale := filepath.Join(t.TempDir(), "stale.sock")
	l, err := net.Listen("unix", stale)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()

	tests := []struct {
		name, host, reason, mend string
		state                    State
	}{
		{"a no socket", "unix://" + filepath.Join(t.TempDir(), "none.sock"), "Docker is not running", "systemctl start docker", Fail},
		{"a stale socket", "unix://" + stale, "Docker is not running", "systemctl start docker", Fail},
		{"a nothing on a port", "tcp://" + closedPort(t), "Docker is not running", "systemctl start docker", Fail},
		{"c silent", silent(t), "Docker did not answer in time", "restart docker", Fail},
		{"d errors", listen(t, fakeDaemon{api: "1.51", status: 500}), "Docker answered with an error", "journalctl", Fail},
		{"d not Docker", listen(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404) })),
			"Docker answered with an error", "journalctl", Fail},
		{"e good", listen(t, fakeDaemon{api: "1.51", least: "1.24", engine: "28.5.2"}), "", "", OK},
	}
	seen := map[string]string{}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := dockerHost(tt.host, nil)
			if strings.HasSuffix(tt.name, "silent") {
				h.Docker = func(ctx context.Context) DockerAnswer { return askDocker(ctx, tt.host, 300*time.Millisecond) }
			}
			start := time.Now()
			r := Examine(t.Context(), h, Docker)
			if took := time.Since(start); took > 30*time.Second {
				t.Errorf("took %v", took)
			}
			c := check(t, h, NameDocker)
			if c.State != tt.state || c.Reason != tt.reason || !strings.Contains(c.Mend, tt.mend) {
				t.Errorf("%s: %q, found %q, mend %q; want %s: %q", c.State, c.Reason, c.Found, c.Mend, tt.state, tt.reason)
			}
			if strings.ContainsRune(allText(r), '\x1b') {
				t.Error("a terminal escape of the daemon came through")
			}
			// What it means once the engine is there.
			checks := with(r.Checks, NameGateway, OK, "")
			if _, v := Decide(checks, Docker); v.Able != (tt.state == OK) || v.Reason != tt.reason {
				t.Errorf("verdict %q", v)
			}
			if _, v := Decide(r.Checks, Native); !v.Able {
				t.Errorf("native is failed for Docker: %q", v)
			}
			seen[tt.reason] = tt.name
		})
	}
	if len(seen) != 4 {
		t.Errorf("%d different reasons: %v", len(seen), seen)
	}
}

// closedPort is an address of loopback at which nothing listens.
func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func TestB06_NoPermission(t *testing.T) {
	asOrdinaryUser(t, func(t *testing.T, dir string) {
		a := askDocker(t.Context(), "unix://"+filepath.Join(dir, "docker.sock"), time.Second)
		c := judgeDocker(a)
		if c.State != Fail || c.Reason != "this user may not talk to Docker: its socket belongs to the group root" {
			t.Errorf("%s: %q (%q)", c.State, c.Reason, c.Found)
		}
		if !strings.Contains(c.Mend, "usermod -aG root") {
			t.Errorf("mend %q", c.Mend)
		}
	}, func(dir string) error {
		l, err := net.Listen("unix", filepath.Join(dir, "docker.sock"))
		if err != nil {
			return err
		}
		t.Cleanup(func() { l.Close() })
		return os.Chmod(filepath.Join(dir, "docker.sock"), 0)
	})
}

func TestB07_VersionWindow(t *testing.T) {
	tests := []struct {
		name   string
		daemon fakeDaemon
		env    map[string]string
		state  State
		says   []string
	}{
		{"29", fakeDaemon{api: "1.52", least: "1.44", engine: "29.0.1"}, nil, OK, []string{"Engine 29.0.1, API 1.52"}},
		{"20.10", fakeDaemon{api: "1.41", least: "1.12", engine: "20.10.24"}, nil, Warn, []string{"API 1.41", "OpenShell's support matrix asks for Docker 28"}},
		{"27", fakeDaemon{api: "1.47", least: "1.24", engine: "27.5.1+dfsg"}, nil, Warn, []string{"OpenShell's support matrix"}},
		{"28", fakeDaemon{api: "1.48", least: "1.24", engine: "28.0.0"}, nil, OK, []string{"Engine 28.0.0"}},
		{"18.06", fakeDaemon{api: "1.38", least: "1.12", engine: "18.06.3"}, nil, Fail, []string{"API 1.38 found, 1.41", "oldest supported"}},
		{"from the future", fakeDaemon{api: "1.99", least: "1.90", engine: "40.0.0"}, nil, Fail, []string{"no API version that this version of the node knows"}},
		{"announces nothing", fakeDaemon{}, nil, Fail, []string{"too old"}},
		{"variable", fakeDaemon{api: "1.52", least: "1.44", engine: "29.0.1"}, map[string]string{"DOCKER_API_VERSION": "1.30"}, OK,
			[]string{"DOCKER_API_VERSION=1.30 is ignored"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for name, value := range tt.env {
				t.Setenv(name, value)
			}
			c := check(t, dockerHost(listen(t, tt.daemon), tt.env), NameDocker)
			text := c.Found + " | " + c.Reason
			if c.State != tt.state {
				t.Errorf("%s: %s", c.State, text)
			}
			for _, want := range tt.says {
				if !strings.Contains(text, want) {
					t.Errorf("%q does not say %q", text, want)
				}
			}
		})
	}
}

func TestDockerHostVariable(t *testing.T) {
	for _, host := range []string{"ssh://me@box", "nonsense", "tcp://a b:1", "npipe:////./pipe/docker_engine", "unix://"} {
		t.Run(host, func(t *testing.T) {
			c := check(t, dockerHost(host, nil), NameDocker)
			if c.State != Fail || c.Reason == "" || c.Mend == "" {
				t.Errorf("%s: %q, mend %q", c.State, c.Reason, c.Mend)
			}
		})
	}
}

func TestRootlessDockerIsPointedAt(t *testing.T) {
	h := dockerHost("unix:///nonexistent/docker.sock", map[string]string{"XDG_RUNTIME_DIR": "/run/user/1000"})
	h.Files = changed(map[string]string{"/run/user/1000/docker.sock": ""})
	if c := check(t, h, NameDocker); !strings.Contains(c.Mend, "export DOCKER_HOST=unix:///run/user/1000/docker.sock") {
		t.Errorf("mend %q", c.Mend)
	}
}

func TestRootlessDockerIsNotInvented(t *testing.T) {
	h := dockerHost("unix:///nonexistent/docker.sock", nil)
	h.Files = changed(map[string]string{"/docker.sock": ""})
	if c := check(t, h, NameDocker); strings.Contains(c.Mend, "DOCKER_HOST") {
		t.Errorf("mend %q", c.Mend)
	}
}

// TestAskingDockerLeavesNothing asks daemons of every kind and counts.
func TestAskingDockerLeavesNothing(t *testing.T) {
	hosts := []string{
		listen(t, fakeDaemon{api: "1.51", least: "1.24", engine: "28.5.2"}),
		listen(t, fakeDaemon{api: "1.51", status: 500}),
		silent(t), "unix:///nonexistent/docker.sock", "nonsense",
	}
	goroutines, before := runtime.NumGoroutine(), descriptors(t)
	for _, host := range hosts {
		askDocker(t.Context(), host, 100*time.Millisecond)
	}
	// The daemons' own ends are closed a moment after ours; silent keeps one.
	if !settled(goroutines) {
		t.Errorf("%d goroutines before, %d after", goroutines, runtime.NumGoroutine())
	}
	if after := descriptors(t); after > before+1 {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

// TestSilentBody is a daemon that answers its head and then stops.
func TestSilentBody(t *testing.T) {
	release := make(chan struct{})
	host := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Api-Version", "1.51")
		if strings.HasSuffix(r.URL.Path, "/_ping") {
			return
		}
		w.Header().Set("Content-Length", "1000")
		_, _ = io.WriteString(w, "{")
		w.(http.Flusher).Flush()
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}))
	defer close(release)
	if a := askDocker(t.Context(), host, 200*time.Millisecond); a.Trouble != DockerSilent {
		t.Errorf("trouble %q: %s", a.Trouble, a.Detail)
	}
}
