package realtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mojoup/mojoup-node/pkg/sandbox/kerneltest"
)

// An authority signs the certificates of the test's servers.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: "realtest authority"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

// leaf is a server's certificate for the names.
func (a *authority) leaf(t *testing.T, names ...string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: names[0]}, DNSNames: names,
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der, a.cert.Raw}, PrivateKey: key}
}

// addresses counts those that were given out.
var addresses atomic.Uint32

// ownAddress is a loopback address of this test process and of this call alone,
// for servers whose port is not free to choose.
func ownAddress() string {
	pid := os.Getpid()
	return fmt.Sprintf("127.%d.%d.%d", 64+pid>>8&63, pid&255, 1+addresses.Add(1)%250)
}

// bindable skips where a port below 1024 is not for this user: that says
// nothing of the machine, so it is no failure either.
func bindable(t *testing.T, address string) {
	t.Helper()
	ln, err := net.Listen("tcp", address)
	if err != nil && os.Getuid() != 0 {
		t.Skipf("wanted a server on %s, found %v", address, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
}

// serve answers on an address until the test ends and returns its port. With
// names it speaks TLS, with a certificate for them.
func (r *rig) serve(address string, h http.Handler, names ...string) string {
	r.t.Helper()
	ln, err := net.Listen("tcp", address)
	r.must(err)
	srv := &http.Server{Handler: h, ErrorLog: log.New(io.Discard, "", 0)}
	answer := func() { _ = srv.Serve(ln) }
	if len(names) > 0 {
		srv.TLSConfig = &tls.Config{Certificates: []tls.Certificate{r.ca.leaf(r.t, names...)}}
		answer = func() { _ = srv.ServeTLS(ln, "", "") } // with HTTP/2
	}
	var done sync.WaitGroup
	done.Go(answer)
	r.t.Cleanup(func() {
		_ = srv.Close()
		done.Wait()
	})
	_, port, err := net.SplitHostPort(ln.Addr().String())
	r.must(err)
	return port
}

// A visit is one request that a server of the test saw.
type visit struct{ method, path, protocol string }

// A diary is a handler that says hello and remembers.
type diary struct {
	mu sync.Mutex
	// mu guards what follows.
	visits []visit
}

func (d *diary) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	d.visits = append(d.visits, visit{r.Method, r.URL.Path, r.Proto})
	d.mu.Unlock()
	fmt.Fprintf(w, "hello from %s %s", r.Method, r.URL.Path)
}

// visited returns what was seen since the last call.
func (d *diary) visited() []visit {
	d.mu.Lock()
	defer d.mu.Unlock()
	v := d.visits
	d.visits = nil
	return v
}

// gitServer makes a bare repository with one commit and returns git's own
// backend for it.
func (r *rig) gitServer() http.Handler {
	_, backend := r.gitRepositories("acme.git")
	return backend
}

// gitRepositories makes several, below one root.
func (r *rig) gitRepositories(names ...string) (root string, h http.Handler) {
	r.t.Helper()
	out, err := exec.Command("git", "--exec-path").Output()
	r.must(err)
	backend := filepath.Join(strings.TrimSpace(string(out)), "git-http-backend")
	if _, err := os.Stat(backend); err != nil {
		kerneltest.Lacking(r.t, "git-http-backend", err.Error())
	}
	root = r.t.TempDir()
	script := `set -e
cd "$1"
shift
git init -q -b main work
git -C work -c user.name=n -c user.email=n@n.example commit -q --allow-empty -m first
for name; do
	git clone -q --bare work "$name"
	git -C "$name" config http.receivepack true
	git -C "$name" config receive.advertisePushOptions true
	git -C "$name" config gc.auto 0
done`
	if said, err := exec.Command("sh", append([]string{"-c", script, "sh", root}, names...)...).CombinedOutput(); err != nil {
		r.t.Fatalf("making a repository: %v\n%s", err, said)
	}
	return root, &cgi.Handler{
		Path: backend, Dir: root,
		Env:    []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=n", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"},
		Logger: log.New(io.Discard, "", 0), Stderr: io.Discard,
	}
}
