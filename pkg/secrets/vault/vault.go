// Package vault promises that what a node keeps of secrets lies encrypted on
// its disk: the keys themselves, and where keys that are kept elsewhere are
// found and may go. Each entry belongs to the person who set it.
//
//	v := vault.New(dir)
//	err := v.Put(ctx, entry, key)
//	entries, err := v.List(ctx, uid)
//
// The file is encrypted with age (X25519) to a key that comes from a systemd
// credential, else from the desktop's keyring, else from a file beside it that
// only its user can read. [Vault.Protection] says against whom that helps.
package vault

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"filippo.io/age"

	"github.com/mojoup/mojoup-node/pkg/secrets"
	"github.com/mojoup/mojoup-node/pkg/secrets/source"
)

// An Entry is what is known of one secret, without its key.
type Entry struct {
	Name    string           `json:"name"`
	Owner   int              `json:"owner"` // uid
	Binding secrets.Binding  `json:"binding"`
	Source  source.Reference `json:"source"`
	Set     time.Time        `json:"set"`
}

// An Error says why the store cannot be used.
type Error struct{ reason, hint string }

func (e *Error) Error() string { return e.reason }

// Hint is the next step for people.
func (e *Error) Hint() string { return e.hint }

// ErrNotFound says that the person has set no secret of that name.
var ErrNotFound = errors.New("no such secret")

// Where the key of a vault is kept.
const (
	keyCredential = "credential"
	keyKeyring    = "keyring"
	keyFile       = "file"
	// credentialName is the systemd credential that holds the key.
	credentialName = "mojoup.secrets"
)

const (
	fileName = "secrets.json"
	keyName  = "secrets.key"
	maxOwn   = 512 << 10            // of what is sealed, of one person
	maxPlain = 6 << 20              // of what is sealed
	maxFile  = maxPlain/3*4 + 1<<20 // sealed, in base64, with what belongs to it
	version  = 1
)

// envelope is the file. What it says in the open is how to open it.
type envelope struct {
	Version int    `json:"version"`
	Key     string `json:"key"`
	Sealed  []byte `json:"sealed"`
}

// sealedEntry is an entry as it lies in the sealed part.
type sealedEntry struct {
	Entry
	Value []byte `json:"value,omitempty"`
}

// A Vault is the store in one directory. It is safe for concurrent use within
// one process, which must be the only one.
type Vault struct {
	dir string
	// Getenv finds the credential's directory; nil means the process's own.
	Getenv func(string) string
	// mu guards the file.
	mu sync.Mutex
}

// New returns the store in dir, which need not exist yet, and reads nothing.
func New(dir string) *Vault { return &Vault{dir: dir, Getenv: os.Getenv} }

// List returns the entries of one person, by name.
func (v *Vault) List(ctx context.Context, owner int) ([]Entry, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	all, _, err := v.load(ctx)
	if err != nil {
		return nil, err
	}
	defer wipe(all)
	var out []Entry
	for _, e := range all {
		if e.Owner == owner {
			out = append(out, e.Entry)
		}
	}
	slices.SortFunc(out, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// There reports whether somebody has kept secrets in dir. It opens nothing.
func There(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, fileName))
	return err == nil
}

// A Stamp tells states of a vault apart without reading it.
type Stamp struct{ info fs.FileInfo }

// Stamp is that of now.
func (v *Vault) Stamp() Stamp {
	info, err := os.Lstat(v.path(fileName))
	if err != nil {
		return Stamp{}
	}
	return Stamp{info}
}

// Same reports whether nothing has been written in between.
func (s Stamp) Same(o Stamp) bool {
	if s.info == nil || o.info == nil {
		return s.info == o.info
	}
	return os.SameFile(s.info, o.info) && s.info.ModTime().Equal(o.info.ModTime()) && s.info.Size() == o.info.Size()
}

// Get returns one entry, and its key where that is in the store.
func (v *Vault) Get(ctx context.Context, owner int, name string) (Entry, secrets.Value, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	all, _, err := v.load(ctx)
	if err != nil {
		return Entry{}, secrets.Value{}, err
	}
	defer wipe(all)
	for _, e := range all {
		if e.Owner == owner && e.Name == name {
			return e.Entry, secrets.NewValue(bytes.Clone(e.Value)), nil
		}
	}
	return Entry{}, secrets.Value{}, ErrNotFound
}

// Put sets a secret, in place of one of the same name and person.
func (v *Vault) Put(ctx context.Context, e Entry, key secrets.Value) error {
	if err := errors.Join(e.Binding.Check(), e.Source.Check()); err != nil {
		return err
	}
	made := sealedEntry{Entry: e}
	if e.Source.Kind == source.Store {
		if err := secrets.CheckShape(key); err != nil {
			return err
		}
		made.Value = key.RevealForTheWire()
	}
	return v.edit(ctx, func(all []sealedEntry) ([]sealedEntry, error) {
		all = append(without(all, e.Owner, e.Name), made)
		return all, tooMuch(all, e.Owner)
	})
}

// tooMuch refuses more than one person may have: a store has room for those of
// many, and one that is too long could not be read again.
func tooMuch(all []sealedEntry, owner int) error {
	own := slices.DeleteFunc(slices.Clone(all), func(e sealedEntry) bool { return e.Owner != owner })
	plain, err := json.Marshal(own)
	if err != nil {
		return fmt.Errorf("encoding the secrets: %w", err)
	}
	clear(plain)
	if len(plain) > maxOwn {
		return &Error{fmt.Sprintf("your secrets would take more than %d KiB of the store, with what they are bound to", maxOwn>>10), "remove what is not needed any more, or bind a pattern instead of many hosts: mojoup-node secret list"}
	}
	return nil
}

// Remove forgets a secret.
func (v *Vault) Remove(ctx context.Context, owner int, name string) error {
	return v.edit(ctx, func(all []sealedEntry) ([]sealedEntry, error) {
		left := without(slices.Clone(all), owner, name)
		if len(left) == len(all) {
			return nil, ErrNotFound
		}
		return left, nil
	})
}

func without(all []sealedEntry, owner int, name string) []sealedEntry {
	return slices.DeleteFunc(all, func(e sealedEntry) bool { return e.Owner == owner && e.Name == name })
}

func wipe(all []sealedEntry) {
	for _, e := range all {
		clear(e.Value)
	}
}

// Protection says in one sentence against whom the encryption helps, or "" for
// a store that does not exist yet.
func (v *Vault) Protection() (string, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	env, err := v.read()
	switch {
	case err != nil || env.Version == 0:
		return "", err
	case env.Key == keyFile:
		return "encrypted against copies, not against this user: the key lies beside it in " + v.path(keyName), nil
	case env.Key == keyKeyring:
		return "encrypted with a key from the desktop's keyring", nil
	}
	return "encrypted with a key from a systemd credential", nil
}

func (v *Vault) path(name string) string { return filepath.Join(v.dir, name) }

// edit changes the entries and writes them.
func (v *Vault) edit(ctx context.Context, f func([]sealedEntry) ([]sealedEntry, error)) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	all, env, err := v.load(ctx)
	if err != nil {
		return err
	}
	defer wipe(all)
	if all, err = f(all); err != nil {
		return err
	}
	if env.Version == 0 {
		if env.Key, err = v.newKey(ctx); err != nil {
			return err
		}
	}
	id, err := v.identity(ctx, env.Key)
	if err != nil {
		return err
	}
	plain, err := json.Marshal(all)
	if err != nil {
		return fmt.Errorf("encoding the secrets: %w", err)
	}
	defer clear(plain)
	if len(plain) > maxPlain {
		return &Error{fmt.Sprintf("the store of secrets %s is full: %d MiB", v.path(fileName), maxPlain>>20), "have somebody remove what is not needed any more: mojoup-node secret list"}
	}
	var sealed bytes.Buffer
	w, err := age.Encrypt(&sealed, id.Recipient())
	if err == nil {
		_, err = w.Write(plain)
		err = errors.Join(err, w.Close())
	}
	if err != nil {
		return fmt.Errorf("encrypting the secrets: %w", err)
	}
	text, err := json.Marshal(envelope{version, env.Key, sealed.Bytes()})
	if err != nil {
		return fmt.Errorf("encoding the secrets: %w", err)
	}
	return v.write(fileName, text)
}

// load reads and decrypts. A file that is not there is an empty store.
func (v *Vault) load(ctx context.Context) ([]sealedEntry, envelope, error) {
	env, err := v.read()
	if err != nil || env.Version == 0 {
		return nil, env, err
	}
	id, err := v.identity(ctx, env.Key)
	if err != nil {
		return nil, env, err
	}
	broken := func() error {
		return &Error{"the store of secrets " + v.path(fileName) + " cannot be decrypted with its key", "restore both from one backup, or remove the file and set the secrets anew"}
	}
	r, err := age.Decrypt(bytes.NewReader(env.Sealed), id)
	if err != nil {
		return nil, env, broken()
	}
	plain, err := io.ReadAll(io.LimitReader(r, maxPlain+1))
	defer clear(plain)
	var all []sealedEntry
	if err != nil || json.Unmarshal(plain, &all) != nil {
		return nil, env, broken()
	}
	return all, env, nil
}

func (v *Vault) read() (env envelope, err error) {
	text, err := readOwn(v.path(fileName))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return env, nil
	case err != nil:
		return env, err
	case json.Unmarshal(text, &env) != nil || env.Version < 1:
		return env, &Error{"the store of secrets " + v.path(fileName) + " is damaged", "restore it from a backup, or remove it and set the secrets anew"}
	case env.Version > version:
		return env, &Error{"the store of secrets " + v.path(fileName) + " is of a newer version of this program", "use that version"}
	}
	return env, nil
}

// write replaces a file whole.
func (v *Vault) write(name string, text []byte) (err error) {
	if err := os.MkdirAll(v.dir, 0o700); err != nil {
		return fmt.Errorf("making the directory of the secrets: %w", err)
	}
	tmp, err := os.CreateTemp(v.dir, "."+name+".*") // 0600
	if err != nil {
		return fmt.Errorf("writing the secrets: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("writing the secrets: %w", err), os.Remove(tmp.Name()))
		}
	}()
	_, werr := tmp.Write(text)
	if err := errors.Join(werr, tmp.Sync(), tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), v.path(name))
}
