package egress

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/mojoup/mojoup-node/internal/egress/leafcert"
)

// expired is a certificate for host that held until yesterday.
func expired(t *testing.T, host string) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	as := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{host}, NotBefore: now.AddDate(-1, 0, 0), NotAfter: now.AddDate(0, 0, -1)}
	der, err := x509.CreateCertificate(rand.Reader, as, as, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// TestB41_KeysGoToNobodyElse: a server in the host's place that cannot prove to
// be it gets no key, nor any request. That a key never goes over plain HTTP is
// in TestT3_StandInsAreRefusedAndReported.
func TestB41_KeysGoToNobodyElse(t *testing.T) {
	const host = "api.x.example"
	foreign, err := leafcert.New("somebody")
	if err != nil {
		t.Fatal(err)
	}
	leaf := func(a *leafcert.Authority, name string) *tls.Certificate {
		c, err := a.Leaf(name)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	for name, tt := range map[string]struct {
		certificate *tls.Certificate
		want        string
	}{
		"another name":      {leaf(testAuthority(), "other.example"), "not for this name"},
		"another authority": {leaf(foreign, host), "an authority that this node does not trust. docs/policy.md says under \"Whom the node trusts\""},
		"expired":           {expired(t, host), "shows a certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			w, standIn := keyWorld(t, all, bindAPI)
			var got heard
			server := httptest.NewUnstartedServer(http.HandlerFunc(got.ServeHTTP))
			server.Config.ErrorLog = slog.NewLogLogger(slog.NewTextHandler(io.Discard, nil), slog.LevelDebug)
			server.TLS = &tls.Config{Certificates: []tls.Certificate{*tt.certificate}}
			server.StartTLS()
			t.Cleanup(server.Close)
			w.route(443, server.Listener.Addr().String())
			req, _ := http.NewRequest("GET", "https://"+host+"/v1", nil)
			req.Header.Set("Authorization", "Bearer "+standIn)
			status, said, _ := w.do(w.client(false), req)
			if status < 500 || !strings.Contains(said, tt.want) {
				t.Errorf("answered %d %s, want %q", status, said, tt.want)
			}
			if got.count() > 0 {
				t.Error("the request reached it")
			}
		})
	}
}
