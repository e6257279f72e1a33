// Package leafcert promises a certificate for any host under an authority that
// lives and dies with one session: its key is in memory only, and no program
// outside that session is ever asked to trust it.
package leafcert

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"sync"
	"time"
)

// An authority cannot be replaced inside a running program, and a session may
// see the machine's clock set to anything: one that starts without a battery
// says 1970 until it has asked the network. So every certificate is valid at
// every time that all programs can read; what bounds its use is that its key
// ends with the session.
var (
	from  = time.Unix(0, 0).UTC()
	until = time.Date(2049, 12, 31, 23, 59, 59, 0, time.UTC) // RFC 5280, 4.1.2.5
)

// An agent may ask for any number of names. Beyond this the cache starts
// again: a leaf costs well below a millisecond.
const maxCached = 1024

// An Authority signs certificates for one session. It is safe for concurrent
// use.
type Authority struct {
	cert    *x509.Certificate
	pem     []byte
	key     *ecdsa.PrivateKey
	leafKey *ecdsa.PrivateKey

	// mu guards leaves. No certificate is made while it is held.
	mu     sync.Mutex
	leaves map[string]*tls.Certificate
}

// New makes the authority of a session. The session's name
// stands in the certificate, so that a person who meets it knows what it is.
func New(session string) (*Authority, error) {
	if session == "" {
		return nil, errors.New("making a session authority: the session has no name")
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making the key of a session authority: %w", err)
	}
	// One key serves every leaf: all of them end at the same proxy, and a key
	// for each would double the cost of a host.
	leafKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making the leaf key of a session authority: %w", err)
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{Organization: []string{"mojoup-node"}, CommonName: "mojoup-node session " + session},
		NotBefore:             from,
		NotAfter:              until,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("signing a session authority: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("reading a session authority back: %w", err)
	}
	return &Authority{
		cert:    cert,
		pem:     pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		key:     key,
		leafKey: leafKey,
		leaves:  map[string]*tls.Certificate{},
	}, nil
}

// CertificatePEM returns the certificate that programs inside must trust. It
// holds no key.
func (a *Authority) CertificatePEM() []byte {
	return append([]byte(nil), a.pem...)
}

// Leaf returns a certificate with its key for host, a name in normal form or a
// literal address. The same host gets the same certificate while it is cached.
func (a *Authority) Leaf(host string) (*tls.Certificate, error) {
	a.mu.Lock()
	leaf := a.leaves[host]
	a.mu.Unlock()
	if leaf != nil {
		return leaf, nil
	}
	// Two callers may both come here for one new host; the second certificate
	// is as good as the first, and nobody waits for a signature under a lock.
	leaf, err := a.sign(host)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.leaves) >= maxCached {
		clear(a.leaves)
	}
	a.leaves[host] = leaf
	return leaf, nil
}

func (a *Authority) sign(host string) (*tls.Certificate, error) {
	if host == "" {
		return nil, errors.New("signing a certificate: no host")
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	// The subject stays empty: every client that matters reads the alternative
	// names only, and a name of 253 bytes does not fit into a common name.
	template := &x509.Certificate{
		SerialNumber:          serial,
		NotBefore:             from,
		NotAfter:              until,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{host}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, a.leafKey.Public(), a.key)
	if err != nil {
		return nil, fmt.Errorf("signing a certificate for %q: %w", host, err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("reading the certificate for %q back: %w", host, err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: a.leafKey, Leaf: leaf}, nil
}

// newSerial returns a positive number of at most 127 bits (RFC 5280 allows 20
// octets). It is random because some clients refuse two certificates of one
// issuer with the same number.
func newSerial() (*big.Int, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("drawing a serial number: %w", err)
	}
	return serial.Add(serial, big.NewInt(1)), nil
}
