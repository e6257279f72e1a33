package node

import (
	"context"
	"errors"
	"flag"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/mojoup/mojoup-node/internal/client"
	"github.com/mojoup/mojoup-node/pkg/sandbox/kerneltest"
)

func TestMain(m *testing.M) {
	if os.Getenv(diesAt) != "" {
		os.Exit(doomed())
	}
	flag.Parse()
	_ = flag.Set("test.parallel", strconv.Itoa(kerneltest.Rounds(5, 10))) // those that may run beside others wait more than they compute
	os.Exit(m.Run())
}

// tree lists everything below dir.
func tree(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		out = append(out, path+" "+d.Type().String())
		return err
	}))
	return out
}

// B99: two nodes that start at the same moment are one daemon and one clear
// refusal, however the race goes.
func TestB99TwoStarts(t *testing.T) {
	for range 10 {
		w := newWorld(t)
		over := make(chan error, 2)
		ready := make(chan struct{}, 2)
		ctx, cancel := context.WithCancel(t.Context())
		for range 2 {
			o := w.options(t, newStub())
			o.Ready = func() { ready <- struct{}{} }
			n, err := New(o)
			must(t, err)
			go func() { over <- n.Serve(ctx) }()
		}
		<-ready
		if err := <-over; !errors.Is(err, ErrRunning) {
			t.Errorf("the second one said %v", err)
		}
		if _, err := client.New(w.paths.Socket()).Status(t.Context()); err != nil {
			t.Errorf("the first one does not answer: %v", err)
		}
		cancel()
		must(t, <-over)
	}
}

// B99: a dead node's socket is cleared by the start; anything else in its
// place is not touched.
func TestB99WhatLiesInTheWay(t *testing.T) {
	w := newWorld(t)
	must(t, os.MkdirAll(w.paths.Runtime, 0o700))
	ln, err := net.Listen("unix", w.paths.Socket())
	must(t, err)
	ln.(*net.UnixListener).SetUnlinkOnClose(false)
	must(t, ln.Close())
	r := w.serve(t, w.options(t, newStub()))
	if _, err := r.client.Status(t.Context()); err != nil {
		t.Errorf("behind a stale socket: %v", err)
	}
	r.end()
	must(t, r.wait(t))

	must(t, os.WriteFile(w.paths.Socket(), []byte("mine"), 0o600))
	n, err := New(w.options(t, newStub()))
	must(t, err)
	if err := n.Serve(t.Context()); err == nil || !strings.Contains(err.Error(), "is in the way") {
		t.Errorf("with a file in the way: %v", err)
	}
	if b, err := os.ReadFile(w.paths.Socket()); err != nil || string(b) != "mine" {
		t.Errorf("the file is %q, %v", b, err)
	}
}

// A runtime directory of somebody else is refused: whoever owns it could put
// a socket of their own there.
func TestRuntimeDirectoryOfSomebodyElse(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("wanted root, which can make such a directory")
	}
	w := newWorld(t)
	must(t, os.MkdirAll(w.paths.Runtime, 0o700))
	must(t, os.Chown(w.paths.Runtime, 1000, 1000))
	n, err := New(w.options(t, newStub()))
	must(t, err)
	if err := n.Serve(t.Context()); err == nil || !strings.Contains(err.Error(), w.paths.Runtime) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Lstat(w.paths.State); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a refused start made the state directory: %v", err)
	}
}
