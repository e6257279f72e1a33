package secrets

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
)

const canary = "sk-ant-api03-Q7f_CANARY-key0123456789abcdefXYZ-zAA"

func value(s string) Value { return NewValue([]byte(s)) }

type holder struct {
	Shown  Value
	hidden Value
	Deep   *struct{ V Value }
}

// TestT2_ValuesRefuseToBePrinted: whatever prints, logs or encodes a value, or
// what holds one in an exported or unexported field, shows no byte of it.
func TestT2_ValuesRefuseToBePrinted(t *testing.T) {
	v := value(canary)
	h := holder{Shown: v, hidden: v, Deep: &struct{ V Value }{v}}
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%p", "%T", "%-200v", "%08.3f"} {
		fmt.Fprintf(&out, verb+"\n"+verb+"\n"+verb+"\n"+verb+"\n", v, &v, h, &h)
	}
	for _, handler := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
		slog.New(handler).Info("x", "v", v, "h", h, "p", &v, slog.Group("g", "v", v))
	}
	fmt.Fprintln(&out, errors.Join(fmt.Errorf("a key: %v", v), fmt.Errorf("%w: %+v", errors.New("x"), h)))
	for _, any := range []any{v, &v, h, &h, map[string]Value{"a": v}, []Value{v}} {
		text, err := json.Marshal(any)
		fmt.Fprintln(&out, string(text), err)
	}
	if err := gob.NewEncoder(&out).Encode(v); err == nil {
		t.Error("gob encodes a value")
	}
	for _, form := range []string{canary, "CANARY", fmt.Sprintf("%x", canary), base64.StdEncoding.EncodeToString([]byte(canary)), fmt.Sprint([]byte(canary))[1:40]} {
		if strings.Contains(strings.ToLower(out.String()), strings.ToLower(form)) {
			t.Errorf("%.20s is shown in:\n%s", form, out.String())
		}
	}
	if !strings.Contains(out.String(), redacted) {
		t.Error("nothing was printed at all")
	}
	if got := string(v.RevealForTheWire()); got != canary || v.Len() != len(canary) {
		t.Error("the value is not what it was")
	}
	var w Value
	if json.Unmarshal([]byte(`"x"`), &w) == nil || w.UnmarshalText([]byte("x")) == nil {
		t.Error("a value is read from a document")
	}
	copied := v
	v.Wipe()
	if copied.Len() != 0 || copied.RevealForTheWire() != nil || !copied.Equal(Value{}) {
		t.Error("a copy outlives its wiping")
	}
}

func TestB39_StandInsHaveTheShapeOfTheirKeys(t *testing.T) {
	claims := `{"iss":"x","sub":"person@x.example","exp":1900000000,"iat":1800000000,"https://x/auth":{"id":"acct"}}`
	enc := base64.RawURLEncoding
	jwt := enc.EncodeToString([]byte(`{"alg":"RS256","kid":"k"}`)) + "." + enc.EncodeToString([]byte(claims)) + "." + enc.EncodeToString(bytes.Repeat([]byte("s"), 256))
	for _, tt := range []struct{ key, shape string }{
		{"sk-ant-api03-" + strings.Repeat("aB3_-x", 15) + "QQAA", `^sk-ant-api03-[A-Za-z0-9_-]{92}AA$`},
		{"sk-ant-oat01-" + strings.Repeat("aB3xZ", 18), `^sk-ant-oat01-[A-Za-z0-9]{90}$`},
		{"ghp_" + strings.Repeat("aB3x", 9), `^ghp_[A-Za-z0-9]{36}$`},
		{"github_pat_11ABCDEFG0" + strings.Repeat("aB3x", 9), `^github_pat_[A-Za-z0-9]{46}$`},
		{"AIza" + strings.Repeat("aB3-x", 7), `^AIza[A-Za-z0-9-]{35}$`},
		{"sk-proj-" + strings.Repeat("aB3_x", 20), `^sk-proj-[A-Za-z0-9_]{100}$`},
		{"newco_" + strings.Repeat("a1", 20), `^newco_[a-z0-9]{40}$`},
		{"0123456789abcdef0123456789abcdef", `^[0-9a-f]{32}$`},
		{"0123456789ABCDEF", `^[0-9A-F]{16}$`},
		{"550e8400-e29b-41d4-a716-446655440000", `^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`},
		{"123456789012345", `^[0-9]{15}$`},
		{"aGVsbG8gd29ybGQhIQ+/abcd==", `^[A-Za-z0-9]{18}\+/[A-Za-z0-9]{4}==$`},
		{jwt, `^` + regexp.QuoteMeta(strings.SplitN(jwt, ".", 2)[0]) + `\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+$`},
	} {
		seen := map[string]bool{}
		for range 20 {
			s, err := NewStandIn(value(tt.key))
			if err != nil {
				t.Fatalf("%s: %v", tt.shape, err)
			}
			if !regexp.MustCompile(tt.shape).MatchString(s) || len(s) != len(tt.key) || s == tt.key || seen[s] {
				t.Errorf("%s: stand-in %s of %s", tt.shape, s, tt.key)
			}
			seen[s] = true
			if len(url.QueryEscape(s)) != len(url.QueryEscape(tt.key)) {
				t.Errorf("%s: escaped lengths differ", s)
			}
		}
	}
	if s, err := NewStandIn(value("acmelive+0123456789abcdef0123"), "acmelive+"); err != nil || !strings.HasPrefix(s, "acmelive+") || s == "acmelive+0123456789abcdef0123" {
		t.Errorf("with a prefix of its own: %q, %v", s, err)
	}
	s, _ := NewStandIn(value(jwt))
	var got map[string]any
	middle, err := enc.DecodeString(strings.Split(s, ".")[1])
	if err != nil || json.Unmarshal(middle, &got) != nil || got["exp"] != 1.9e9 || got["iat"] != 1.8e9 || strings.Contains(string(middle), "person") {
		t.Errorf("claims %s", middle)
	}
}

func TestKeysThatCannotBeUsed(t *testing.T) {
	for _, key := range []string{
		"", "short", "ghp_short", "a key with blanks in it", "line\nbreak0123456789", "nul\x00aaaaaaaaaaaaaaa", "umlaut-ääääääääääääää", "-----------------",
		strings.Repeat("a", MaxLength+1), "https://evil.example:abcdefghijklmnop",
	} {
		err := CheckShape(value(key))
		if err == nil {
			t.Errorf("%.20q is taken", key)
			continue
		}
		if len(key) > MaxLength && !strings.Contains(err.Error(), "more than 8192 bytes") {
			t.Errorf("who reads a key stops behind the bound: %v", err)
		}
		if len(key) > 5 && strings.Contains(err.Error(), key) {
			t.Errorf("the error holds the key: %v", err)
		}
		if _, err := NewStandIn(value(key)); err == nil {
			t.Errorf("%.20q has a stand-in", key)
		}
	}
}

func TestBindingsThatCannotBe(t *testing.T) {
	for _, b := range []Binding{
		{}, {Hosts: []string{"*"}}, {Hosts: []string{"https://x.example"}}, {Hosts: []string{"x.example:"}}, {Hosts: []string{"x.example:0"}}, {Hosts: []string{"x.example:+1"}},
		{Hosts: []string{"x.example:80"}}, {Hosts: []string{"x.example"}, Headers: []string{"Host"}}, {Hosts: []string{"x.example"}, Headers: []string{"Cookie"}},
		{Hosts: []string{"x.example"}, Headers: []string{"a b"}}, {Hosts: []string{"x.example"}, Headers: []string{"Authorization: digest"}},
		{Hosts: []string{"x.example"}, Query: []string{"key"}}, {Hosts: []string{"x.example"}, Body: []string{"key"}},
		{Hosts: []string{"x.example"}, Body: []string{"a&b"}, Paths: []string{"/"}}, {Hosts: []string{"x.example"}, Paths: []string{"v1"}},
	} {
		if err := b.Check(); err == nil {
			t.Errorf("%+v is taken", b)
		}
	}
	for _, s := range []string{"x.example", "*.x.example:8443", "[2001:db8::1]:8443", "[2001:db8::1]", "2001:db8::1", "203.0.113.7:8443"} {
		if err := (Binding{Hosts: []string{s}}).Check(); err != nil {
			t.Errorf("%s: %v", s, err)
		}
	}
}

// world is a ring with one key that is bound to x.example.
func newRing(t *testing.T, book *Book, session string, b Binding) (*Ring, string) {
	t.Helper()
	r := book.Open(session)
	s, err := r.Add(Secret{Name: "KEY", Value: value(canary), Binding: b})
	if err != nil {
		t.Fatal(err)
	}
	return r, s
}

func basic(s string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(s)) }

// TestB36_SwapInEachPlace: the key takes the place of its stand-in where the
// binding says, in each form.
func TestB36_SwapInEachPlace(t *testing.T) {
	r, s := newRing(t, NewBook(), "s", Binding{Hosts: []string{"api.x.example"}, Headers: []string{"Authorization", "X-Api-Key"}, Query: []string{"key"}, Paths: []string{"/**"}})
	for in, want := range map[string]string{
		"Bearer " + s: "Bearer " + canary, "bearer " + s: "bearer " + canary, "token " + s: "token " + canary,
		basic("x-access-token:" + s): basic("x-access-token:" + canary), basic(s + ":"): basic(canary + ":"), basic(s + ":x-oauth-basic"): basic(canary + ":x-oauth-basic"),
	} {
		sent := http.Header{"Authorization": {in}, "Accept": {"*/*"}}
		swap, misuse := r.Look(Request{Host: "api.x.example", Port: 443, TLS: true, Path: "/", Header: sent})
		if misuse != nil {
			t.Errorf("%s: %s", in, misuse.Reason)
			continue
		}
		out := sent.Clone()
		swap.Header(out)
		if out.Get("Authorization") != want || out.Get("Accept") != "*/*" || len(out) != 2 || sent.Get("Authorization") != in {
			t.Errorf("%s became %v", in, out)
		}
		if n := swap.Names(); len(n) != 1 || n[0] != "KEY" {
			t.Errorf("names %v", n)
		}
	}
	both := http.Header{"Authorization": {"Bearer " + s}, "X-Api-Key": {s}}
	swap, _ := r.Look(Request{Host: "api.x.example", Port: 443, TLS: true, Path: "/", Header: both, Query: "a=b%20c&key=" + s + "&&z"})
	out := both.Clone()
	swap.Header(out)
	if out.Get("Authorization") != "Bearer "+canary || out.Get("X-Api-Key") != canary || swap.Query("") != "a=b%20c&key="+canary+"&&z" {
		t.Errorf("several places at once: %v %s", out, swap.Query(""))
	}
	if swap, misuse := r.Look(Request{Host: "api.x.example", Port: 443, TLS: true, Path: "/", Header: http.Header{"Authorization": {"Bearer mine"}}, Query: "q=1"}); swap != nil || misuse != nil {
		t.Error("a request without a stand-in is changed")
	}
}

// TestT3_StandInsAreWorthNothingElsewhere is the table of what is refused.
func TestT3_StandInsAreWorthNothingElsewhere(t *testing.T) {
	book := NewBook()
	bind := Binding{Hosts: []string{"api.x.example"}, Headers: []string{"Authorization: bearer"}, Paths: []string{"/v1/**"}}
	r, s := newRing(t, book, "one", bind)
	other, foreign := newRing(t, book, "two", bind)
	ended, late := newRing(t, book, "three", bind)
	ended.Close()
	ok := func() Request {
		return Request{Host: "api.x.example", Port: 443, TLS: true, Path: "/v1/a", Header: http.Header{"Authorization": {"Bearer " + s}}}
	}
	for name, tt := range map[string]struct {
		change func(*Request)
		want   string
	}{
		"another host":           {func(q *Request) { q.Host = "evil.example" }, "goes to api.x.example only"},
		"a name below":           {func(q *Request) { q.Host = "x.api.x.example" }, "goes to api.x.example only"},
		"another port":           {func(q *Request) { q.Port = 8443 }, "goes to api.x.example only"},
		"plain HTTP":             {func(q *Request) { q.TLS = false }, "never goes over plain HTTP"},
		"another path":           {func(q *Request) { q.Path = "/v2/a" }, "other paths only"},
		"another header":         {func(q *Request) { q.Header = http.Header{"Cookie": {"a=" + s}} }, "elsewhere there"},
		"another form":           {func(q *Request) { q.Header.Set("Authorization", "token "+s) }, "elsewhere there"},
		"no form":                {func(q *Request) { q.Header.Set("Authorization", s) }, "elsewhere there"},
		"with something":         {func(q *Request) { q.Header.Set("Authorization", "Bearer "+s+"x") }, "elsewhere there"},
		"twice":                  {func(q *Request) { q.Header.Set("Authorization", "Bearer "+s+" "+s) }, "elsewhere there"},
		"in base64":              {func(q *Request) { q.Header = http.Header{"X": {basic("a:" + s)}} }, "elsewhere there"},
		"the query":              {func(q *Request) { q.Query = "a=1&b=" + s }, "elsewhere there"},
		"a name in the query":    {func(q *Request) { q.Query = s + "=1" }, "the query"},
		"the path":               {func(q *Request) { q.Path = "/v1/" + s }, "the path"},
		"another session":        {func(q *Request) { q.Header.Set("Authorization", "Bearer "+foreign) }, "of another session"},
		"a session that's over":  {func(q *Request) { q.Header.Set("Authorization", "Bearer "+late) }, "has ended"},
		"beside a good one":      {func(q *Request) { q.Header.Set("X-Other", s) }, "elsewhere there"},
		"elsewhere, in a header": {func(q *Request) { q.Host = "evil.example"; q.Header = http.Header{"Referer": {"https://x/?k=" + s}} }, "goes to api.x.example only"},
	} {
		q := ok()
		tt.change(&q)
		swap, misuse := r.Look(q)
		if misuse == nil || swap != nil || !strings.Contains(misuse.Reason, tt.want) || misuse.Secret != "KEY" {
			t.Errorf("%s: %+v, %+v", name, swap, misuse)
			continue
		}
		if strings.Contains(misuse.Reason, s) || strings.Contains(misuse.Reason, canary) {
			t.Errorf("%s: the reason holds a stand-in or key: %s", name, misuse.Reason)
		}
	}
	if swap, misuse := r.Look(ok()); misuse != nil || swap == nil {
		t.Error("the good one is refused")
	}
	// What is signed is told so, wherever it goes; what only looks like it is not.
	for name, tt := range map[string]struct {
		change func(*Request)
		signed bool
	}{
		"version 4": {func(q *Request) {
			q.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential="+s+"/20260101/x/s3/aws4_request, SignedHeaders=host, Signature=0a")
		}, true},
		"its token": {func(q *Request) {
			q.Header = http.Header{"Authorization": {"AWS4-ECDSA-P256-SHA256 Credential=A"}, "X-Amz-Security-Token": {s}}
		}, true},
		"version 2":            {func(q *Request) { q.Header.Set("Authorization", "AWS "+s+":0a=") }, true},
		"a URL":                {func(q *Request) { q.Header, q.Query = nil, "X-Amz-Credential="+s+"%2F20260101&X-Amz-Signature=0a" }, true},
		"a URL of version 2":   {func(q *Request) { q.Header, q.Query = nil, "Signature=0a&AWSAccessKeyId="+s }, true},
		"another host":         {func(q *Request) { q.Host = "s3.x.example"; q.Header.Set("Authorization", "AWS "+s+":0a=") }, true},
		"plain HTTP":           {func(q *Request) { q.TLS = false; q.Header.Set("Authorization", "AWS "+s+":0a=") }, true},
		"of another session":   {func(q *Request) { q.Header.Set("Authorization", "AWS "+foreign+":0a=") }, false},
		"a word like a scheme": {func(q *Request) { q.Header.Set("Authorization", "AWSOME "+s) }, false},
	} {
		q := ok()
		tt.change(&q)
		_, misuse := r.Look(q)
		if misuse == nil || misuse.Signed != tt.signed || strings.Contains(misuse.Reason, "a stand-in cannot sign") != tt.signed {
			t.Errorf("signed, %s: %+v", name, misuse)
		}
	}
	// What has the shape of a stand-in and is none is the caller's own.
	own, _ := NewStandIn(value(canary))
	q := ok()
	q.Header.Set("Authorization", "Bearer "+own)
	if swap, misuse := r.Look(q); swap != nil || misuse != nil {
		t.Error("a key of the caller's own is touched")
	}
	r.Close()
	q = ok()
	if swap, misuse := r.Look(q); swap != nil || misuse == nil || !strings.Contains(misuse.Reason, "void") {
		t.Errorf("after the end: %+v %+v", swap, misuse)
	}
	_ = other
}

func TestRotationReachesWhoAlreadyHasAStandIn(t *testing.T) {
	r, s := newRing(t, NewBook(), "s", Binding{Hosts: []string{"x.example"}})
	const next = "sk-ant-api03-another-key-of-another-length-0123456789"
	if err := r.Rotate("KEY", value(next)); err != nil {
		t.Fatal(err)
	}
	h := http.Header{"X-Api-Key": {s}}
	swap, misuse := r.Look(Request{Host: "x.example", Port: 443, TLS: true, Path: "/", Header: h})
	if misuse != nil {
		t.Fatal(misuse.Reason)
	}
	swap.Header(h)
	if h.Get("X-Api-Key") != next {
		t.Errorf("sent %v", h)
	}
	said := []byte("old " + canary + " new " + next)
	if n := len(said); !r.Masker().Mask(said) || len(said) != n || bytes.Contains(said, []byte(canary)) || bytes.Contains(said, []byte(next)) {
		t.Errorf("masked %s", said)
	}
	if r.Rotate("OTHER", value(next)) == nil || r.Rotate("KEY", value("short")) == nil {
		t.Error("a rotation that cannot be is taken")
	}
	r.Close()
	if r.Rotate("KEY", value(next)) == nil || r.Masker() != nil {
		t.Error("a closed ring is changed")
	}
	if _, err := r.Add(Secret{Name: "B", Value: value(canary), Binding: Binding{Hosts: []string{"x.example"}}}); err == nil {
		t.Error("a closed ring takes keys")
	}
}

func TestBodiesAreSwappedWhereTheBindingNamesAField(t *testing.T) {
	r, s := newRing(t, NewBook(), "s", Binding{Hosts: []string{"x.example"}, Body: []string{"client_secret"}, Paths: []string{"/token"}})
	for _, tt := range []struct{ kind, body, want string }{
		{"application/x-www-form-urlencoded", "a=1&client_secret=" + s + "&z=" + s, "a=1&client_secret=" + canary + "&z=" + s},
		{"application/json; charset=utf-8", `{ "a":1, "client_secret" : "` + s + `","deep":{"client_secret":"` + s + `"}}`, `{ "a":1, "client_secret" : "` + canary + `","deep":{"client_secret":"` + s + `"}}`},
		{"application/json", `{"client_secret":"` + s + `x"}`, ""},
		{"application/json", `["client_secret","` + s + `"]`, ""},
		{"application/json", `{"client_secret":"` + s + `"`, `{"client_secret":"` + canary + `"`},
		{"application/json", `{"client_secret":`, ""},
		{"text/plain", "client_secret=" + s, ""},
		{"", "client_secret=" + s, ""},
	} {
		want := tt.want
		if want == "" {
			want = tt.body
		}
		got, names := r.SwapBody("x.example", 443, "/token", tt.kind, []byte(tt.body))
		if string(got) != want || (len(names) == 1) != (tt.want != "") {
			t.Errorf("%s %s became %s %v", tt.kind, tt.body, got, names)
		}
	}
	if r.InBody("x.example", 443, "/other") || r.InBody("y.example", 443, "/token") || !r.InBody("x.example", 443, "/token") {
		t.Error("the place of the body")
	}
}

// FuzzSwap: in no place is anything changed but where a stand-in stands, and
// what was JSON stays it.
func FuzzSwap(f *testing.F) {
	const mark = "STANDIN" // for the stand-in, which each ring makes anew
	f.Add("Bearer "+mark, "key="+mark+"&z", "application/json", `{"client_secret":"`+mark+`","x":1}`)
	f.Add("Basic "+base64.StdEncoding.EncodeToString([]byte("u:"+mark)), "key=%53TANDIN", "application/x-www-form-urlencoded", "client_secret="+mark+"&a")
	r := NewBook().Open("s")
	standIn, err := r.Add(Secret{Name: "KEY", Value: value(canary), Binding: Binding{
		Hosts: []string{"x.example"}, Headers: []string{"Authorization"}, Query: []string{"key"}, Body: []string{"client_secret"}, Paths: []string{"/**"},
	}})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, header, query, kind, body string) {
		fill := func(s string) string { return strings.ReplaceAll(s, mark, standIn) }
		header, query, body = fill(header), fill(query), fill(body)
		h := http.Header{"Authorization": {header}, "X-Other": {"o"}}
		swap, misuse := r.Look(Request{Host: "x.example", Port: 443, TLS: true, Path: "/p", Header: h, Query: query})
		if misuse != nil {
			return
		}
		swap.Header(h)
		_, encoded, _ := strings.Cut(header, " ")
		decoded, _ := base64.StdEncoding.DecodeString(strings.TrimSpace(encoded))
		if got := h.Get("Authorization"); got != header && !strings.Contains(header+string(decoded), standIn) || h.Get("X-Other") != "o" || len(h) != 2 {
			t.Errorf("%q became %v", header, h)
		}
		if plain, _ := url.QueryUnescape(query); swap.Query(query) != query && !strings.Contains(plain+query, standIn) {
			t.Errorf("%q became %q", query, swap.Query(query))
		}
		out, names := r.SwapBody("x.example", 443, "/p", kind, []byte(body))
		if (len(names) > 0) == (string(out) == body) || json.Valid([]byte(body)) && strings.HasSuffix(kind, "json") && !json.Valid(out) {
			t.Errorf("%q of %s became %q with %v", body, kind, out, names)
		}
	})
}

func TestNilRing(t *testing.T) {
	var r *Ring
	r.Close()
	if swap, misuse := r.Look(Request{}); swap != nil || misuse != nil || r.Bound("x", 1) || r.Masker() != nil || r.InBody("x", 1, "/") {
		t.Error("a nil ring knows something")
	}
	var m *Masker
	m.MaskHeader(nil)
	if m.Mask([]byte("x")) || m.Reader(nil) != nil {
		t.Error("a nil masker masks")
	}
}

// TestPasswords: git sends a token as the password of Basic, so that only keys
// which may go there are any use to it.
func TestPasswords(t *testing.T) {
	hosts := []string{"GitHub.com", "*.corp.example:8443"}
	for _, tt := range []struct {
		b    Binding
		want string
	}{
		{Binding{Hosts: hosts}, "[github.com *.corp.example:8443]"},
		{Binding{Hosts: hosts, Headers: []string{"Authorization: basic"}}, "[github.com *.corp.example:8443]"},
		{Binding{Hosts: hosts, Headers: []string{"Authorization"}}, "[github.com *.corp.example:8443]"},
		{Binding{Hosts: hosts, Headers: []string{"Authorization: bearer"}}, "[]"},
		{Binding{Hosts: hosts, Headers: []string{"X-Api-Key"}}, "[]"},
		{Binding{}, "[]"},
	} {
		if got := fmt.Sprint(tt.b.Passwords()); got != tt.want {
			t.Errorf("%+v: %s, want %s", tt.b, got, tt.want)
		}
	}
}

// TestB40_OneVariableTwoHosts: one key for two hosts works at both and nowhere else;
// a second key of the same name is refused with a sentence, and takes nothing away.
func TestB40_OneVariableTwoHosts(t *testing.T) {
	r := NewBook().Open("s")
	const key = "ghp_0123456789abcdefghijklmnopqrstuvwxyz"
	standIn, err := r.Add(Secret{Name: "GITHUB_TOKEN", Value: NewValue([]byte(key)), Binding: Binding{Hosts: []string{"api.git.example", "*.raw.git.example"}}})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(host string) (string, string) {
		h := http.Header{"Authorization": {"token " + standIn}}
		swap, misuse := r.Look(Request{Host: host, Port: 443, TLS: true, Path: "/", Header: h})
		if misuse != nil {
			return "", misuse.Reason
		}
		swap.Header(h)
		return h.Get("Authorization"), ""
	}
	_, err = r.Add(Secret{Name: "GITHUB_TOKEN", Value: NewValue([]byte("ghp_9876543210abcdefghijklmnopqrstuvwxyz")), Binding: Binding{Hosts: []string{"api.git.example"}}})
	if err == nil || !strings.Contains(err.Error(), "GITHUB_TOKEN is in the ring already") {
		t.Errorf("a second one: %v", err)
	}
	for _, host := range []string{"api.git.example", "a.raw.git.example", "b.raw.git.example"} {
		if got, why := ask(host); got != "token "+key {
			t.Errorf("%s: %q %s", host, got, why)
		}
	}
	for _, host := range []string{"git.example", "raw.git.example", "a.b.raw.git.example", "api.git.example.evil"} {
		if got, why := ask(host); got != "" || !strings.Contains(why, "GITHUB_TOKEN, whose key goes to api.git.example, *.raw.git.example only") {
			t.Errorf("%s: %q %s", host, got, why)
		}
	}
}

// TestB36_BasicHoweverItIsWritten: without padding, and in the alphabet of URLs, as
// many servers read it, a stand-in is found too; the key goes out in the same way.
func TestB36_BasicHoweverItIsWritten(t *testing.T) {
	const key = "sk-0123456789abcdefghijklmnop"
	r := NewBook().Open("s")
	standIn, err := r.Add(Secret{Name: "A", Value: NewValue([]byte(key)), Binding: Binding{Hosts: []string{"x.example"}, Headers: []string{"Authorization: basic"}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, by := range []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
		for _, user := range []string{"a", "me", "you", "??>>"} {
			h := http.Header{"Authorization": {"Basic " + by.EncodeToString([]byte(user+":"+standIn))}}
			if _, misuse := r.Look(Request{Host: "evil.example", Port: 443, TLS: true, Path: "/", Header: h}); misuse == nil {
				t.Errorf("%s passes to another host", h)
			}
			swap, misuse := r.Look(Request{Host: "x.example", Port: 443, TLS: true, Path: "/", Header: h})
			if misuse != nil {
				t.Errorf("%s: %+v", h, misuse)
				continue
			}
			swap.Header(h)
			if want := "Basic " + by.EncodeToString([]byte(user+":"+key)); h.Get("Authorization") != want {
				t.Errorf("got %s, want %s", h, want)
			}
		}
	}
}

// TestB36_BasicThatOnlySomeCanRead: servers that pass over what does not belong in
// base64 are told no stand-in, and no token that was taken back.
func TestB36_BasicThatOnlySomeCanRead(t *testing.T) {
	r := NewBook().Open("s")
	standIn, err := r.Add(Secret{Name: "A", Value: NewValue([]byte("sk-0123456789abcdefghijklmnop")), Binding: Binding{Hosts: []string{"x.example"}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, user := range []string{"a", "me", "you"} {
		right := base64.StdEncoding.EncodeToString([]byte(user + ":" + standIn))
		bare := strings.TrimRight(right, "=")
		for _, value := range []string{
			"Basic " + right + "=", "Basic " + bare + "====", "Basic\t" + right, "basic  " + right[:9] + " " + right[9:], "Basic " + right[:9] + "\t." + right[9:],
			"Basic YQ==" + right, "Basic " + bare + "=YQ==", "Basic " + bare + ",x", "Basic " + right[:9] + "=" + right[9:], "Basic" + right,
		} {
			h := http.Header{"Authorization": {value}}
			if swap, misuse := r.Look(Request{Host: "x.example", Port: 443, TLS: true, Path: "/", Header: h}); misuse == nil {
				t.Errorf("%q passes: %v", value, swap.Names())
			}
		}
	}
}

// TestT3_InANameThatIsWrittenAsUsual: names are kept in one spelling, in which a
// stand-in of digits and small letters may be written already.
func TestT3_InANameThatIsWrittenAsUsual(t *testing.T) {
	r := NewBook().Open("s")
	for range 64 {
		name := rand.Text()
		standIn, err := r.Add(Secret{Name: name, Value: NewValue([]byte("0123456789abcdef0123456789abcdef")), Binding: Binding{Hosts: []string{"x.example"}}})
		if err != nil {
			t.Fatal(err)
		}
		if http.CanonicalHeaderKey(standIn) != standIn {
			continue // it is among the names as they were sent
		}
		if _, misuse := r.Look(Request{Host: "x.example", Port: 443, TLS: true, Path: "/", Header: http.Header{standIn: {"x"}}}); misuse == nil || misuse.Secret != name {
			t.Errorf("it passes as a name: %+v", misuse)
		}
		return
	}
	t.Error("none of these is written as a name is")
}
