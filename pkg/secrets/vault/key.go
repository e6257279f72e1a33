package vault

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"filippo.io/age"

	"github.com/mojoup/mojoup-node/pkg/secrets"
	"github.com/mojoup/mojoup-node/pkg/secrets/source"
)

// attributes are those of the key in a keyring.
func (v *Vault) attributes() map[string]string {
	return map[string]string{"application": "mojoup-node", "purpose": "secrets", "store": v.dir}
}

// newKey makes the key of a store that begins, in the best place there is, and
// says which. A key that lies there already is of a store that was removed.
func (v *Vault) newKey(ctx context.Context) (string, error) {
	if v.credential() != "" {
		return keyCredential, nil
	}
	id, err := age.GenerateX25519Identity()
	if err != nil {
		return "", fmt.Errorf("making the key of the secrets: %w", err)
	}
	if _, found, err := source.KeyringItem(ctx, v.attributes()); err == nil {
		if found {
			return keyKeyring, nil
		}
		key := secrets.NewValue([]byte(id.String()))
		defer key.Wipe()
		if source.StoreKeyringItem(ctx, "mojoup-node: key of its secrets", v.attributes(), key) == nil {
			return keyKeyring, nil
		}
	}
	if _, err := os.Lstat(v.path(keyName)); err == nil {
		return keyFile, nil
	}
	return keyFile, v.write(keyName, []byte(id.String()+"\n"))
}

// credential is the path of the systemd credential, or "".
func (v *Vault) credential() string {
	dir := v.Getenv("CREDENTIALS_DIRECTORY")
	if dir == "" {
		return ""
	}
	path := filepath.Join(dir, credentialName)
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	return path
}

// identity reads the key that opens the store.
func (v *Vault) identity(ctx context.Context, kept string) (*age.X25519Identity, error) {
	text, err := v.keyText(ctx, kept)
	if err != nil {
		return nil, err
	}
	id, err := age.ParseX25519Identity(strings.TrimSpace(text))
	if err != nil {
		return nil, &Error{"the key of the store of secrets, from its " + kept + ", is damaged", "restore it from a backup, or remove " + v.path(fileName) + " and set the secrets anew"}
	}
	return id, nil
}

func (v *Vault) keyText(ctx context.Context, kept string) (string, error) {
	switch kept {
	case keyFile:
		b, err := readOwn(v.path(keyName))
		if errors.Is(err, fs.ErrNotExist) {
			return "", &Error{"the key of the store of secrets is gone: " + v.path(keyName), "restore it from a backup, or remove " + v.path(fileName) + " and set the secrets anew"}
		}
		return string(b), err
	case keyCredential:
		path := v.credential()
		if path == "" {
			return "", &Error{"the key of the store of secrets is a systemd credential, which this node was not given", "start it by its unit, with LoadCredential=" + credentialName}
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return "", fmt.Errorf("reading the credential %s: %w", credentialName, err)
		}
		return string(b), nil
	case keyKeyring:
		key, found, err := source.KeyringItem(ctx, v.attributes())
		switch {
		case err != nil:
			return "", fmt.Errorf("the key of the store of secrets is in the desktop's keyring: %w", err)
		case !found:
			return "", &Error{"the key of the store of secrets is gone from the desktop's keyring", "restore it, or remove " + v.path(fileName) + " and set the secrets anew"}
		}
		defer key.Wipe()
		return string(key.RevealForTheWire()), nil
	}
	return "", &Error{fmt.Sprintf("the store of secrets names a key of an unknown kind: %q", kept), "use the version of this program that wrote it"}
}
