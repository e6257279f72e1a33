package plan

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha1"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"encoding/pem"
	"math/big"
	"slices"
	"strings"
	"testing"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// realCertificate is one that parses.
func realCertificate(t *testing.T, name string) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// javaHost has two installations: one that shares the system's store, one of
// the person's own, and one that no session sees.
func javaHost(t *testing.T) Host {
	t.Helper()
	const shared, own, away = "/usr/lib/jvm/java-17", "/home/ann/.sdkman/candidates/java/21", "/usr/java/8"
	h := debian("/home/ann", map[string]Node{
		shared + "/lib/security/cacerts": {Kind: File, Real: "/etc/ssl/certs/java/cacerts"},
		shared + "/conf/net.properties":  {Kind: File, Real: "/etc/java-17/net.properties"},
		"/etc/java-17":                   dir("/etc/java-17"),
		"/home/ann/.sdkman":              dir("/home/ann/.sdkman"),
		own + "/lib/security/cacerts":    file(own + "/lib/security/cacerts"),
		own + "/conf/net.properties":     file(own + "/conf/net.properties"),
		away + "/lib/security/cacerts":   {Kind: File, Real: "/srv/java/cacerts"},
	})
	h.Bundles[0].Content = slices.Concat(realCertificate(t, "system"), certificate("none that Java could read"))
	return h
}

// Every Java that a session sees gets a store with the session's authority, and
// is told of the proxy.
func TestJavaTrustsTheSession(t *testing.T) {
	session := realCertificate(t, "session")
	p, err := Make(input(func(in *Input) { in.Host, in.SessionCA = javaHost(t), session }))
	if err != nil {
		t.Fatal(err)
	}
	at := map[string][]byte{}
	for i, m := range p.Spec.Mounts {
		if m.Kind != sandbox.Text {
			continue
		}
		at[m.Target] = slices.Concat(m.Begin, m.Content)
		if shared := i < p.Spec.Shared; shared && bytes.Contains(at[m.Target], session) {
			t.Errorf("%s of one session is shared", m.Target)
		}
	}
	const system, own = "/etc/ssl/certs/java/cacerts", "/home/ann/.sdkman/candidates/java/21/lib/security/cacerts"
	if !bytes.Equal(at[system], at[own]) || len(at["/srv/java/cacerts"]) > 0 {
		t.Fatalf("stores of %d and %d bytes, and one that nobody sees of %d", len(at[system]), len(at[own]), len(at["/srv/java/cacerts"]))
	}
	block, _ := pem.Decode(session)
	store := at[system]
	body, seal := store[:len(store)-sha1.Size], store[len(store)-sha1.Size:]
	if !bytes.HasSuffix(body, block.Bytes) || binary.BigEndian.Uint32(body[8:]) != 2 {
		t.Errorf("%d entries, of which the session's is not the last", binary.BigEndian.Uint32(body[8:]))
	}
	want := sha1.Sum(slices.Concat([]byte("\x00c\x00h\x00a\x00n\x00g\x00e\x00i\x00t"), []byte("Mighty Aphrodite"), body))
	if !bytes.Equal(seal, want[:]) {
		t.Errorf("sealed with %x, want %x", seal, want)
	}
	for _, path := range []string{"/etc/java-17/net.properties", "/home/ann/.sdkman/candidates/java/21/conf/net.properties"} {
		if text := string(at[path]); !strings.Contains(text, "https.proxyHost=127.0.0.1\nhttps.proxyPort=3128\n") || !strings.Contains(text, "nonProxyHosts=localhost|") {
			t.Errorf("%s holds %q", path, text)
		}
	}
}
