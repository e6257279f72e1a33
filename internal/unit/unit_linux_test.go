package unit

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// The asking itself is run by `make test-vm`, where there is a service manager.

func TestNothingToAsk(t *testing.T) {
	if name, err := Divide(t.Context(), Person{Name: "nobody-of-this-name", UID: 4_000_000, Runtime: t.TempDir()}); name != "" || err != nil {
		t.Errorf("%q, %v", name, err)
	}
}

// A service manager that is not there, hangs up or says nothing costs a node no
// more than the wait that was set.
func TestManagerThatDoesNotAnswer(t *testing.T) {
	for name, serve := range map[string]func(net.Conn){
		"hangs up":     func(c net.Conn) { _ = c.Close() },
		"says nothing": func(net.Conn) {},
		"says nonsense": func(c net.Conn) {
			_, _ = c.Write([]byte("REJECTED EXTERNAL\r\nOK\r\n"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, err := os.MkdirTemp("/tmp", "unit") // a socket's path is short
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
			if err := os.Mkdir(filepath.Join(dir, "systemd"), 0o700); err != nil {
				t.Fatal(err)
			}
			ln, err := net.Listen("unix", filepath.Join(dir, "systemd/private"))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = ln.Close() })
			go func() {
				for {
					c, err := ln.Accept()
					if err != nil {
						return
					}
					go serve(c)
				}
			}()
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			began := time.Now()
			if got, err := ask(ctx, Person{Name: "me", UID: os.Getuid(), Runtime: dir}); err == nil {
				t.Errorf("made %q", got)
			}
			if took := time.Since(began); took > 10*within {
				t.Errorf("took %s", took)
			}
		})
	}
}
