//go:build unix

package source

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mojoup/mojoup-node/pkg/secrets"
	"github.com/mojoup/mojoup-node/pkg/secrets/keyringtest"
)

const key = "sk-ant-api03-CANARY-0123456789abcdef"

func read(t *testing.T, o Reader, r Reference) (string, error) {
	t.Helper()
	v, err := o.Read(t.Context(), r)
	if err != nil {
		if strings.Contains(err.Error(), "CANARY") {
			t.Errorf("the error holds the key: %v", err)
		}
		return "", err
	}
	return string(v.RevealForTheWire()), nil
}

func wantError(t *testing.T, err error, words string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), words) {
		t.Errorf("got %v, want %q", err, words)
	}
}

func TestVariables(t *testing.T) {
	o := Reader{Getenv: func(name string) string {
		return map[string]string{"KEY": key, "SHORT": "x", "TWO": "a b c d e f g h i j"}[name]
	}}
	if got, err := read(t, o, Reference{Env, "KEY"}); got != key {
		t.Error(got, err)
	}
	_, err := read(t, o, Reference{Env, "NONE"})
	wantError(t, err, "NONE is not set")
	_, err = read(t, o, Reference{Env, "SHORT"})
	wantError(t, err, "too short")
	_, err = read(t, o, Reference{Env, "TWO"})
	wantError(t, err, "a header cannot hold")
	_, err = read(t, Reader{}, Reference{Env, "KEY"})
	wantError(t, err, "is not set")
}

func TestReferencesThatCannotBe(t *testing.T) {
	for _, r := range []Reference{{}, {"other", "x"}, {Env, ""}, {Env, "A=B"}, {File, "rel"}, {File, ""}, {Keyring, "x"}, {Keyring, "=x"}, {Command, "a\nb"}} {
		if r.Check() == nil {
			t.Errorf("%+v is taken", r)
		}
	}
}

func TestFilesAreTheirPersonsAlone(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string, mode os.FileMode) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(p, mode); err != nil {
			t.Fatal(err)
		}
		return p
	}
	for _, end := range []string{"", "\n", "\r\n"} {
		if got, err := read(t, Reader{}, Reference{File, file("good", key+end, 0o600)}); got != key {
			t.Errorf("%q %v", got, err)
		}
	}
	if err := os.Symlink(filepath.Join(dir, "good"), filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if got, err := read(t, Reader{}, Reference{File, filepath.Join(dir, "link")}); got != key {
		t.Errorf("through a link: %q %v", got, err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, words := range map[string]string{
		file("group", key, 0o640): "others may read", file("all", key, 0o604): "others may read", filepath.Join(dir, "pipe"): "not a regular file",
		dir: "not a regular file", filepath.Join(dir, "none"): "no such file", file("long", strings.Repeat("a", secrets.MaxLength+3), 0o600): "longer than a key",
		file("empty", "", 0o600): "empty", file("two", key+"\n"+key+"\n", 0o600): "a header cannot hold",
	} {
		_, err := read(t, Reader{}, Reference{File, path})
		wantError(t, err, words)
	}
	if os.Geteuid() == 0 {
		p := file("other", key, 0o600)
		if err := os.Chown(p, 12345, -1); err != nil {
			t.Fatal(err)
		}
		_, err := read(t, Reader{}, Reference{File, p})
		wantError(t, err, "belongs to somebody else")
	}
}

func TestCommands(t *testing.T) {
	o := Reader{Cache: &Cache{}}
	if got, err := read(t, o, Reference{Command, "echo " + key}); got != key {
		t.Error(got, err)
	}
	for line, words := range map[string]string{
		"echo " + key + "; exit 3": "exit status 3", "true": "wrote nothing", "echo; echo CANARY >&2": "wrote nothing", "/none/such": "exit status 127",
		"head -c 100000 /dev/zero | tr '\\0' a": "more than a key", "kill -9 $$": "signal: killed",
	} {
		_, err := read(t, o, Reference{Command, line})
		wantError(t, err, words)
	}
}

// TestB88_WhatACommandsEndSays: a key is withdrawn where a command has ended by itself
// and given none. One that was killed, or could not be run, takes nothing away.
func TestB88_WhatACommandsEndSays(t *testing.T) {
	for line, none := range map[string]bool{
		"exit 1": true, "exit 4": true, "exit 125": true, "exit 128": true, "exit 255": true, "true": true, "echo": true, "echo " + key + "; exit 1": true,
		"kill -9 $$": false, "kill -TERM $$": false, "/bin/sh -c 'kill -9 $$'; exit $?": false, "exit 192": false,
		"/none/such": false, "exec /none/such": false, "exec /etc/passwd": false, "head -c 100000 /dev/zero": false,
	} {
		_, err := read(t, Reader{}, Reference{Command, line})
		if e, ok := errors.AsType[*Error](err); !ok || e.None() != none || Gone(err) {
			t.Errorf("%s: none: %t, %v", line, ok && e.None(), err)
		}
	}
	late, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	_, err := Reader{}.Read(late, Reference{Command, "exit 1"})
	if e, ok := errors.AsType[*Error](err); !ok || e.None() {
		t.Errorf("too late: %v", err)
	}
}

// TestLateCommandsEnd with all that they have started.
func TestLateCommandsEnd(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	started := filepath.Join(dir, "started")
	if err := syscall.Mkfifo(started, 0o600); err != nil {
		t.Fatal(err)
	}
	go func() {
		b, _ := os.ReadFile(started)
		_ = b
		cancel()
	}()
	_, err := Reader{}.Read(ctx, Reference{Command, "echo x >" + started + "; sleep 1000 & sleep 1000"})
	wantError(t, err, "did not end")
}

// TestCommandsAreCached, by the clock, and run anew when told to.
func TestCommandsAreCached(t *testing.T) {
	count := filepath.Join(t.TempDir(), "count")
	now := time.Unix(1, 0)
	o := Reader{Cache: &Cache{Now: func() time.Time { return now }}}
	line := Reference{Command, "echo x >>" + count + "; echo " + key + "-$(wc -l <" + count + ")"}
	ask := func(want string) {
		t.Helper()
		got, err := read(t, o, line)
		if err != nil || got != key+"-"+want {
			t.Errorf("got %q %v, want …%s", got, err, want)
		}
	}
	ask("1")
	now = now.Add(4 * time.Minute)
	ask("1")
	now = now.Add(2 * time.Minute)
	ask("2")
	o.Cache.Forget()
	ask("3")
}

// TestKeyringOfADesktop asks a real one.
func TestKeyringOfADesktop(t *testing.T) {
	keyringtest.Start(t)
	ctx := t.Context()
	mine := map[string]string{"service": "x.example", "account": "me"}
	if err := StoreKeyringItem(ctx, "a key", mine, secrets.NewValue([]byte(key))); err != nil {
		t.Fatal(err)
	}
	if err := StoreKeyringItem(ctx, "another", map[string]string{"service": "x.example", "account": "you"}, secrets.NewValue([]byte(key+"2"))); err != nil {
		t.Fatal(err)
	}
	if got, err := read(t, Reader{}, Reference{Keyring, "service=x.example, account=me"}); got != key {
		t.Error(got, err)
	}
	_, err := read(t, Reader{}, Reference{Keyring, "service=x.example"})
	wantError(t, err, "2 items")
	_, err = read(t, Reader{}, Reference{Keyring, "service=none"})
	wantError(t, err, "has no item")
	if v, found, err := KeyringItem(ctx, mine); !found || err != nil || v.Len() != len(key) {
		t.Error(found, err)
	}
	if _, found, err := KeyringItem(ctx, map[string]string{"no": "such"}); found || err != nil {
		t.Error(found, err)
	}
	keyringtest.Lock(t)
	_, err = read(t, Reader{}, Reference{Keyring, "service=x.example,account=me"})
	wantError(t, err, "the keyring is locked")
	wantError(t, StoreKeyringItem(ctx, "x", mine, secrets.NewValue([]byte(key))), "the keyring is locked")
}

func TestNoKeyring(t *testing.T) {
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", "unix:path=/none/such")
	_, err := read(t, Reader{}, Reference{Keyring, "service=x"})
	wantError(t, err, "no keyring answers")
}
