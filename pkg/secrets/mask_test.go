package secrets

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"
)

// keysOfShapes need every kind of encoding.
var keysOfShapes = []string{canary, "aGVsbG8+d29ybGQhIQ/=abcdefgh==", "0123456789abcdef", "a&b=c d"[:5] + "0123456789ab"}

func maskerOf(t testing.TB, keys ...string) *Masker {
	t.Helper()
	r := NewBook().Open("s")
	for i, k := range keys {
		if _, err := r.Add(Secret{Name: string(rune('A' + i)), Value: value(k), Binding: Binding{Hosts: []string{"x.example"}}}); err != nil {
			t.Fatal(err)
		}
	}
	return r.Masker()
}

// sayings are texts in which a server might say a key.
func sayings(key string) []string {
	var out []string
	for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding, base64.RawStdEncoding} {
		for before := range 4 {
			out = append(out, enc.EncodeToString([]byte("user"[:before]+key+"behind")), enc.EncodeToString([]byte("user"[:before]+key)))
		}
	}
	return append(out, key, url.QueryEscape(key), lowerEscapes(url.QueryEscape(key)), url.PathEscape(key), strings.ReplaceAll(key, "/", `\/`), hex.EncodeToString([]byte(key)), strings.ToUpper(hex.EncodeToString([]byte(key))))
}

// leaks reports whether text, or what it decodes to, says the key.
func leaks(text, key string) bool {
	if strings.Contains(text, key) || strings.Contains(strings.ReplaceAll(text, `\/`, "/"), key) {
		return true
	}
	if plain, err := url.QueryUnescape(text); err == nil && strings.Contains(plain, key) {
		return true
	}
	if plain, err := url.PathUnescape(text); err == nil && strings.Contains(plain, key) {
		return true
	}
	if plain, err := hex.DecodeString(text); err == nil && strings.Contains(string(plain), key) {
		return true
	}
	for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding, base64.RawStdEncoding} {
		if plain, err := enc.DecodeString(text); err == nil && strings.Contains(string(plain), key) {
			return true
		}
	}
	return false
}

// TestEchoedKeysAreMasked: in each form, at every place, cut at every byte.
func TestEchoedKeysAreMasked(t *testing.T) {
	for _, key := range keysOfShapes {
		m := maskerOf(t, key)
		for _, said := range sayings(key) {
			if !leaks(said, key) {
				t.Fatalf("the search does not find %s in %s", key, said)
			}
			b := []byte(said)
			if !m.Mask(b) || leaks(string(b), key) || len(b) != len(said) {
				t.Errorf("%s became %s", said, b)
			}
			text := "before " + said + " after"
			for cut := range len(text) {
				got, err := io.ReadAll(m.Reader(io.MultiReader(strings.NewReader(text[:cut]), strings.NewReader(text[cut:]))))
				if err != nil || strings.Contains(string(got), said) || len(got) != len(text) || !strings.HasPrefix(string(got), "before ") || !strings.HasSuffix(string(got), " after") {
					t.Fatalf("cut at %d: %s became %s %v", cut, text, got, err)
				}
			}
		}
	}
}

// TestMaskingHoldsNothingBack: what cannot be the beginning of a key comes at
// once, so that an event is not late.
func TestMaskingHoldsNothingBack(t *testing.T) {
	m := maskerOf(t, canary)
	pr, pw := io.Pipe()
	defer pr.Close()
	r := m.Reader(pr)
	buf := make([]byte, 64<<10)
	for _, event := range []string{"data: one\n\n", "data: " + canary + "\n\n", "data: sk-ant is no key\n\n"} {
		go io.WriteString(pw, event)
		n, err := r.Read(buf)
		if err != nil || n != len(event) || bytes.Contains(buf[:n], []byte(canary)) {
			t.Errorf("%q came as %q %v", event, buf[:n], err)
		}
	}
	go func() {
		io.WriteString(pw, "half a key: "+canary[:20])
		pw.Close()
	}()
	got, err := io.ReadAll(r)
	if err != nil || string(got) != "half a key: "+canary[:20] {
		t.Errorf("at the end: %q %v", got, err)
	}
}

func TestMaskingReadersAreReaders(t *testing.T) {
	m := maskerOf(t, keysOfShapes...)
	text := strings.Repeat("abc sk-ant-api03 "+canary+canary[:30]+" x", 200)
	want := []byte(text)
	m.Mask(want)
	if bytes.Contains(want, []byte(canary)) {
		t.Fatal("not masked")
	}
	if err := iotest.TestReader(m.Reader(strings.NewReader(text)), want); err != nil {
		t.Error(err)
	}
	for name, from := range map[string]io.Reader{"one byte": iotest.OneByteReader(strings.NewReader(text)), "data and end": iotest.DataErrReader(strings.NewReader(text))} {
		if got, err := io.ReadAll(m.Reader(from)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %v, %d bytes", name, err, len(got))
		}
	}
	if got, err := io.ReadAll(m.Reader(io.MultiReader(strings.NewReader(text), iotest.ErrReader(io.ErrUnexpectedEOF)))); err != io.ErrUnexpectedEOF || !bytes.Equal(got, want) {
		t.Errorf("an error: %v, %d bytes", err, len(got))
	}
}

func TestHeadersAreMasked(t *testing.T) {
	h := http.Header{"Location": {"https://x.example/?key=" + canary}, "X": {"short", "a " + canary}, "Etag": {`"abc"`}}
	maskerOf(t, canary).MaskHeader(h)
	if s := h.Get("Location") + strings.Join(h["X"], " "); strings.Contains(s, canary) || h.Get("Etag") != `"abc"` || h["X"][0] != "short" {
		t.Errorf("%v", h)
	}
}

// TestAKeyForANameIsLeftOut: as HTTP/2 sends names, and as net/http keeps them.
func TestAKeyForANameIsLeftOut(t *testing.T) {
	const key = "ab-0123456789abcdef0123456789abcdef"
	h := http.Header{http.CanonicalHeaderKey(key): {"1"}, "X-" + key: {"1"}, "X-Other": {"1"}}
	maskerOf(t, key).MaskHeader(h)
	if len(h) != 1 || h.Get("X-Other") != "1" {
		t.Errorf("%v", h)
	}
}

// FuzzMask holds the fast search to a plain one, however the text is cut.
func FuzzMask(f *testing.F) {
	f.Add([]byte("before "+canary+" after"), uint8(3))
	f.Add([]byte(canary[:20]+canary+canary), uint8(20))
	f.Add([]byte("0123456789abcde0123456789abcdef"), uint8(1))
	m := maskerOf(f, keysOfShapes...)
	f.Fuzz(func(t *testing.T, text []byte, piece uint8) {
		got, err := io.ReadAll(m.Reader(&pieces{text: bytes.Clone(text), n: int(piece)%40 + 1}))
		if err != nil || len(got) != len(text) {
			t.Fatalf("%d bytes became %d: %v", len(text), len(got), err)
		}
		for _, p := range m.patterns {
			if leftIn(got, text, p.key) {
				t.Fatalf("%q is left in %q of %q", p.key, got, text)
			}
		}
		whole := bytes.Clone(text)
		m.Mask(whole)
		if !bytes.Equal(whole, got) {
			t.Fatalf("in pieces of %d: %q, at once %q", int(piece)%40+1, got, whole)
		}
	})
}

// leftIn reports whether a key still stands where it stood. Elsewhere chance may
// make one of what was there and the beginning of a stand-in.
func leftIn(got, text, key []byte) bool {
	for at := range len(text) - len(key) + 1 {
		if bytes.HasPrefix(text[at:], key) && bytes.HasPrefix(got[at:], key) {
			return true
		}
	}
	return false
}

type pieces struct {
	text []byte
	n    int
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.text) == 0 {
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), p.n)], p.text)
	p.text = p.text[n:]
	return n, nil
}

func BenchmarkMask(b *testing.B) {
	m := maskerOf(b, canary, "ghp_"+strings.Repeat("aB3x", 9), keysOfShapes[1])
	text := bytes.Repeat([]byte(`{"id":"msg_0123456789","type":"message","content":[{"type":"text","text":"the quick brown fox"}]}`), 640)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		m.Mask(text)
		_ = m.unfinished(text)
	}
}

func BenchmarkLook(b *testing.B) {
	r := NewBook().Open("s")
	s, err := r.Add(Secret{Name: "A", Value: value(canary), Binding: Binding{Hosts: []string{"x.example"}}})
	if err != nil {
		b.Fatal(err)
	}
	h := http.Header{"X-Api-Key": {s}, "User-Agent": {"claude-cli/2.1.332 (external, cli)"}, "Accept": {"application/json"}, "Content-Type": {"application/json"},
		"Anthropic-Beta": {"oauth-2025-04-20,interleaved-thinking-2025-05-14,fine-grained-tool-streaming-2025-05-14"}, "Accept-Encoding": {"gzip, br"}}
	for b.Loop() {
		if _, misuse := r.Look(Request{Host: "x.example", Port: 443, TLS: true, Path: "/v1/messages", Header: h, Query: "beta=true"}); misuse != nil {
			b.Fatal(misuse.Reason)
		}
	}
}
