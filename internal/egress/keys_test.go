package egress

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/mojoup/mojoup-node/pkg/policy"
	"github.com/mojoup/mojoup-node/pkg/secrets"
)

const (
	realKey  = "sk-ant-api03-CANARY0123456789-abcdefghijklmnopqrstuvwxyzAA"
	laterKey = "sk-ant-api03-LATER_0123456789-abcdefghijklmnopqrstuvwxyzAA"
)

// keyWorld is a world whose session has a key for api.x.example. It returns
// the stand-in.
func keyWorld(t *testing.T, judge Judge, b secrets.Binding) (*world, string) {
	t.Helper()
	return worldOfKey(t, realKey, judge, b)
}

// worldOfKey is a world whose session has a stand-in of that key.
func worldOfKey(t *testing.T, key string, judge Judge, b secrets.Binding) (*world, string) {
	t.Helper()
	w := newWorld(t, judge)
	w.stop()
	ring := secrets.NewBook().Open("s-1")
	standIn, err := ring.Add(secrets.Secret{Name: "API_KEY", Value: secrets.NewValue([]byte(key)), Binding: b})
	if err != nil {
		t.Fatal(err)
	}
	w.session.Keys = ring
	w.start()
	return w, standIn
}

var bindAPI = secrets.Binding{Hosts: []string{"api.x.example"}}

// all allows every host, tunnelled: it is the keys that make the proxy look.
var all = judgeFunc(func(policy.Request) policy.Decision {
	return policy.Decision{Allowed: true, Rule: "rule 1", Layer: "repository", Reason: "rule 1 allows it"}
})

func basicAuth(user, password string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
}

// heard is what a server got.
type heard struct {
	mu sync.Mutex
	r  []*http.Request
	b  []string
}

func (h *heard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.r, h.b = append(h.r, r), append(h.b, string(body))
}

func (h *heard) last() (*http.Request, string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.r) == 0 {
		return &http.Request{Header: http.Header{}}, ""
	}
	return h.r[len(h.r)-1], h.b[len(h.b)-1]
}

func (h *heard) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.r)
}

// TestB38_KeysAreSwappedOnTheWayOut: header, Basic, query and body, over
// HTTP/1.1 and HTTP/2, each request of a kept connection anew; nothing is added
// to a request without a stand-in and nothing of the caller's own replaced.
func TestB38_KeysAreSwappedOnTheWayOut(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("h2=%t", h2), func(t *testing.T) {
			b := bindAPI
			b.Headers, b.Query, b.Body, b.Paths = []string{"Authorization", "X-Api-Key"}, []string{"key"}, []string{"client_secret"}, []string{"/**"}
			w, standIn := keyWorld(t, all, b)
			var got heard
			w.serve(443, true, got.ServeHTTP)
			c := w.client(h2)
			send := func(h http.Header, query, kind, body string) *http.Request {
				t.Helper()
				req, _ := http.NewRequest("POST", "https://api.x.example/v1/x"+query, strings.NewReader(body))
				req.Header = h
				if kind != "" {
					req.Header.Set("Content-Type", kind)
				}
				res, err := c.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				res.Body.Close()
				r, _ := got.last()
				return r
			}
			for in, want := range map[string]string{
				"Bearer " + standIn: "Bearer " + realKey, "token " + standIn: "token " + realKey,
				basicAuth("x-access-token", standIn): basicAuth("x-access-token", realKey),
				"Bearer mine":                        "Bearer mine",
			} {
				if r := send(http.Header{"Authorization": {in}}, "", "", ""); r.Header.Get("Authorization") != want {
					t.Errorf("%s arrived as %v", in, r.Header)
				}
			}
			if r := send(http.Header{}, "?key="+standIn+"&z", "", ""); r.URL.RawQuery != "key="+realKey+"&z" || r.Header.Get("Authorization") != "" || r.Header.Get("X-Api-Key") != "" {
				t.Errorf("query arrived as %s with %v", r.URL.RawQuery, r.Header)
			}
			send(http.Header{}, "", "application/x-www-form-urlencoded", "a=1&client_secret="+standIn)
			if r, body := got.last(); body != "a=1&client_secret="+realKey || r.ContentLength != int64(len(body)) {
				t.Errorf("form arrived as %q, %d", body, r.ContentLength)
			}
			transcript := `{"messages":["API_KEY=` + standIn + `"],"client_secret":"no"}`
			send(http.Header{"X-Api-Key": {standIn}}, "", "application/json", transcript)
			if r, body := got.last(); body != transcript || r.Header.Get("X-Api-Key") != realKey {
				t.Errorf("a transcript arrived as %q with %v", body, r.Header)
			}
			if err := w.session.Keys.Rotate("API_KEY", secrets.NewValue([]byte(laterKey))); err != nil {
				t.Fatal(err)
			}
			if r := send(http.Header{"X-Api-Key": {standIn}}, "", "", ""); r.Header.Get("X-Api-Key") != laterKey {
				t.Errorf("after a rotation %v", r.Header)
			}
			if n := w.count(false); n != 0 {
				t.Errorf("%d denials: %+v", n, w.recorded())
			}
			w.wait("an allow that names the key", func(v Verdict) bool { return strings.HasSuffix(v.Reason, "with the key of API_KEY") })
			if all := w.logs.text() + fmt.Sprintf("%+v", w.recorded()); strings.Contains(all, realKey) || strings.Contains(all, laterKey) {
				t.Error("the key is logged or recorded")
			}
		})
	}
}

// TestT3_StandInsAreRefusedAndReported wherever the proxy reads the request.
func TestT3_StandInsAreRefusedAndReported(t *testing.T) {
	judge := judgeFunc(func(r policy.Request) policy.Decision {
		if r.Host == "denied.example" {
			return policy.Decision{Layer: "repository", Reason: "no rule allows it"}
		}
		return policy.Decision{Allowed: true, Inspect: r.TLS && r.Method == "" && r.Host == "read.example", Rule: "rule 1", Layer: "repository"}
	})
	w, standIn := keyWorld(t, judge, bindAPI)
	var got heard
	for _, host := range []string{"read.example", "denied.example", "tunnel.example"} {
		w.resolver.set(host, publicAddr)
	}
	w.serve(443, true, got.ServeHTTP)
	w.serve(80, false, got.ServeHTTP)
	for name, tt := range map[string]struct{ target, header, value, want string }{
		"another host that is read": {"https://read.example/", "Authorization", "Bearer " + standIn, "goes to api.x.example only"},
		"another host, in base64":   {"https://read.example/", "Authorization", basicAuth("a", standIn), "goes to api.x.example only"},
		"another host, in its URL":  {"https://read.example/?x=" + standIn, "", "", "goes to api.x.example only"},
		"a host that is denied":     {"https://denied.example/", "X-Api-Key", standIn, "goes to api.x.example only"},
		"another header":            {"https://api.x.example/", "Referer", standIn, "elsewhere there"},
		"a signature":               {"https://api.x.example/", "Authorization", "AWS4-HMAC-SHA256 Credential=" + standIn + "/20260101/x/s3/aws4_request", "in a request that is signed as AWS wants it, and a stand-in cannot sign"},
		"plain HTTP":                {"http://api.x.example/", "X-Api-Key", standIn, "never goes over plain HTTP"},
	} {
		before := len(w.recorded())
		req, _ := http.NewRequest("GET", tt.target, nil)
		if tt.header != "" {
			req.Header.Set(tt.header, tt.value)
		}
		res, err := w.client(false).Do(req)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		body, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if res.StatusCode != 403 || !strings.Contains(string(body), tt.want) || strings.Contains(string(body), standIn) {
			t.Errorf("%s: %d %s", name, res.StatusCode, body)
		}
		if signed := name == "a signature"; strings.Contains(string(body), "make it outside of the session") != signed || strings.Contains(string(body), "secret set") == signed {
			t.Errorf("%s: advised %s", name, body)
		}
		reported := false
		for _, v := range w.recorded()[before:] {
			reported = reported || !v.Allowed && strings.Contains(v.Reason, tt.want) && strings.Contains(v.Reason, "API_KEY")
		}
		if !reported {
			t.Errorf("%s: not reported in %+v", name, w.recorded()[before:])
		}
	}
	if got.count() > 0 {
		t.Error("something reached a host")
	}
	// After a redirect the client takes its header along to the same name only
	// if it likes; here it does, to another one.
	w.serve(443, true, func(rw http.ResponseWriter, r *http.Request) {
		if r.Host == "api.x.example" {
			http.Redirect(rw, r, "https://read.example/", http.StatusTemporaryRedirect)
			return
		}
		got.ServeHTTP(rw, r)
	})
	c := w.client(false)
	c.CheckRedirect = func(r *http.Request, via []*http.Request) error {
		r.Header.Set("X-Api-Key", via[0].Header.Get("X-Api-Key"))
		return nil
	}
	req, _ := http.NewRequest("GET", "https://api.x.example/", nil)
	req.Header.Set("X-Api-Key", standIn)
	res, err := c.Do(req)
	if err != nil || res.StatusCode != 403 || got.count() > 0 {
		t.Fatalf("after a redirect: %v %v", res, err)
	}
	res.Body.Close()
	// In a tunnel nobody reads, it passes and is worth nothing.
	req, _ = http.NewRequest("GET", "https://tunnel.example/", nil)
	req.Header.Set("X-Api-Key", standIn)
	w.caPool.AppendCertsFromPEM(testAuthority().CertificatePEM())
	if res, err = w.client(false).Do(req); err != nil || res.StatusCode != 200 {
		t.Fatalf("in a tunnel: %v %v", res, err)
	}
	res.Body.Close()
	if r, _ := got.last(); r.Header.Get("X-Api-Key") != standIn {
		t.Errorf("in a tunnel it arrived as %v", r.Header)
	}
}

// TestEchoedKeysAreMaskedOnTheWayIn in header, body, stream, trailer, and what
// a server compresses unasked.
func TestEchoedKeysAreMaskedOnTheWayIn(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		w, standIn := keyWorld(t, all, bindAPI)
		asked := make(chan string, 16)
		w.serve(443, true, func(rw http.ResponseWriter, r *http.Request) {
			asked <- r.Header.Get("Accept-Encoding")
			key := r.Header.Get("X-Api-Key")
			rw.Header().Set("X-Echo", "key "+key)
			rw.Header().Set("Trailer", "X-Sum")
			text := "plain " + key + " basic " + basicAuth("user", key) + " url " + url.QueryEscape(key) + " end"
			switch r.URL.Path {
			case "/gzip":
				rw.Header().Set("Content-Encoding", "gzip")
				z := gzip.NewWriter(rw)
				io.WriteString(z, text)
				z.Close()
			case "/br":
				rw.Header().Set("Content-Encoding", "br")
				io.WriteString(rw, "no matter")
			case "/pieces":
				for _, c := range []byte(text) {
					rw.Write([]byte{c})
					rw.(http.Flusher).Flush()
				}
			default:
				io.WriteString(rw, text)
			}
			rw.Header().Set("X-Sum", key)
		})
		for _, path := range []string{"/", "/gzip", "/pieces", "/br"} {
			req, _ := http.NewRequest("GET", "https://api.x.example"+path, nil)
			req.Header.Set("X-Api-Key", standIn)
			req.Header.Set("Accept-Encoding", "br, gzip")
			res, err := w.client(h2).Do(req)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(res.Body)
			res.Body.Close()
			if got := <-asked; got != "identity" {
				t.Errorf("%s: the host was asked for %q", path, got)
			}
			if path == "/br" {
				if res.StatusCode != 502 || !strings.Contains(string(body), "could not be masked") {
					t.Errorf("%s: %d %s", path, res.StatusCode, body)
				}
				continue
			}
			want := "plain " + standIn + " basic " + basicAuth("user", standIn)[:12]
			if err != nil || !strings.HasPrefix(string(body), want) || !strings.HasSuffix(string(body), " end") || saysKey(body) || res.Header.Get("Content-Encoding") != "" {
				t.Errorf("h2 %t %s: %v %q", h2, path, err, body)
			}
			if res.Header.Get("X-Echo") != "key "+standIn || res.Trailer.Get("X-Sum") != standIn {
				t.Errorf("%s: header %v, trailer %v", path, res.Header, res.Trailer)
			}
		}
	}
}

// A server may say a key in any part of an answer's head.
func TestEchoedKeysAreMaskedInHeads(t *testing.T) {
	for name, answer := range map[string]string{
		"reason":         "HTTP/1.1 401 No Such Key KEY\r\nContent-Length: 0\r\n\r\n",
		"spelled oddly":  "HTTP/1.1 401 No Such Key KEY\nContent-Length: 0\n\n",
		"interim reason": "HTTP/1.1 103 Hints for KEY\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
		"switched":       "HTTP/1.1 101 Welcome KEY\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n" + thenClose,
		"name":           "HTTP/1.1 200 OK\r\nX-KEY: 1\r\nContent-Length: 0\r\n\r\n",
		"trailer's name": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-KEY: KEY\r\n\r\n",
	} {
		w, standIn := keyWorld(t, all, bindAPI)
		w.script(443, strings.ReplaceAll(answer, "KEY", realKey))
		c := w.inside("api.x.example:443", "http/1.1")
		wish := "Connection: close"
		if name == "switched" {
			wish = "Connection: Upgrade\r\nUpgrade: websocket"
		}
		io.WriteString(c, "GET / HTTP/1.1\r\nHost: api.x.example\r\n"+wish+"\r\n\r\n")
		got, err := io.ReadAll(c)
		if err != nil || bytes.Contains(got, []byte(realKey)) || !bytes.Contains(got, []byte(standIn)) {
			t.Errorf("%s: %q %v", name, got, err)
		}
	}
}

// TestT2_InterimAnswersOverHTTP2: what comes before the answer is masked as well,
// and so are names of fields, whatever the host speaks.
func TestT2_InterimAnswersOverHTTP2(t *testing.T) {
	for _, first := range []bool{false, true} {
		w, standIn := keyWorld(t, all, bindAPI)
		if first {
			w.script(443, strings.ReplaceAll("HTTP/1.1 103 Hints\r\nLink: </KEY>\r\nAlt-Svc: h3\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "KEY", realKey))
		} else {
			w.serve(443, true, func(rw http.ResponseWriter, _ *http.Request) {
				rw.Header().Set("Link", "</"+realKey+">")
				rw.Header().Set("Alt-Svc", "h3")
				rw.WriteHeader(http.StatusEarlyHints)
				rw.WriteHeader(http.StatusOK)
			})
		}
		var hints []textproto.MIMEHeader
		trace := &httptrace.ClientTrace{Got1xxResponse: func(_ int, h textproto.MIMEHeader) error {
			hints = append(hints, h)
			return nil
		}}
		req, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), http.MethodGet, "https://api.x.example/", nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := w.client(true).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if len(hints) != 1 || hints[0].Get("Link") != "</"+standIn+">" || hints[0].Get("Alt-Svc") != "" {
			t.Errorf("from HTTP/1.1 %t: %v", first, hints)
		}
	}
}

// TestT2_EncodingsOnSeveralLines: several lines are one list (RFC 9110, section
// 5.3), of which the client may take any for what it is told.
func TestT2_EncodingsOnSeveralLines(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		for _, lines := range [][]string{{"br", "identity"}, {"identity", "br"}, {"gzip", "br"}, {"gzip", "gzip"}, {"identity, br"}} {
			w, _ := keyWorld(t, all, bindAPI)
			w.serve(443, true, func(rw http.ResponseWriter, _ *http.Request) {
				rw.Header()["Content-Encoding"] = lines
				io.WriteString(rw, "xx")
			})
			if status, said, _ := w.get(w.client(h2), "https://api.x.example/"); status != http.StatusBadGateway || !strings.Contains(said, "could not be masked") {
				t.Errorf("h2 %t, %v: %d %s", h2, lines, status, said)
			}
		}
	}
}

// TestT2_NamesOverHTTP2: neither a field of an answer, nor what follows its body, is
// called like a key, and nothing that follows a request's like a stand-in.
func TestT2_NamesOverHTTP2(t *testing.T) {
	const key = "abcdef0123456789abcdef0123456789"
	w, standIn := worldOfKey(t, key, all, bindAPI)
	w.serve(443, true, func(rw http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
		rw.Header().Set("X-"+key, "1")
		rw.Header().Set("Trailer", "T-"+key+", X-Sum")
		io.WriteString(rw, "ok")
		rw.Header().Set("T-"+key, key)
		rw.Header().Set("X-Sum", key)
	})
	ask := func(trailer string) (*http.Response, error) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://api.x.example/", io.MultiReader(strings.NewReader("body")))
		if err != nil {
			t.Fatal(err)
		}
		req.Trailer = http.Header{trailer: {"1"}}
		res, err := w.client(true).Do(req)
		if err == nil {
			_, err = io.Copy(io.Discard, res.Body)
			res.Body.Close()
		}
		return res, err
	}
	res, err := ask("X-Sum")
	if err != nil {
		t.Fatal(err)
	}
	if said := strings.ToLower(fmt.Sprint(res.Header, res.Trailer)); strings.Contains(said, key) || res.Trailer.Get("X-Sum") != standIn {
		t.Errorf("%s", said)
	}
	if res, err := ask("X-" + standIn); err == nil && res.StatusCode != http.StatusForbidden {
		t.Errorf("a stand-in for a trailer's name: %d", res.StatusCode)
	}
	w.wait("the trailer's name", func(Verdict) bool { return w.count(false) > 0 })
}

// saysKey reports whether the real key stands in text or in a base64 word of it.
func saysKey(text []byte) bool {
	if bytes.Contains(text, []byte(realKey)) {
		return true
	}
	for _, word := range bytes.Fields(text) {
		if plain, err := base64.StdEncoding.DecodeString(string(word)); err == nil && bytes.Contains(plain, []byte(realKey)) {
			return true
		}
	}
	return false
}

// TestEventsAreNotHeldBackByMasking: an event comes when it was sent, while
// the next one is not there yet.
func TestEventsAreNotHeldBackByMasking(t *testing.T) {
	w, standIn := keyWorld(t, all, bindAPI)
	next := make(chan struct{})
	w.serve(443, true, func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "text/event-stream")
		for range 3 {
			fmt.Fprintf(rw, "data: %s\n\n", r.Header.Get("X-Api-Key"))
			rw.(http.Flusher).Flush()
			<-next
		}
	})
	req, _ := http.NewRequest("GET", "https://api.x.example/", nil)
	req.Header.Set("X-Api-Key", standIn)
	res, err := w.client(true).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	in := bufio.NewReader(res.Body)
	for range 3 {
		line, err := in.ReadString('\n')
		if err != nil || line != "data: "+standIn+"\n" {
			t.Fatalf("%q %v", line, err)
		}
		in.ReadString('\n')
		next <- struct{}{}
	}
}

// TestB42_WebSocketCarriesAKey in its upgrade, and what it says is masked.
func TestB42_WebSocketCarriesAKey(t *testing.T) {
	w, standIn := keyWorld(t, all, bindAPI)
	w.serve(443, true, func(rw http.ResponseWriter, r *http.Request) {
		key := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		if r.Header.Get("Sec-Websocket-Extensions") != "" {
			t.Error("compression is offered to the host")
		}
		// The last one ends like the beginning of a key.
		echoing(rw, "your key is "+key, strings.Repeat("x", 70000)+key, "s")
	})
	open := func(protocol string) (net *bufio.Reader, res *http.Response, write io.Writer) {
		c := w.inside("api.x.example:443", "http/1.1")
		t.Cleanup(func() { c.Close() })
		fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: api.x.example\r\nConnection: Upgrade\r\nUpgrade: %s\r\nSec-WebSocket-Extensions: permessage-deflate\r\nAuthorization: Bearer %s\r\n\r\n", protocol, standIn)
		in := bufio.NewReader(c)
		res, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		return in, res, c
	}
	in, res, out := open("websocket")
	if res.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(res.Status)
	}
	for _, want := range []string{"your key is " + standIn, strings.Repeat("x", 70000) + standIn, "s"} {
		if got, err := readFrame(in); err != nil || got != want {
			t.Errorf("got %.40q…, %d bytes %v", got, len(got), err)
		}
	}
	out.Write(textFrame("back"))
	if got, err := readFrame(in); err != nil || got != "back" {
		t.Errorf("back comes %q %v", got, err)
	}
	if _, res, _ = open("something"); res.StatusCode != 403 {
		t.Errorf("another protocol: %s", res.Status)
	}
}

// A body that is too long for its key is told so, where it asks for one, and
// passes whole where it does not.
func TestLongBodiesAreNotSentInVain(t *testing.T) {
	t.Parallel()
	for _, h2 := range []bool{false, true} {
		b := bindAPI
		b.Body, b.Paths = []string{"key"}, []string{"/**"}
		w, standIn := keyWorld(t, all, b)
		var got heard
		w.serve(443, true, got.ServeHTTP)
		pad := strings.Repeat("x", secrets.MaxBody)
		for _, tt := range []struct {
			kind, body string
			want       int
		}{
			{"application/json", `{"key":"` + standIn + `","pad":"` + pad[:secrets.MaxBody/2] + `"}`, 200},
			{"application/json", `{"key":"` + standIn + `","pad":"` + pad + `"}`, 403},
			{"application/json", `{"messages":["KEY=` + standIn + ` "],"pad":"` + pad + `"}`, 200},
			{"application/x-www-form-urlencoded", "key=" + standIn + "&pad=" + pad, 403},
			{"application/json", "{ \"key\" :\n\t\"" + standIn + `","pad":"` + pad + `"}`, 403},
			{"application/json", `{"messages":[{"env":{"API_KEY":"` + standIn + `"}}],"pad":"` + pad + `"}`, 200}, // a transcript
			{"text/plain", `{"key":"` + standIn + `","pad":"` + pad + `"}`, 200},
			{"application/x-www-form-urlencoded", "pad=" + standIn + pad, 200},
			{"application/x-www-form-urlencoded", "monkey=" + standIn + "&pad=" + pad, 200},
		} {
			req, _ := http.NewRequest("POST", "https://api.x.example/", strings.NewReader(tt.body))
			req.Header.Set("Content-Type", tt.kind)
			before := got.count()
			status, said, _ := w.do(w.client(h2), req)
			if status != tt.want || tt.want == 403 && (got.count() > before || !strings.Contains(said, "longer than 1024 KiB, so the key of API_KEY cannot be put in it")) {
				t.Errorf("h2 %t %.40s…: %d %s", h2, tt.body, status, said)
			}
			if _, body := got.last(); tt.want == 200 && len(body) != len(tt.body) {
				t.Errorf("h2 %t %.40s…: %d bytes arrived of %d", h2, tt.body, len(body), len(tt.body))
			}
		}
	}
}
