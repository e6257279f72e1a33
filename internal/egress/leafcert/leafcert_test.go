package leafcert

import (
	"bytes"
	"crypto/x509"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestLeafVerifiesForItsHostOnly(t *testing.T) {
	authority, err := New("s-1")
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority.CertificatePEM()) {
		t.Fatal("the authority's certificate is not PEM")
	}
	long := strings.Repeat(strings.Repeat("a", 60)+".", 4) + "example"
	for _, tt := range []struct {
		host, asked string
		ok          bool
	}{
		{"api.x.example", "api.x.example", true},
		{"api.x.example", "b.x.example", false},
		{"203.0.113.7", "203.0.113.7", true},
		{"2001:db8::1", "2001:db8::1", true},
		{"203.0.113.7", "203.0.113.8", false},
		{long, long, true},
	} {
		leaf, err := authority.Leaf(tt.host)
		if err != nil {
			t.Fatalf("Leaf(%q): %v", tt.host, err)
		}
		for _, at := range []time.Time{time.Now(), time.Unix(1, 0), time.Unix(2_500_000_000, 0)} {
			_, err = leaf.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: tt.asked, CurrentTime: at})
			if (err == nil) != tt.ok {
				t.Errorf("leaf for %q asked as %q at %v: %v, want ok %t", tt.host, tt.asked, at, err, tt.ok)
			}
		}
		if leaf.Leaf.Subject.CommonName != "" || leaf.Leaf.IsCA {
			t.Errorf("leaf for %q: subject %v, CA %t", tt.host, leaf.Leaf.Subject, leaf.Leaf.IsCA)
		}
	}
}

func TestSessionsDoNotTrustEachOther(t *testing.T) {
	a, errA := New("a")
	b, errB := New("b")
	if errA != nil || errB != nil {
		t.Fatal(errA, errB)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(b.CertificatePEM())
	leaf, err := a.Leaf("x.example")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := leaf.Leaf.Verify(x509.VerifyOptions{Roots: roots}); err == nil {
		t.Error("a leaf of one session verifies under another's authority")
	}
	if bytes.Contains(a.CertificatePEM(), []byte("PRIVATE")) {
		t.Error("the certificate holds a key")
	}
}

func TestLeafIsCachedAndBounded(t *testing.T) {
	authority, err := New("s")
	if err != nil {
		t.Fatal(err)
	}
	first, _ := authority.Leaf("x.example")
	again, _ := authority.Leaf("x.example")
	if first == nil || first != again {
		t.Errorf("two calls made two certificates: %p %p", first, again)
	}
	var group sync.WaitGroup
	for worker := range 4 {
		group.Go(func() {
			for i := range maxCached / 2 {
				if _, err := authority.Leaf(strings.Repeat("a", 1+worker) + "." + strings.Repeat("b", 1+i%60) + "." + strings.Repeat("c", 1+i/60)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if len(authority.leaves) > maxCached {
		t.Errorf("%d leaves are cached, want at most %d", len(authority.leaves), maxCached)
	}
}

func TestNoNameIsRefused(t *testing.T) {
	if _, err := New(""); err == nil {
		t.Error("an authority without a session was made")
	}
	authority, _ := New("s")
	if _, err := authority.Leaf(""); err == nil {
		t.Error("a leaf without a host was signed")
	}
}

func BenchmarkNew(b *testing.B) {
	for b.Loop() {
		if _, err := New("s"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSign(b *testing.B) {
	authority, _ := New("s")
	for b.Loop() {
		if _, err := authority.sign("api.x.example"); err != nil {
			b.Fatal(err)
		}
	}
}
