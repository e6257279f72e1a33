package egress

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/mojoup/mojoup-node/pkg/secrets"
)

// TestB36_WhatCannotBeSwappedStays: a stand-in in the head of a CONNECT, cut in two
// over lines of one name, in a name, or of a session that has ended: refused with a
// sentence that names the key, and nothing comes to the host.
func TestB36_WhatCannotBeSwappedStays(t *testing.T) {
	w, standIn := keyWorld(t, all, bindAPI)
	var got heard
	w.serve(443, true, got.ServeHTTP)
	ask := func(fields string) (status int, text string) {
		c := w.inside("api.x.example:443", "http/1.1")
		defer c.Close()
		fmt.Fprintf(c, "GET /v1 HTTP/1.1\r\nHost: api.x.example\r\n%s\r\n", fields)
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		return res.StatusCode, string(body)
	}
	for name, tt := range map[string][2]string{
		"over two lines": {"X-Api-Key: " + standIn[:20] + "\r\nX-Api-Key: " + standIn[20:] + "\r\n", "over several lines, holds the stand-in of API_KEY"},
		"in a name":      {standIn + ": x\r\n", "the name of a header holds the stand-in of API_KEY"},
		"in the upgrade's other fields": {"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Protocol: " + standIn + "\r\n",
			"the header Sec-Websocket-Protocol holds the stand-in of API_KEY"},
	} {
		if status, text := ask(tt[0]); status != 403 || !strings.Contains(text, tt[1]) || strings.Contains(text, standIn) {
			t.Errorf("%s: %d %s", name, status, text)
		}
	}
	// What is whole on a line of its own is no cut one.
	if status, text := ask("X-Api-Key: " + standIn + "\r\nX-Api-Key: mine\r\n"); status != 200 {
		t.Errorf("two lines, one of which is the stand-in: %d %s", status, text)
	}
	before := got.count()
	raw := w.raw()
	fmt.Fprintf(raw, "CONNECT api.x.example:8443 HTTP/1.1\r\nHost: api.x.example:8443\r\nX-Api-Key: %s\r\n\r\n", standIn)
	if res, err := http.ReadResponse(bufio.NewReader(raw), nil); err != nil || res.StatusCode != 403 {
		t.Errorf("in the head of a CONNECT: %v %v", res, err)
	}
	w.wait("the refusal of a CONNECT", func(v Verdict) bool {
		return v.Method == "CONNECT" && !v.Allowed && v.Misused == "API_KEY" && strings.Contains(v.Reason, "never goes over plain HTTP")
	})
	w.session.Keys.Close()
	if status, text := ask("X-Api-Key: " + standIn + "\r\n"); status != 403 || !strings.Contains(text, "API_KEY") {
		t.Errorf("after the end: %d %s", status, text)
	}
	if got.count() != before {
		t.Error("something came to the host")
	}
}

// TestT3_StandInsInTrailersAreRefused: behind a body as before it, over both
// protocols, also where the host has begun to answer. The host gets no whole
// request; a trailer without one arrives.
func TestT3_StandInsInTrailersAreRefused(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		for _, early := range []bool{false, true} {
			w, standIn := keyWorld(t, all, bindAPI)
			whole := make(chan string, 8)
			w.serve(443, true, func(rw http.ResponseWriter, r *http.Request) {
				if early {
					_ = http.NewResponseController(rw).EnableFullDuplex()
					_, _ = io.WriteString(rw, "begun")
					_ = http.NewResponseController(rw).Flush()
				}
				if body, err := io.ReadAll(r.Body); err == nil {
					whole <- string(body) + r.Trailer.Get("X-Sum")
				}
			})
			for name, tt := range map[string]struct {
				values []string
				want   string
			}{
				"as it is":  {[]string{standIn}, "the trailer X-Sum holds the stand-in of API_KEY, whose key goes elsewhere there"},
				"in basic":  {[]string{basicAuth("me", standIn)}, "the trailer X-Sum holds the stand-in of API_KEY"},
				"cut":       {[]string{standIn[:9], standIn[9:]}, "the trailer X-Sum holds the stand-in of API_KEY"},
				"elsewhere": {nil, ""},
			} {
				before := w.count(false)
				body, feed := io.Pipe()
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://api.x.example/v1", body)
				if err != nil {
					t.Fatal(err)
				}
				req.Trailer = http.Header{"X-Sum": nil}
				began := make(chan struct{})
				go func() {
					_, _ = io.WriteString(feed, "body")
					if early {
						<-began
					}
					req.Trailer["X-Sum"] = tt.values
					if tt.values == nil {
						req.Trailer["X-Sum"] = []string{"7"}
					}
					_ = feed.Close()
				}()
				res, err := w.client(h2).Do(req)
				close(began)
				if err != nil {
					t.Fatalf("h2 %t, early %t, %s: %v", h2, early, name, err)
				}
				text, err := io.ReadAll(res.Body)
				_ = res.Body.Close()
				if tt.want == "" {
					if got := <-whole; res.StatusCode != 200 || got != "body7" || w.count(false) != before {
						t.Errorf("h2 %t, early %t: a trailer without one: %d %q %q", h2, early, res.StatusCode, text, got)
					}
					continue
				}
				w.wait(name, func(Verdict) bool { return w.count(false) > before })
				denials := slices.DeleteFunc(w.recorded(), func(v Verdict) bool { return v.Allowed })
				v := denials[before]
				if v.Misused != "API_KEY" || v.Method != "POST" || v.Path != "/v1" || !strings.Contains(v.Reason, tt.want) || strings.Contains(v.Reason, standIn) {
					t.Errorf("h2 %t, early %t, %s: %s", h2, early, name, v.Reason)
				}
				if !early && (err != nil || res.StatusCode != 403 || !strings.Contains(string(text), tt.want)) {
					t.Errorf("h2 %t, %s: told %d %s %v", h2, name, res.StatusCode, text, err)
				}
				if n := w.count(false) - before; n != 1 {
					t.Errorf("h2 %t, early %t, %s: %d denials", h2, early, name, n)
				}
			}
			w.stop()
			if len(whole) > 0 {
				t.Errorf("h2 %t, early %t: the host has %q", h2, early, <-whole)
			}
		}
	}
	// Over HTTP/1.1 no head names them before.
	w, standIn := keyWorld(t, all, bindAPI)
	c := w.inside("api.x.example:443", "http/1.1")
	fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: api.x.example\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n%s: x\r\n\r\n", standIn)
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || res.StatusCode != 403 {
		t.Fatalf("a trailer's name: %v %v", res, err)
	}
	if text, _ := io.ReadAll(res.Body); !strings.Contains(string(text), "the name of a trailer holds the stand-in of API_KEY") || strings.Contains(string(text), standIn) {
		t.Errorf("a trailer's name: %s", text)
	}
}

// TestB42_CompressedBodiesPassAsTheyAre: only bodies that are plain are looked into,
// for the field that a binding names; another encoding passes whole, with the
// stand-in, which is worth nothing, and is never opened, however large it would be.
func TestB42_CompressedBodiesPassAsTheyAre(t *testing.T) {
	b := bindAPI
	b.Body, b.Paths = []string{"client_secret"}, []string{"/**"}
	w, standIn := keyWorld(t, all, b)
	var got heard
	w.serve(443, true, got.ServeHTTP)
	c := w.client(false)
	text := []byte(`{"client_secret":"` + standIn + `"}`)
	zip := func(b []byte) []byte {
		var out bytes.Buffer
		z := gzip.NewWriter(&out)
		_, _ = z.Write(b)
		_ = z.Close()
		return out.Bytes()
	}
	bomb := zip(make([]byte, 64<<20))
	for name, tt := range map[string]struct {
		encoding string
		body     []byte
	}{
		"gzip": {"gzip", zip(text)}, "twice": {"gzip, gzip", zip(zip(text))}, "deflate": {"deflate", text}, "br": {"br", text}, "zstd": {"zstd", text},
		"nonsense": {"nonsense", text}, "cut short": {"gzip", zip(text)[:20]}, "a bomb": {"gzip", bomb},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://api.x.example/token", bytes.NewReader(tt.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Content-Encoding", tt.encoding)
		status, said, _ := w.do(c, req)
		if _, body := got.last(); status != 200 || body != string(tt.body) || strings.Contains(body, realKey) {
			t.Errorf("%s: %d %.80s: %d bytes arrived", name, status, said, len(body))
		}
	}
}

// TestB38_AKeyThatHasToBeEncoded arrives as it is, in base64 and in the query.
func TestB38_AKeyThatHasToBeEncoded(t *testing.T) {
	const key = "p@ss/wo+rd=e:x&0123456789"
	b := bindAPI
	b.Headers, b.Query, b.Paths = []string{"Authorization"}, []string{"key"}, []string{"/**"}
	w, _ := keyWorld(t, all, b)
	b.Hosts = []string{"odd.x.example"}
	standIn, err := w.session.Keys.Add(secrets.Secret{Name: "ODD", Value: secrets.NewValue([]byte(key)), Binding: b})
	if err != nil {
		t.Fatal(err)
	}
	w.resolver.set("odd.x.example", publicAddr)
	var got heard
	w.serve(443, true, got.ServeHTTP)
	for _, h2 := range []bool{false, true} {
		c := w.client(h2)
		for name, tt := range map[string]struct {
			user, password, query string
			right                 func(r *http.Request) bool
		}{
			"password": {"me", standIn, "", func(r *http.Request) bool { u, p, _ := r.BasicAuth(); return u == "me" && p == key }},
			"query": {"", "", "?a=1&key=" + url.QueryEscape(standIn) + "&b=%2F", func(r *http.Request) bool {
				q := r.URL.Query()
				return q.Get("key") == key && q.Get("b") == "/" && len(q) == 3
			}},
		} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://odd.x.example/v1"+tt.query, nil)
			if err != nil {
				t.Fatal(err)
			}
			if tt.query == "" {
				req.Header.Set("Authorization", basicAuth(tt.user, tt.password))
			}
			status, text, _ := w.do(c, req)
			if r, _ := got.last(); status != 200 || !tt.right(r) {
				t.Errorf("%s, h2=%t: %d %s: arrived as %s %v", name, h2, status, text, r.URL, r.Header)
			}
		}
	}
	if strings.Contains(w.logs.text()+fmt.Sprintf("%+v", w.recorded()), "p@ss") {
		t.Error("the key is logged or recorded")
	}
}
