package trial

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mojoup/mojoup-node/pkg/capability"
	"github.com/mojoup/mojoup-node/pkg/sandbox/kerneltest"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/daemon"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/gatewaytest"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/product"
)

// TestWhatAContainerSaw reads what a container of the trial says, whatever that is.
func TestWhatAContainerSaw(t *testing.T) {
	const word, at = "QZ7", "172.18.0.1"
	for name, tt := range map[string]struct {
		said     string
		connects bool
		problem  string // part of the sentence; empty where all is well
		mend     string
	}{
		"all is well":               {"QZ7\nQZ7\n", true, "", ""},
		"no network to try":         {"QZ7\n", false, "", ""},
		"sees another file":         {"old\nQZ7\n", true, "Docker does not see the files", "of this machine"},
		"sees none":                 {"blind\nQZ7\n", true, "Docker does not see the files", "of this machine"},
		"sees and hears nothing":    {"blind\ndeaf\n", true, "Docker does not see the files", "of this machine"},
		"says nothing":              {"", true, "Docker does not see the files", "of this machine"},
		"hears nothing":             {"QZ7\ndeaf\n", true, "cannot reach this node at " + at, "ufw allow in on br-+ to " + at},
		"breaks off":                {"QZ7\n", true, "cannot reach this node at " + at, "firewall-cmd"},
		"hears somebody else":       {"QZ7\nHTTP/1.1\n", true, "cannot reach this node at " + at, "ufw"},
		"no network, says too much": {"QZ7\ndeaf\n", false, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := judgeSight(strings.Fields(tt.said), word, tt.connects, at)
			if tt.problem == "" {
				if err != nil {
					t.Errorf("got %v", err)
				}
				return
			}
			var hint interface{ Hint() string }
			if err == nil || !strings.Contains(err.Error(), tt.problem) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v", err)
			} else if !errors.As(err, &hint) || !strings.Contains(hint.Hint(), tt.mend) {
				t.Errorf("no mend in %+v", err)
			}
		})
	}
}

// TestVersionOfTheCommandLine takes the last word that it says, and is not held up
// by one that says none.
func TestVersionOfTheCommandLine(t *testing.T) {
	for name, tt := range map[string]struct {
		script, want, problem string
	}{
		"as it is":      {"echo openshell 0.0.111", "0.0.111", ""},
		"of a build":    {"echo openshell 0.0.112-dev.7+g2f7fb6559", "0.0.112-dev.7+g2f7fb6559", ""},
		"no colour":     {`echo "v$NO_COLOR"`, "v1", ""},
		"asked right":   {`test "$1" = --version && echo yes`, "yes", ""},
		"complains too": {"echo a warning >&2; echo openshell 0.1.5", "0.1.5", ""},
		"says nothing":  {"true", "", "it says nothing when asked for its version"},
		"fails":         {"echo 0.0.1; exit 3", "", "asking for its version: exit status 3"},
	} {
		t.Run(name, func(t *testing.T) {
			program := filepath.Join(t.TempDir(), product.Program)
			if err := os.WriteFile(program, []byte("#!/bin/sh\n"+tt.script+"\n"), 0o700); err != nil {
				t.Fatal(err)
			}
			got, err := CLIVersion(t.Context(), program)
			if got != tt.want || (err == nil) != (tt.problem == "") || err != nil && err.Error() != tt.problem {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
	if _, err := CLIVersion(t.Context(), filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("what is not there has a version")
	}
}

func TestRegistered(t *testing.T) {
	lost := errors.New("no gateway is registered")
	for name, tt := range map[string]struct {
		reg  openshell.Registration
		err  error
		want string
	}{
		"by name":          {openshell.Registration{Name: "mine", Endpoint: "https://127.0.0.1:1"}, nil, "mine at https://127.0.0.1:1; registered"},
		"by a variable":    {openshell.Registration{Endpoint: "http://127.0.0.1:2"}, nil, "http://127.0.0.1:2 (from OPENSHELL_GATEWAY_ENDPOINT); registered"},
		"not at all":       {openshell.Registration{}, lost, ""},
		"half, and broken": {openshell.Registration{Name: "mine"}, lost, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := New(Options{Discover: func() (openshell.Registration, error) { return tt.reg, tt.err }}).Registered()
			if got != tt.want || !errors.Is(err, tt.err) {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}

// A gateway says what the fields hold, and is asked nothing else.
type gateway struct {
	openshell.Client
	about   openshell.Gateway
	info    openshell.Info
	infoErr error

	create           error
	asked            openshell.Request
	deletes, waits   int
	deleteErr, still error
}

func (g *gateway) Gateway() openshell.Gateway                   { return g.about }
func (g *gateway) Info(context.Context) (openshell.Info, error) { return g.info, g.infoErr }
func (g *gateway) Close() error                                 { return nil }
func (g *gateway) Delete(context.Context, openshell.Ref) error  { g.deletes++; return g.deleteErr }
func (g *gateway) Gone(ctx context.Context, _ openshell.Ref) error {
	g.waits++
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return g.still
}

func (g *gateway) Create(_ context.Context, r openshell.Request) (openshell.Record, error) {
	g.asked = r
	return openshell.Record{Ref: openshell.Ref{ID: "id", Name: r.Name}}, g.create
}

func trialOf(t *testing.T, g *gateway, err error) *Trial {
	t.Helper()
	a := New(Options{
		Connect: func(context.Context) (openshell.Client, error) {
			if err != nil {
				return nil, err
			}
			return g, nil
		},
		Node: "node", Staging: filepath.Join(t.TempDir(), "staging"), Within: 1 << 40,
	})
	t.Cleanup(a.Close)
	return a
}

func TestAnswer(t *testing.T) {
	away := errors.New("it does not answer")
	about := openshell.Gateway{Version: "0.0.111", Generation: openshell.V00}
	for name, tt := range map[string]struct {
		g    *gateway
		err  error // of connecting
		want capability.GatewayAnswer
		fail error
	}{
		"in full":           {g: &gateway{about: about, info: openshell.Info{Drivers: []openshell.Driver{{Name: "docker"}, {Name: "podman"}}}}, want: capability.GatewayAnswer{Version: "0.0.111", Family: "0.0.x", Drivers: []string{"docker", "podman"}}},
		"no drivers":        {g: &gateway{about: about}, want: capability.GatewayAnswer{Version: "0.0.111", Family: "0.0.x", Drivers: []string{}}},
		"may not be asked":  {g: &gateway{about: about, infoErr: &openshell.Error{Code: openshell.Forbidden}}, want: capability.GatewayAnswer{Version: "0.0.111", Family: "0.0.x"}},
		"ends while asked":  {g: &gateway{about: about, infoErr: away}, want: capability.GatewayAnswer{Version: "0.0.111", Family: "0.0.x"}, fail: away},
		"cannot be reached": {err: away, fail: away},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := trialOf(t, tt.g, tt.err).Answer(t.Context())
			if !errors.Is(err, tt.fail) || (err == nil) != (tt.fail == nil) {
				t.Errorf("got %v", err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestBinds: what is refused is the answer, what is taken is taken back, and that
// also where whoever asked has lost patience.
func TestBinds(t *testing.T) {
	refused, stays := &openshell.Error{Code: openshell.BindsOff}, errors.New("it stays")
	for name, tt := range map[string]struct {
		g              *gateway
		want           error
		deletes, waits int
	}{
		"taken":          {&gateway{}, nil, 1, 1},
		"refused":        {&gateway{create: refused}, refused, 0, 0},
		"not taken back": {&gateway{deleteErr: stays}, stays, 1, 0},
		"does not go":    {&gateway{still: stays}, stays, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			a := trialOf(t, tt.g, nil)
			if _, err := a.gateway(ctx); err != nil {
				t.Fatal(err)
			}
			cancel()
			if err := a.Binds(ctx); !errors.Is(err, tt.want) {
				t.Errorf("got %v", err)
			}
			if tt.g.deletes != tt.deletes || tt.g.waits != tt.waits {
				t.Errorf("deleted %d times, waited %d times", tt.g.deletes, tt.g.waits)
			}
			r := tt.g.asked
			if len(r.Mounts) != 1 || !r.Mounts[0].ReadOnly || r.Labels[openshell.LabelNode] != "node" || !strings.HasPrefix(r.Image, "mojoup.invalid/") || len(r.Ways) > 0 {
				t.Errorf("asked for %+v", r)
			}
		})
	}
}

// TestAskedTooLate: once closed it connects to nobody.
func TestAskedTooLate(t *testing.T) {
	a := New(Options{Connect: func(context.Context) (openshell.Client, error) { t.Error("it connects"); return nil, nil }})
	a.Close()
	if _, err := a.Answer(t.Context()); err == nil {
		t.Error("it answers")
	}
}

// TestAnImageThatIsNotHereYet is no reason to run no sandboxes where the one who
// keeps it would give it, and is one everywhere else.
func TestAnImageThatIsNotHereYet(t *testing.T) {
	kerneltest.Long(t)
	gatewaytest.Docker(t)
	manifest := []byte(`{"schemaVersion": 2, "mediaType": "application/vnd.docker.distribution.manifest.v2+json", "config": {"mediaType": "application/vnd.docker.container.image.v1+json", "size": 2, "digest": "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}, "layers": []}`)
	keeper := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/v2/":
		case strings.HasPrefix(r.URL.Path, "/v2/mojoup/kept/manifests/"):
			w.Header().Set("Content-Type", "application/vnd.docker.distribution.manifest.v2+json")
			w.Header().Set("Docker-Content-Digest", fmt.Sprintf("sha256:%x", sha256.Sum256(manifest)))
			_, _ = w.Write(manifest)
		case r.URL.Path == "/v2/mojoup/kept/blobs/sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a":
			_, _ = w.Write([]byte("{}"))
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(keeper.Close)
	at := strings.TrimPrefix(keeper.URL, "http://") + "/mojoup/"
	for name, tt := range map[string]struct {
		image string
		fetch bool
		later bool
	}{
		"kept":             {at + "kept:latest", true, true},
		"kept, made here":  {at + "kept:latest", false, false},
		"known to nobody":  {at + "other:latest", true, false},
		"nobody keeps any": {"127.0.0.1:1/mojoup/kept:latest", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			a := New(Options{Image: tt.image, Fetch: tt.fetch, Docker: func() (*daemon.Daemon, error) { return daemon.Connect(os.Getenv("DOCKER_HOST")) }})
			_, err := a.Image(t.Context())
			var later *capability.Later
			if err == nil || errors.As(err, &later) != tt.later || !strings.Contains(err.Error(), "Docker does not have it") {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestB68_AVersionThatLeavesSomethingRunning: a script that answers and ends is
// enough, whatever of it holds its output open; and one that never ends does so,
// with all that it has started, when nobody waits any longer.
func TestB68_AVersionThatLeavesSomethingRunning(t *testing.T) {
	dir := t.TempDir()
	fifo, program := filepath.Join(dir, "fifo"), filepath.Join(dir, "openshell")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for script, want := range map[string]string{
		"cat '" + fifo + "' & echo $! >'" + fifo + ".pid'; echo openshell 0.0.111": "0.0.111",
		"cat '" + fifo + "' | cat": "",
	} {
		if err := os.WriteFile(program, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		if want == "" {
			ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
		}
		said := make(chan string, 1)
		go func() {
			got, err := CLIVersion(ctx, program)
			if (err != nil) != (want == "") {
				t.Errorf("%s: %v", script, err)
			}
			said <- got
		}()
		select {
		case got := <-said:
			if got != want {
				t.Errorf("%s: said %q", script, got)
			}
		case <-time.After(time.Minute):
			t.Errorf("%s: held up by what it left running", script)
		}
		cancel()
	}
	left, err := os.ReadFile(fifo + ".pid")
	if err != nil {
		t.Fatal(err)
	}
	pid, _ := strconv.Atoi(strings.TrimSpace(string(left)))
	if pid < 2 || syscall.Kill(pid, syscall.SIGKILL) != nil {
		t.Errorf("what was left running, %q, is not there", left)
	}
}
