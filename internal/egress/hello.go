package egress

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
)

const (
	recordHandshake  = 22
	messageHello     = 1
	extensionSNI     = 0
	recordHeader     = 5
	maxRecord        = 1 << 14
	maxHelloRecords  = 64
	maxHello         = 32 << 10 // post-quantum shares and big tickets stay far below
	nameTypeHostName = 0
)

// errNotTLS means that a connection does not begin with a ClientHello.
var errNotTLS = errors.New("the connection does not begin with a TLS greeting")

// parseHello reads the server name out of a ClientHello at the beginning of
// data, which may lie in several records (RFC 8446, sections 4.1.2 and 5.1;
// RFC 6066, section 3). If need is not 0, that many bytes of data are needed to
// say more. It takes less than crypto/tls does and reads what it takes the
// same way.
func parseHello(data []byte) (name string, need int, err error) {
	message, need, err := helloMessage(data)
	if need > 0 || err != nil {
		return "", need, err
	}
	s := cursor(message)
	s.skip(2 + 32) // legacy version, random
	s.vector8()    // session id
	suites := s.vector16()
	s.vector8() // compression methods
	if s == nil || len(suites) == 0 || len(suites)%2 != 0 {
		return "", 0, errNotTLS
	}
	if len(s) == 0 {
		return "", 0, nil
	}
	extensions := s.vector16()
	if s == nil || len(s) != 0 {
		return "", 0, errNotTLS
	}
	name, err = serverName(extensions)
	return name, 0, err
}

// helloMessage gathers the first handshake message from its records. It looks
// at whole records only, and at few, so that a greeting that comes byte by
// byte costs no more than any other.
func helloMessage(data []byte) (message []byte, need int, err error) {
	var gathered []byte
	at := 0
	for range maxHelloRecords {
		rest := data[at:]
		if len(rest) > 0 && rest[0] != recordHandshake || len(rest) > 1 && rest[1] != 3 {
			return nil, 0, errNotTLS
		}
		if len(rest) < recordHeader {
			return nil, at + recordHeader, nil
		}
		n := int(binary.BigEndian.Uint16(rest[3:]))
		if n == 0 || n > maxRecord {
			return nil, 0, errNotTLS
		}
		at += recordHeader + n
		if len(data) < at {
			return nil, at, nil
		}
		if part := data[at-n : at : at]; gathered == nil {
			gathered = part // nearly always the only one
		} else {
			gathered = append(gathered, part...)
		}
		message, more, err := firstMessage(gathered)
		if !more || err != nil {
			return message, 0, err
		}
	}
	return nil, 0, errNotTLS
}

func firstMessage(b []byte) (message []byte, more bool, err error) {
	if len(b) > 0 && b[0] != messageHello {
		return nil, false, errNotTLS
	}
	if len(b) < 4 {
		return nil, true, nil
	}
	n := int(b[1])<<16 | int(b[2])<<8 | int(b[3])
	if n > maxHello {
		return nil, false, errNotTLS
	}
	if len(b) < 4+n {
		return nil, true, nil
	}
	return b[4 : 4+n], false, nil
}

// serverName returns the one host name of the server name extension, or "".
// Two of anything is refused: servers differ in which they take.
func serverName(extensions []byte) (string, error) {
	s := cursor(extensions)
	name, seen := "", false
	for len(s) > 0 {
		kind, ok := s.uint16()
		body := s.vector16()
		if !ok || s == nil {
			return "", errNotTLS
		}
		if kind != extensionSNI {
			continue
		}
		if seen {
			return "", errNotTLS
		}
		seen = true
		list := cursor(body)
		names := cursor(list.vector16())
		typ, ok := names.uint8()
		host := names.vector16()
		if list == nil || len(list) != 0 || !ok || names == nil || len(names) != 0 || typ != nameTypeHostName || len(host) == 0 {
			return "", errNotTLS
		}
		name = string(host)
	}
	return name, nil
}

// A cursor reads TLS presentation language. It becomes nil for good as soon as
// something is missing, so that a caller needs to look once.
type cursor []byte

func (c *cursor) skip(n int) []byte {
	if *c == nil || len(*c) < n {
		*c = nil
		return nil
	}
	b := (*c)[:n:n]
	*c = (*c)[n:]
	return b
}

func (c *cursor) uint8() (int, bool) {
	b := c.skip(1)
	if b == nil {
		return 0, false
	}
	return int(b[0]), true
}

func (c *cursor) uint16() (int, bool) {
	b := c.skip(2)
	if b == nil {
		return 0, false
	}
	return int(binary.BigEndian.Uint16(b)), true
}

func (c *cursor) vector8() []byte {
	n, ok := c.uint8()
	if !ok {
		return nil
	}
	return c.skip(n)
}

func (c *cursor) vector16() []byte {
	n, ok := c.uint16()
	if !ok {
		return nil
	}
	return c.skip(n)
}

// insideTLS is how we speak TLS with programs inside. The name on the
// certificate is that of the tunnel, which was judged, not what the client
// says now.
func (s *serving) insideTLS() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			r, ok := hello.Conn.(*replay)
			if !ok {
				return nil, errors.New("BUG: TLS on a connection without a target")
			}
			return s.session.CA.Leaf(r.link.inner.host)
		},
		// These bytes never leave the machine, so the hybrid key exchange would
		// protect them from nobody; it is a quarter of a handshake's cost.
		CurvePreferences: []tls.CurveID{tls.X25519, tls.CurveP256, tls.CurveP384},
		// Small first records help over long lines only.
		DynamicRecordSizingDisabled: true,
	}
}
