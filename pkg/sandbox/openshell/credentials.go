package openshell

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/product"
)

// What a file is for decides who may have access to it.
type secrecy uint8

const (
	readable secrecy = iota // anybody may read it, others may not write it
	secret                  // nobody else may read it
)

const mostFile = 1 << 20

// trusted reads a file that decides where credentials go, or is one.
func trusted(name string, uid int, s secrecy) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		return nil, &Error{Code: BadFiles, Sentence: fmt.Sprintf("%s cannot be read", plain(name)),
			Advice: "see who owns it: ls -l " + plain(name), Err: err}
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() > mostFile {
		return nil, &Error{Code: BadFiles, Sentence: fmt.Sprintf("%s is not a file of at most %d bytes", plain(name), mostFile), Err: err}
	}
	if err := guarded(name, info, uid, s); err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, mostFile))
	if err != nil {
		return nil, &Error{Code: BadFiles, Sentence: fmt.Sprintf("%s cannot be read", plain(name)), Err: err}
	}
	return text, nil
}

func entries(dir string) []string {
	found, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var names []string
	for _, e := range found {
		names = append(names, e.Name())
	}
	return names
}

// material is what a TLS connection is made with.
type material struct {
	roots        *x509.CertPool // nil: those of the system
	certificates []tls.Certificate
}

// material reads the certificates of a registration. With mutual TLS all three
// files must be there; with a token, what is there is used.
func (r Registration) material() (material, error) {
	if r.Dir == "" {
		return material{}, &Error{Code: BadCredentials, Sentence: r.title() + " is not registered, so there are no certificates for it",
			Advice: loginAdvice(r)}
	}
	var m material
	ca, err := r.file(product.CAFile, readable)
	switch {
	case err == nil:
		m.roots = x509.NewCertPool()
		if !m.roots.AppendCertsFromPEM(ca) {
			return m, r.broken(product.CAFile, "holds no certificate", nil)
		}
	case r.Auth == AuthMTLS || !errors.Is(err, fs.ErrNotExist):
		return m, r.missing(product.CAFile, err)
	}
	cert, err := r.file(product.CertFile, readable)
	if r.Auth == AuthOIDC && errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err != nil {
		return m, r.missing(product.CertFile, err)
	}
	key, err := r.file(product.KeyFile, secret)
	if err != nil {
		return m, r.missing(product.KeyFile, err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return m, r.broken(product.CertFile, "and "+product.KeyFile+" are not a certificate and its key", err)
	}
	if pair.Leaf != nil && time.Now().After(pair.Leaf.NotAfter) {
		return m, r.broken(product.CertFile, "has expired on "+pair.Leaf.NotAfter.UTC().Format(time.DateOnly), nil)
	}
	m.certificates = []tls.Certificate{pair}
	return m, nil
}

func (r Registration) file(name string, s secrecy) ([]byte, error) {
	return trusted(path.Join(r.Dir, product.MTLSDir, name), r.UID, s)
}

func (r Registration) missing(name string, err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return &Error{Code: BadCredentials, Sentence: fmt.Sprintf("%s asks for certificates, and %s is missing", r.title(), plain(path.Join(r.Dir, product.MTLSDir, name))),
		Advice: loginAdvice(r), Err: err}
}

func (r Registration) broken(name, what string, err error) error {
	return &Error{Code: BadCredentials, Sentence: fmt.Sprintf("%s %s", plain(path.Join(r.Dir, product.MTLSDir, name)), what),
		Advice: "make new ones with " + product.CommandCertificates + " and restart the gateway", Err: err}
}

// early is how long before its end a token is not used any more.
const early = 30 * time.Second

// token reads the access token. It is read for each call: the command line
// renews it, and nobody else may, since a refresh token serves once.
func (r Registration) token() (string, error) {
	advice := "renew it: " + product.CommandStatus + "; if that does not help: " + product.CommandLogin + " " + r.Name
	where := path.Join(r.Dir, product.TokenFile)
	text, err := trusted(where, r.UID, secret)
	if errors.Is(err, fs.ErrNotExist) {
		return "", &Error{Code: BadCredentials, Sentence: "nobody is signed in to " + r.title(), Advice: product.CommandLogin + " " + r.Name, Err: err}
	}
	if err != nil {
		return "", err
	}
	var t struct {
		Access  string `json:"access_token"`
		Expires *int64 `json:"expires_at"`
	}
	if err := json.Unmarshal(text, &t); err != nil || t.Access == "" || strings.ContainsFunc(t.Access, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return "", &Error{Code: BadCredentials, Sentence: plain(where) + " holds no token", Advice: product.CommandLogin + " " + r.Name}
	}
	if t.Expires != nil && time.Now().Add(early).After(time.Unix(*t.Expires, 0)) {
		return "", &Error{Code: BadCredentials, Sentence: "the sign-in to " + r.title() + " has expired", Advice: advice}
	}
	return t.Access, nil
}
