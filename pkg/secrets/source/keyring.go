package source

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"

	"github.com/godbus/dbus/v5"

	"github.com/mojoup/mojoup-node/pkg/secrets"
)

// Names of the Secret Service of freedesktop.org, which GNOME's and KDE's
// keyrings and KeePassXC answer to.
const (
	service     = "org.freedesktop.secrets"
	servicePath = "/org/freedesktop/secrets"
	defaultPath = "/org/freedesktop/secrets/aliases/default"
	ofService   = "org.freedesktop.Secret.Service."
	ofItem      = "org.freedesktop.Secret.Item."
	ofCollect   = "org.freedesktop.Secret.Collection."
	ofSession   = "org.freedesktop.Secret.Session."
)

// attributes reads "service=x,account=y".
func attributes(s string) (map[string]string, error) {
	out := map[string]string{}
	for pair := range strings.SplitSeq(s, ",") {
		name, value, ok := strings.Cut(pair, "=")
		if name = strings.TrimSpace(name); !ok || name == "" {
			return nil, errorf("as in --keyring service=github,account=me", "%.60q are no attributes of a keyring's item", s)
		}
		out[name] = strings.TrimSpace(value)
	}
	return out, nil
}

// secretStruct is how a secret travels: session, parameters, value, type.
type secretStruct struct {
	Session     dbus.ObjectPath
	Parameters  []byte
	Value       []byte
	ContentType string
}

// keyring is a connection to the desktop's keyring.
type keyring struct {
	conn    *dbus.Conn
	session dbus.ObjectPath
}

var errNoKeyring = &Error{reason: "no keyring answers on the session bus", hint: "a keyring is there in a desktop session; elsewhere keep the key in a file or in the node's store"}

// HasKeyring reports whether there is a session bus on which a keyring could
// answer.
func HasKeyring() bool { return busAddress() != "" }

// busAddress is that of the session bus, or "". The library would start a bus
// where there is none.
func busAddress() string {
	if address := os.Getenv("DBUS_SESSION_BUS_ADDRESS"); address != "" {
		return address
	}
	path := "/run/user/" + strconv.Itoa(os.Getuid()) + "/bus"
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	return "unix:path=" + path
}

func openKeyring(ctx context.Context) (*keyring, error) {
	address := busAddress()
	if address == "" {
		return nil, errNoKeyring
	}
	conn, err := dbus.Connect(address, dbus.WithContext(ctx))
	if err != nil {
		return nil, errNoKeyring
	}
	k := &keyring{conn: conn}
	var nothing dbus.Variant
	// The bus is a socket of this user alone; who may read it may ask for the
	// secret as well. So it is not encrypted once more.
	err = k.call(ctx, servicePath, ofService+"OpenSession", "plain", dbus.MakeVariant("")).Store(&nothing, &k.session)
	if err != nil {
		_ = conn.Close()
		return nil, errNoKeyring
	}
	return k, nil
}

func (k *keyring) close(ctx context.Context) {
	_ = k.call(ctx, k.session, ofSession+"Close").Err
	_ = k.conn.Close()
}

func (k *keyring) call(ctx context.Context, path dbus.ObjectPath, method string, args ...any) *dbus.Call {
	return k.conn.Object(service, path).CallWithContext(ctx, method, 0, args...)
}

var errLocked = &Error{reason: "the keyring is locked", hint: "unlock it, by signing in to the desktop or in its own program"}

// readKeyring returns the one item with those attributes.
func readKeyring(ctx context.Context, at string) (v secrets.Value, err error) {
	attrs, err := attributes(at)
	if err != nil {
		return v, err
	}
	k, err := openKeyring(ctx)
	if err != nil {
		return v, err
	}
	defer k.close(ctx)
	return k.read(ctx, attrs, at)
}

func (k *keyring) read(ctx context.Context, attrs map[string]string, at string) (v secrets.Value, err error) {
	var open, locked []dbus.ObjectPath
	if err := k.call(ctx, servicePath, ofService+"SearchItems", attrs).Store(&open, &locked); err != nil {
		return v, errorf("", "the keyring does not answer: %s", said(err))
	}
	switch {
	case len(open) == 0 && len(locked) > 0:
		return v, errLocked
	case len(open) == 0:
		return v, &missing{errorf("secret-tool store, or the keyring's own program, makes one", "the keyring has no item with %s", at)}
	case len(open) > 1:
		return v, errorf("name more of its attributes", "the keyring has %d items with %s", len(open), at)
	}
	var s secretStruct
	if err := k.call(ctx, open[0], ofItem+"GetSecret", k.session).Store(&s); err != nil {
		return v, errorf("", "the keyring does not give the item: %s", said(err))
	}
	return Trimmed(s.Value), nil
}

// missing tells an absent item from a keyring that cannot be asked.
type missing struct{ of *Error }

func (e *missing) Error() string { return e.of.reason }

// Hint is the next step for people.
func (e *missing) Hint() string { return e.of.hint }

// said is the name of the bus's error: its text is the keyring's.
func said(err error) string {
	var e dbus.Error
	if errors.As(err, &e) {
		return e.Name
	}
	return err.Error()
}

// KeyringItem reads one item of the keyring; found is false where the keyring
// answers and has none.
func KeyringItem(ctx context.Context, attrs map[string]string) (v secrets.Value, found bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	k, err := openKeyring(ctx)
	if err != nil {
		return v, false, err
	}
	defer k.close(ctx)
	v, err = k.read(ctx, attrs, "those attributes")
	if _, absent := errors.AsType[*missing](err); absent {
		return v, false, nil
	}
	return v, err == nil, err
}

// StoreKeyringItem puts an item into the default collection.
func StoreKeyringItem(ctx context.Context, label string, attrs map[string]string, v secrets.Value) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	k, err := openKeyring(ctx)
	if err != nil {
		return err
	}
	defer k.close(ctx)
	locked, err := k.conn.Object(service, defaultPath).GetProperty("org.freedesktop.Secret.Collection.Locked")
	if err != nil {
		return errNoKeyring
	}
	if yes, _ := locked.Value().(bool); yes {
		return errLocked
	}
	var item, prompt dbus.ObjectPath
	err = k.call(ctx, defaultPath, ofCollect+"CreateItem", map[string]dbus.Variant{
		"org.freedesktop.Secret.Item.Label": dbus.MakeVariant(label), "org.freedesktop.Secret.Item.Attributes": dbus.MakeVariant(attrs),
	}, secretStruct{k.session, []byte{}, v.RevealForTheWire(), "text/plain"}, true).Store(&item, &prompt)
	if err != nil {
		return errorf("", "the keyring takes no item: %s", said(err))
	}
	if item == "/" || item == "" {
		return errLocked // it would ask its person first
	}
	return nil
}
