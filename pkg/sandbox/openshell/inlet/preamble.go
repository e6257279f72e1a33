package inlet

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
)

// TokenSize is how many bytes a session's token has.
const TokenSize = 32

// A Token is what a forwarder proves itself with. It is worth something on one
// listener only, and dies with it.
type Token [TokenSize]byte

// String hides it: it must not reach a log.
func (Token) String() string { return "a token" }

// GoString hides it too.
func (Token) GoString() string { return "a token" }

// Hex is the token as it stands in the staged file.
func (t Token) Hex() string { return hex.EncodeToString(t[:]) }

// ParseToken reads what Hex wrote.
func ParseToken(text string) (t Token, err error) {
	raw, err := hex.DecodeString(text)
	if err != nil || len(raw) != TokenSize {
		return t, errors.New("the token is not one")
	}
	copy(t[:], raw)
	return t, nil
}

// PreambleSize is how many bytes every connection of a forwarder begins with,
// always as many: who reads them reads nothing of what follows, so that what
// is handed on is the connection itself.
const PreambleSize = 128

// magic names the protocol and its version.
const magic = "mojoup1\n"

const mostName = 64

// A Preamble says for whom a forwarder opened a connection.
type Preamble struct {
	Token   Token
	PID     int    // inside; 0 where it is not known
	Program string // its name, cut off where it is too long; empty likewise
}

// Encode writes a preamble: magic, token, process, length of the name, name.
func (p Preamble) Encode() [PreambleSize]byte {
	var out [PreambleSize]byte
	n := copy(out[:], magic)
	n += copy(out[n:], p.Token[:])
	binary.BigEndian.PutUint32(out[n:], uint32(p.PID))
	n += 4
	name := p.Program[:min(len(p.Program), mostName)]
	out[n] = byte(len(name))
	copy(out[n+1:], name)
	return out
}

// Decode reads what Encode wrote. The name is the session's word: it is
// whatever stands there.
func Decode(raw [PreambleSize]byte) (Preamble, error) {
	var p Preamble
	if string(raw[:len(magic)]) != magic {
		return p, errors.New("it does not begin as a forwarder does")
	}
	n := len(magic)
	n += copy(p.Token[:], raw[n:])
	p.PID = int(binary.BigEndian.Uint32(raw[n:]))
	n += 4
	size := int(raw[n])
	if size > mostName {
		return Preamble{}, fmt.Errorf("a name of %d bytes", size)
	}
	p.Program = string(raw[n+1 : n+1+size])
	return p, nil
}
