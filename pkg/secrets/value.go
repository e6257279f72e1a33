package secrets

import (
	"bytes"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
)

// redacted is what everybody sees of a value.
const redacted = "[secret]"

// A Value is a key that refuses to be printed, logged, encoded and compared.
// Copies share the bytes, so that [Value.Wipe] reaches all of them. The zero
// Value is empty.
//
// The bytes lie behind a function: printers that follow pointers by reflection
// end there too.
type Value struct{ open func() *hidden }

type hidden struct {
	mu sync.RWMutex
	b  []byte
}

// NewValue takes the bytes of b over: the caller must not use b any more.
func NewValue(b []byte) Value {
	h := &hidden{b: b}
	return Value{func() *hidden { return h }}
}

// RevealForTheWire returns a copy of the key. It is for whoever writes the key
// into the one request that it belongs to, or seals it into a store; anybody
// else who calls this is a fault.
func (v Value) RevealForTheWire() []byte {
	if v.open == nil {
		return nil
	}
	h := v.open()
	h.mu.RLock()
	defer h.mu.RUnlock()
	return bytes.Clone(h.b)
}

// Len is the key's length in bytes.
func (v Value) Len() int {
	if v.open == nil {
		return 0
	}
	h := v.open()
	h.mu.RLock()
	defer h.mu.RUnlock()
	return len(h.b)
}

// Equal compares in time that depends on the lengths only.
func (v Value) Equal(o Value) bool {
	a, b := v.RevealForTheWire(), o.RevealForTheWire()
	defer clear(a)
	defer clear(b)
	return subtle.ConstantTimeCompare(a, b) == 1
}

// Wipe overwrites the key with zeros, in every copy of the value. Go may have
// moved or copied the bytes before, and a string made of them cannot be wiped:
// this shortens how long a key lies in memory and is no proof.
func (v Value) Wipe() {
	if v.open == nil {
		return
	}
	h := v.open()
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.b)
	h.b = nil
}

// String implements [fmt.Stringer].
func (Value) String() string { return redacted }

// GoString implements [fmt.GoStringer].
func (Value) GoString() string { return redacted }

// Format implements [fmt.Formatter]: no verb and no flag shows more.
func (Value) Format(s fmt.State, _ rune) { _, _ = s.Write([]byte(redacted)) }

// LogValue implements [slog.LogValuer].
func (Value) LogValue() slog.Value { return slog.StringValue(redacted) }

var errNotEncoded = errors.New("a secret is never encoded")

// MarshalJSON implements [json.Marshaler]: what holds a secret can be shown,
// without it.
func (Value) MarshalJSON() ([]byte, error) { return json.Marshal(redacted) }

// MarshalText implements [encoding.TextMarshaler].
func (Value) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// GobEncode implements [gob.GobEncoder]: a value that was stored by accident
// would be lost by accident.
func (Value) GobEncode() ([]byte, error) { return nil, errNotEncoded }

// UnmarshalJSON refuses: a key in a document that anybody may show is lost.
func (*Value) UnmarshalJSON([]byte) error { return errNotEncoded }

// UnmarshalText refuses likewise.
func (*Value) UnmarshalText([]byte) error { return errNotEncoded }
