package egress

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// split puts a greeting's one record into many of n bytes.
func split(greeting []byte, n int) (out []byte) {
	body := greeting[5:]
	for len(body) > 0 {
		k := min(n, len(body))
		out = append(out, greeting[:3]...)
		out = binary.BigEndian.AppendUint16(out, uint16(k))
		out = append(out, body[:k]...)
		body = body[k:]
	}
	return out
}

func TestParseHello(t *testing.T) {
	whole := hello(t, "api.x.example")
	for _, tt := range []struct {
		name string
		data []byte
		want string
		more bool
		bad  bool
	}{
		{"whole", whole, "api.x.example", false, false},
		{"with more behind it", append(bytes.Clone(whole), "early data"...), "api.x.example", false, false},
		{"in records of 100", split(whole, 100), "api.x.example", false, false},
		{"in records of 1", split(whole, 1), "", false, true},
		{"without a name", hello(t, ""), "", false, false},
		{"nothing yet", nil, "", true, false},
		{"four bytes", whole[:4], "", true, false},
		{"half", whole[:len(whole)/2], "", true, false},
		{"all but one", whole[:len(whole)-1], "", true, false},
		{"http", []byte("GET / HTTP/1.1\r\n"), "", false, true},
		{"ssh", []byte("SSH-2.0-x\r\n"), "", false, true},
		{"sslv2", []byte{0x80, 0x2e, 1, 0, 2}, "", false, true},
		{"alert", []byte{21, 3, 1, 0, 2, 1, 0}, "", false, true},
		{"server hello", []byte{22, 3, 3, 0, 4, 2, 0, 0, 0}, "", false, true},
		{"empty record", []byte{22, 3, 1, 0, 0}, "", false, true},
		{"record too long", []byte{22, 3, 1, 0xff, 0xff}, "", false, true},
		{"message too long", []byte{22, 3, 1, 0, 4, 1, 0xff, 0xff, 0xff}, "", false, true},
		{"second record is no handshake", append(bytes.Clone(split(whole, 100)[:105]), 23, 3, 3, 0, 1, 0), "", false, true},
		{"two names", twice(whole), "", false, true},
	} {
		got, need, err := parseHello(tt.data)
		more := need > 0
		if more && need <= len(tt.data) {
			t.Errorf("%s: of %d bytes %d are needed", tt.name, len(tt.data), need)
		}
		if got != tt.want || more != tt.more || (err != nil) != tt.bad {
			t.Errorf("%s: %q, more %t, %v; want %q, more %t, error %t", tt.name, got, more, err, tt.want, tt.more, tt.bad)
		}
	}
}

// twice repeats the server name extension of a greeting of one record.
func twice(greeting []byte) []byte {
	name := []byte("api.x.example")
	at := bytes.Index(greeting, name) - 9
	ext := bytes.Clone(greeting[at : at+9+len(name)])
	out := append(bytes.Clone(greeting), ext...)
	binary.BigEndian.PutUint16(out[3:], uint16(len(out)-5))
	out[6], out[7], out[8] = 0, byte((len(out)-9)>>8), byte(len(out)-9)
	// The length of all extensions stands after the compression methods.
	s := cursor(greeting[9:])
	s.skip(34)
	s.vector8()
	s.vector16()
	s.vector8()
	lengthAt := len(greeting) - len(s)
	binary.BigEndian.PutUint16(out[lengthAt:], binary.BigEndian.Uint16(out[lengthAt:])+uint16(len(ext)))
	return out
}

// FuzzClientHello holds our reading against crypto/tls: a greeting that we
// take names the same server there, and cutting it short never changes it.
func FuzzClientHello(f *testing.F) {
	seeds := 0
	for _, name := range []string{"api.x.example", "", "xn--bcher-kva.example", strings.Repeat("a", 60) + ".example"} {
		h := hello(f, name)
		f.Add(h)
		f.Add(split(h, 64))
		f.Add(h[:len(h)/2])
		seeds += 3
	}
	if seeds < 12 {
		f.Fatal("no seeds")
	}
	f.Add(twice(hello(f, "api.x.example")))
	f.Fuzz(func(t *testing.T, data []byte) {
		name, need, err := parseHello(data)
		if need > 0 || err != nil {
			if name != "" {
				t.Fatalf("an unfinished or refused greeting names %q", name)
			}
			return
		}
		for cut := range data {
			if n, need, err := parseHello(data[:cut]); need == 0 && (n != name || err != nil) {
				t.Fatalf("cut to %d of %d bytes: %q, %v; whole: %q", cut, len(data), n, err, name)
			}
		}
		theirs, ok := asCryptoTLS(data)
		if ok && !strings.EqualFold(theirs, name) {
			t.Fatalf("crypto/tls reads %q, we %q", theirs, name)
		}
	})
}

type stub struct {
	net.Conn
	in io.Reader
}

func (s stub) Read(p []byte) (int, error)      { return s.in.Read(p) }
func (s stub) Write(p []byte) (int, error)     { return len(p), nil }
func (s stub) SetDeadline(time.Time) error     { return nil }
func (s stub) SetReadDeadline(time.Time) error { return nil }
func (s stub) Close() error                    { return nil }

// asCryptoTLS returns the name that crypto/tls reads, if it gets that far.
func asCryptoTLS(data []byte) (name string, ok bool) {
	stop := errors.New("seen")
	config := &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		name, ok = h.ServerName, true
		return nil, stop
	}}
	_ = tls.Server(stub{in: bytes.NewReader(data)}, config).Handshake()
	return name, ok
}
