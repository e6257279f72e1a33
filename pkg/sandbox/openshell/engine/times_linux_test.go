package engine

import (
	"cmp"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// TestRealTimes measures a start on the gateway that MOJOUP_TEST_GATEWAY names
// beside the one of its own command line, MOJOUP_TEST_OPENSHELL, in turn. It
// only says what it saw: docs/benchmarks.md has the figures.
func TestRealTimes(t *testing.T) {
	at, cli := os.Getenv("MOJOUP_TEST_GATEWAY"), os.Getenv("MOJOUP_TEST_OPENSHELL")
	if at == "" || cli == "" {
		t.Skip("wanted MOJOUP_TEST_GATEWAY, found none")
	}
	image := cmp.Or(os.Getenv("MOJOUP_TEST_GATEWAY_IMAGE"), "mojoup-test-base:latest")
	e := realEngine(t, at, image)
	times := map[string][]time.Duration{}
	took := func(what string, f func()) {
		began := time.Now()
		f()
		times[what] = append(times[what], time.Since(began))
	}
	for i := range 8 {
		spec := adapt(t, plainSpec(t, fmt.Sprintf("times-%d", i)))
		var b sandbox.Sandbox
		var err error
		took("our start", func() {
			took("our Prepare", func() { b, err = e.Prepare(bounded(t), spec) })
			if err != nil {
				t.Fatal(err)
			}
			go healthy(b.Listener())
			took("our check", func() {
				if _, err := b.Check(bounded(t)); err != nil {
					t.Fatal(err)
				}
			})
			took("our first command", func() { run(t, b) })
		})
		<-b.(*box).answers
		times["way out open, from asked"] = append(times["way out open, from asked"], time.Since(b.(*box).times.asked))
		for range 5 {
			took("our command", func() { run(t, b) })
		}
		created := b.(*box).times
		times["asked to create sent"] = append(times["asked to create sent"], created.created.Sub(created.asked))
		times["create sent to helper there"] = append(times["create sent to helper there"], created.met.Sub(created.created))
		times["helper there to prepared"] = append(times["helper there to prepared"], created.ready.Sub(created.met))
		took("our Remove", func() {
			if err := b.Remove(bounded(t)); err != nil {
				t.Fatal(err)
			}
		})
		_ = b.Listener().Close()
		name := fmt.Sprintf("cli-%d-%d", os.Getpid()%10000, i)
		openshell := func(args ...string) {
			cmd := exec.CommandContext(bounded(t), cli, args...)
			cmd.Env = append(os.Environ(), "OPENSHELL_GATEWAY_ENDPOINT="+at, "NO_COLOR=1")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("openshell %q: %v\n%s", args, err, out)
			}
		}
		took("its start", func() {
			took("its create", func() {
				openshell("sandbox", "create", "--name", name, "--from", image, "--no-tty", "--detach", "--policy", os.Getenv("MOJOUP_TEST_OPENSHELL_POLICY"), "--", "sleep", "600")
			})
			took("its first command", func() { openshell("sandbox", "exec", "-n", name, "--no-tty", "--", "true") })
		})
		took("its command", func() { openshell("sandbox", "exec", "-n", name, "--no-tty", "--", "true") })
		openshell("sandbox", "delete", name)
	}
	for _, what := range []string{"our start", "its start", "our Prepare", "asked to create sent", "create sent to helper there", "helper there to prepared", "its create", "our check", "way out open, from asked", "our first command", "its first command", "our command", "its command", "our Remove"} {
		all := times[what]
		slices.Sort(all)
		t.Logf("%-28s p50 %8.1f ms   from %8.1f to %8.1f", what, ms(all[len(all)/2]), ms(all[0]), ms(all[len(all)-1]))
	}
}

// healthy answers as a node's proxy does when it is asked for itself.
func healthy(ln net.Listener) {
	for {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		_, _ = conn.Read(make([]byte, 4096))
		_, _ = conn.Write([]byte("HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"))
		_ = conn.Close()
	}
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func run(t *testing.T, b sandbox.Sandbox) {
	t.Helper()
	p, err := b.Exec(bounded(t), sandbox.Command{Argv: []string{"true"}}, sandbox.Stdio{})
	if err != nil {
		t.Fatal(err)
	}
	if exit, err := p.Wait(bounded(t)); err != nil || exit.Code != 0 {
		t.Fatalf("%+v %v", exit, err)
	}
}
