package egress

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/mojoup/mojoup-node/pkg/secrets"
)

// TestB88_WithdrawnKeysGoNowhere: from the moment on when a key is withdrawn, or
// may go elsewhere only, requests on connections that are kept are refused with a
// sentence that names it, over HTTP/1.1 and HTTP/2, in header, query and body; and
// they pass again when the key is given again.
func TestB88_WithdrawnKeysGoNowhere(t *testing.T) {
	wide := secrets.Binding{
		Hosts: []string{"api.x.example"}, Headers: []string{"X-Api-Key", "Authorization"}, Query: []string{"key"}, Body: []string{"client_secret"}, Paths: []string{"/**"},
	}
	narrowed := func(change func(*secrets.Binding)) func(*secrets.Ring) {
		b := wide
		change(&b)
		return func(r *secrets.Ring) {
			if err := r.Rebind("API_KEY", b); err != nil {
				t.Error(err)
			}
		}
	}
	form := "grant_type=x&client_secret="
	for _, tt := range []struct {
		name, says string
		change     func(*secrets.Ring)
		body       bool // is refused as well: a body is no place where a stand-in is looked for
	}{
		{"removed", "API_KEY was withdrawn: its person has removed it", func(r *secrets.Ring) { r.Withdraw("API_KEY", "its person has removed it") }, true},
		{"another host", "whose key goes to else.x.example only", narrowed(func(b *secrets.Binding) { b.Hosts = []string{"else.x.example"} }), false},
		{"another path", "other paths only: /else", narrowed(func(b *secrets.Binding) { b.Paths = []string{"/else"} }), false},
		{"another place", "goes elsewhere there: header X-Other", narrowed(func(b *secrets.Binding) { b.Headers, b.Query, b.Body = []string{"X-Other"}, nil, nil }), false},
	} {
		for _, h2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, h2=%t", tt.name, h2), func(t *testing.T) {
				w, standIn := keyWorld(t, all, wide)
				var got heard
				w.serve(443, true, got.ServeHTTP)
				c := w.client(h2)
				ask := func(header, query, body string) (int, string) {
					t.Helper()
					req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://api.x.example/v1"+query, strings.NewReader(body))
					if err != nil {
						t.Fatal(err)
					}
					if header != "" {
						req.Header.Set(header, standIn)
					}
					req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
					status, text, _ := w.do(c, req)
					return status, text
				}
				places := [][3]string{{"X-Api-Key", "", ""}, {"", "?key=" + standIn, ""}, {"", "", form + standIn}}
				for _, p := range places {
					if status, text := ask(p[0], p[1], p[2]); status != 200 {
						t.Fatalf("at first %q: %d %s", p, status, text)
					}
				}
				// Once this one is answered, those before it are over on that connection.
				if status, text := ask("", "", ""); status != 200 {
					t.Fatalf("without a key: %d %s", status, text)
				}
				tt.change(w.session.Keys)
				before := got.count()
				for i, p := range places {
					inBody := i == 2
					status, text := ask(p[0], p[1], p[2])
					switch {
					case inBody && !tt.body:
						if _, sent := got.last(); status == 200 && strings.Contains(sent, realKey) {
							t.Errorf("the key goes on in a body: %s", sent)
						}
						before = got.count()
					case status != 403 || !strings.Contains(text, tt.says) || got.count() != before:
						t.Errorf("%q: %d %s; the host has heard %d more", p, status, text, got.count()-before)
					}
				}
				v := w.wait("the refusal", func(v Verdict) bool { return v.Misused == "API_KEY" })
				if v.Allowed || !strings.Contains(v.Reason, tt.says) {
					t.Errorf("%+v", v)
				}
				if tt.name != "removed" {
					return
				}
				if err := w.session.Keys.Rotate("API_KEY", secrets.NewValue([]byte(laterKey))); err != nil {
					t.Fatal(err)
				}
				if status, text := ask("X-Api-Key", "", ""); status != 200 {
					t.Errorf("given again: %d %s", status, text)
				}
				if r, _ := got.last(); r.Header.Get("X-Api-Key") != laterKey {
					t.Errorf("given again: %v", r.Header)
				}
			})
		}
	}
}

// TestB88_WhatGoesOnIsCut: a stream of events, a WebSocket and a request that
// still waits for its answer end when the key that they took along is withdrawn;
// one without the key goes on. The verdict says why.
func TestB88_WhatGoesOnIsCut(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("h2=%t", h2), func(t *testing.T) {
			w, standIn := keyWorld(t, all, bindAPI)
			failed := make(chan Verdict, 10)
			w.stop()
			w.session.Failed = func(v Verdict) { failed <- v }
			w.start()
			arrived, end := make(chan struct{}, 10), make(chan struct{})
			w.serve(443, true, func(rw http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/silent" {
					_, _ = io.WriteString(rw, "data: one\n\n")
					_ = http.NewResponseController(rw).Flush()
				}
				arrived <- struct{}{}
				select {
				case <-end:
					_, _ = io.WriteString(rw, "data: two\n\n")
				case <-r.Context().Done():
				}
			})
			c := w.client(h2)
			type answered struct {
				status int
				text   string
				err    error
			}
			ask := func(path, key string) <-chan answered {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://api.x.example"+path, nil)
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("X-Api-Key", key)
				over, begun := make(chan answered, 1), make(chan struct{})
				go func() {
					res, err := c.Do(req)
					close(begun)
					if err != nil {
						over <- answered{err: err}
						return
					}
					defer res.Body.Close()
					text, err := io.ReadAll(res.Body)
					over <- answered{res.StatusCode, string(text), err}
				}()
				<-arrived
				if path != "/silent" {
					<-begun
				}
				return over
			}
			stream, silent, own := ask("/events", standIn), ask("/silent", standIn), ask("/events", "mine")
			w.session.Keys.Withdraw("API_KEY", "its person has removed it")
			if a := <-stream; a.err == nil || strings.Contains(a.text, "two") {
				t.Errorf("a stream goes on: %+v", a)
			}
			if a := <-silent; a.status != 403 || !strings.Contains(a.text, "API_KEY was withdrawn: its person has removed it") {
				t.Errorf("who waits for an answer: %+v", a)
			}
			close(end)
			if a := <-own; a.err != nil || !strings.HasSuffix(a.text, "two\n\n") {
				t.Errorf("a stream without the key: %+v", a)
			}
			for range 2 {
				if v := <-failed; !v.Allowed || !strings.Contains(v.Failure, "API_KEY was withdrawn") {
					t.Errorf("recorded %+v", v)
				}
			}
		})
	}
}

// TestB88_WebSocketsAndTunnelsAreCut: a WebSocket that was opened with a key, and
// a tunnel of which nothing is read to a host where a token is refused by now.
func TestB88_WebSocketsAndTunnelsAreCut(t *testing.T) {
	w, standIn := keyWorld(t, all, bindAPI)
	w.resolver.answers["plain.x.example"] = [][]string{{publicAddr}}
	w.serve(443, true, func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			return
		}
		rw.Header().Set("Connection", "Upgrade")
		rw.Header().Set("Upgrade", "websocket")
		rw.WriteHeader(http.StatusSwitchingProtocols)
		conn, brw, err := rw.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.Copy(conn, brw)
	})
	open := func(key string) (net.Conn, *bufio.Reader) {
		c := w.inside("api.x.example:443", "http/1.1")
		t.Cleanup(func() { c.Close() })
		fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: api.x.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nAuthorization: Bearer %s\r\n\r\n", key)
		in := bufio.NewReader(c)
		if res, err := http.ReadResponse(in, nil); err != nil || res.StatusCode != http.StatusSwitchingProtocols {
			t.Fatal(res, err)
		}
		return c, in
	}
	with, fromWith := open(standIn)
	without, fromWithout := open("mine")
	echo := func(c io.Writer, in *bufio.Reader) error {
		if _, err := c.Write(textFrame("hello")); err != nil {
			return err
		}
		got, err := readFrame(in)
		if err == nil && got != "hello" {
			err = fmt.Errorf("got %q", got)
		}
		return err
	}
	// The tunnel is end to end: its server is the test's own.
	tunnelled := w.client(false)
	if status, text, _ := w.get(tunnelled, "https://plain.x.example/"); status != 200 {
		t.Fatal(status, text)
	}
	raw, _ := w.connect("plain.x.example:443")
	for _, err := range []error{echo(with, fromWith), echo(without, fromWithout)} {
		if err != nil {
			t.Fatal(err)
		}
	}

	w.session.Keys.Withdraw("API_KEY", "its person has removed it")
	if _, err := readFrame(fromWith); err == nil {
		t.Error("the WebSocket that has the key goes on")
	}
	if err := echo(without, fromWithout); err != nil {
		t.Errorf("the one without it: %v", err)
	}

	token := "sk-ant-oat01-CANARY0123456789-abcdefghijklmnopqrstuvwxyzAA"
	lent := secrets.Secret{Name: "sign-in x", Value: secrets.NewValue([]byte(token)), Binding: secrets.Binding{Hosts: []string{"plain.x.example"}}}
	if err := w.session.Keys.Refuse(lent, "x was signed out on the host"); err != nil {
		t.Fatal(err)
	}
	if _, err := raw.Read(make([]byte, 1)); err == nil {
		t.Error("a tunnel to the host where the token is refused goes on")
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://plain.x.example/", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	if status, text, _ := w.do(w.client(false), req); status != 403 || !strings.Contains(text, "a token of sign-in x was withdrawn: x was signed out on the host") {
		t.Errorf("the token: %d %s", status, text)
	}
	w.session.Keys.Forget("sign-in x")
	if status, text, _ := w.do(w.client(false), req); status != 200 {
		t.Errorf("the token that is given again: %d %s", status, text)
	}
}
