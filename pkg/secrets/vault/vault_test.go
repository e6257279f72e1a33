//go:build unix

package vault

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/mojoup/mojoup-node/pkg/secrets"
	"github.com/mojoup/mojoup-node/pkg/secrets/keyringtest"
	"github.com/mojoup/mojoup-node/pkg/secrets/source"
)

const key = "sk-ant-api03-CANARY-0123456789abcdef"

func value(s string) secrets.Value { return secrets.NewValue([]byte(s)) }

func entry(name string, owner int) Entry {
	return Entry{Name: name, Owner: owner, Binding: secrets.Binding{Hosts: []string{"api.x.example"}}, Source: source.Reference{Kind: source.Store}, Set: time.Unix(1, 0).UTC()}
}

func open(t *testing.T, env map[string]string) *Vault {
	t.Helper()
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", "unix:path=/none/such")
	v := New(filepath.Join(t.TempDir(), "state"))
	v.Getenv = func(name string) string { return env[name] }
	return v
}

func has(t *testing.T, v *Vault, owner int, name, want string) {
	t.Helper()
	_, got, err := v.Get(t.Context(), owner, name)
	if err != nil || string(got.RevealForTheWire()) != want {
		t.Errorf("%s of %d: %v", name, owner, err)
	}
}

// TestD18_SecretsBelongToTheirPerson and are replaced and removed as theirs.
func TestD18_SecretsBelongToTheirPerson(t *testing.T) {
	v, ctx := open(t, nil), t.Context()
	if all, err := v.List(ctx, 1); len(all) != 0 || err != nil {
		t.Error(all, err)
	}
	for _, e := range []Entry{entry("A", 1), entry("B", 1), entry("A", 2)} {
		if err := v.Put(ctx, e, value(key+e.Name+string(rune('0'+e.Owner)))); err != nil {
			t.Fatal(err)
		}
	}
	has(t, v, 1, "A", key+"A1")
	has(t, v, 2, "A", key+"A2")
	if err := v.Put(ctx, entry("A", 1), value(key+"new")); err != nil {
		t.Fatal(err)
	}
	has(t, v, 1, "A", key+"new")
	has(t, v, 2, "A", key+"A2")
	if err := v.Remove(ctx, 2, "B"); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	if err := v.Remove(ctx, 1, "A"); err != nil {
		t.Error(err)
	}
	if _, _, err := v.Get(ctx, 1, "A"); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	all, err := New(v.dir).List(ctx, 1)
	if err != nil || len(all) != 1 || all[0].Name != "B" || all[0].Binding.Hosts[0] != "api.x.example" {
		t.Errorf("%+v %v", all, err)
	}
}

// TestD19_TheStoreIsEncryptedAtRest: neither key, name nor host stands in any
// file, and every file is its user's alone.
func TestD19_TheStoreIsEncryptedAtRest(t *testing.T) {
	v, ctx := open(t, nil), t.Context()
	if err := v.Put(ctx, entry("MY_NAME", 1), value(key)); err != nil {
		t.Fatal(err)
	}
	files, _ := os.ReadDir(v.dir)
	if len(files) != 2 {
		t.Errorf("%d files", len(files))
	}
	for _, f := range files {
		text, err := os.ReadFile(filepath.Join(v.dir, f.Name()))
		info, _ := f.Info()
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", f.Name(), info.Mode(), err)
		}
		for _, word := range []string{"CANARY", "MY_NAME", "x.example"} {
			if strings.Contains(string(text), word) {
				t.Errorf("%s holds %s", f.Name(), word)
			}
		}
	}
	if how, err := v.Protection(); err != nil || !strings.HasPrefix(how, "encrypted against copies, not against this user") {
		t.Error(how, err)
	}
}

func TestStoresThatCannotBeUsed(t *testing.T) {
	for name, tt := range map[string]struct {
		harm func(v *Vault) error
		want string
	}{
		"no key": {func(v *Vault) error { return os.Remove(v.path(keyName)) }, "is gone"},
		"another key": {func(v *Vault) error {
			id, _ := age.GenerateX25519Identity()
			return os.WriteFile(v.path(keyName), []byte(id.String()), 0o600)
		}, "cannot be decrypted"},
		"no such key": {func(v *Vault) error { return os.WriteFile(v.path(keyName), []byte("x"), 0o600) }, "is damaged"},
		"cut":         {func(v *Vault) error { return os.Truncate(v.path(fileName), 100) }, "is damaged"},
		"open to all": {func(v *Vault) error { return os.Chmod(v.path(keyName), 0o644) }, "others may read"},
		"a link": {func(v *Vault) error {
			return errors.Join(os.Rename(v.path(fileName), v.path("x")), os.Symlink("x", v.path(fileName)))
		}, "symbolic links"},
		"newer":        {func(v *Vault) error { return os.WriteFile(v.path(fileName), []byte(`{"version":2}`), 0o600) }, "newer version"},
		"unknown kind": {func(v *Vault) error { return os.WriteFile(v.path(fileName), []byte(`{"version":1,"key":"x"}`), 0o600) }, "unknown kind"},
	} {
		v := open(t, nil)
		if err := errors.Join(v.Put(t.Context(), entry("A", 1), value(key)), tt.harm(v)); err != nil {
			t.Fatal(err)
		}
		_, err := v.List(t.Context(), 1)
		perr := v.Put(t.Context(), entry("B", 1), value(key))
		if err == nil || !strings.Contains(err.Error(), tt.want) || perr == nil {
			t.Errorf("%s: %v, %v", name, err, perr)
		}
	}
	v := open(t, nil)
	if v.Put(t.Context(), Entry{Name: "A", Source: source.Reference{Kind: source.Store}}, value(key)) == nil || v.Put(t.Context(), entry("A", 1), value("short")) == nil {
		t.Error("what cannot be a secret is kept")
	}
}

// TestAStoreHasRoomForEverybody: what would not be read again is not written, and
// nobody takes the room of others.
func TestAStoreHasRoomForEverybody(t *testing.T) {
	v := open(t, nil)
	long := entry("", 0)
	for i := range 7000 {
		long.Binding.Hosts = append(long.Binding.Hosts, fmt.Sprintf("h%d.%s.example", i, strings.Repeat("a", 50)))
	}
	put := func(name string, owner int) error {
		e := long
		e.Name, e.Owner = name, owner
		return v.Put(t.Context(), e, value(key))
	}
	for owner := range 1000 {
		if err := put("A", owner); err != nil {
			if owner < 10 || !strings.Contains(err.Error(), "is full") {
				t.Errorf("owner %d: %v", owner, err)
			}
			break
		}
		if owner > 0 {
			continue
		}
		if err := put("B", owner); err == nil || !strings.Contains(err.Error(), "your secrets would take more than 512 KiB") {
			t.Fatalf("owner %d has two: %v", owner, err)
		}
	}
	has(t, v, 0, "A", key)
	if err := errors.Join(v.Remove(t.Context(), 0, "A"), put("C", 0)); err != nil {
		t.Error(err)
	}
}

func TestKeyFromACredential(t *testing.T) {
	dir := t.TempDir()
	id, _ := age.GenerateX25519Identity()
	if err := os.WriteFile(filepath.Join(dir, credentialName), []byte(id.String()+"\n"), 0o400); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"CREDENTIALS_DIRECTORY": dir}
	v := open(t, env)
	if err := v.Put(t.Context(), entry("A", 1), value(key)); err != nil {
		t.Fatal(err)
	}
	has(t, v, 1, "A", key)
	if _, err := os.Stat(v.path(keyName)); err == nil {
		t.Error("there is a file with the key as well")
	}
	delete(env, "CREDENTIALS_DIRECTORY")
	if _, err := v.List(t.Context(), 1); err == nil || !strings.Contains(err.Error(), "not given") {
		t.Error(err)
	}
}

func TestKeyFromAKeyring(t *testing.T) {
	keyringtest.Start(t)
	v := New(filepath.Join(t.TempDir(), "state"))
	if err := v.Put(t.Context(), entry("A", 1), value(key)); err != nil {
		t.Fatal(err)
	}
	has(t, v, 1, "A", key)
	if how, _ := v.Protection(); !strings.Contains(how, "keyring") {
		t.Error(how)
	}
	keyringtest.Lock(t)
	if _, err := v.List(t.Context(), 1); err == nil || !strings.Contains(err.Error(), "the keyring is locked") {
		t.Error(err)
	}
}
