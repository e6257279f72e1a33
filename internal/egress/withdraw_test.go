package egress

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

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
		{"removed", "holds the stand-in of API_KEY, which was withdrawn: its person has removed it", func(r *secrets.Ring) { r.Withdraw("API_KEY", "its person has removed it") }, true},
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
	own := ownToken(t, w, "plain.x.example", token)
	w.serve(443, true, func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "" {
			echoing(rw)
		}
	})
	with, fromWith := w.webSocket("api.x.example", standIn)
	without, fromWithout := w.webSocket("api.x.example", "mine")
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

	w.session.Keys.Withdraw(own.Name, "x was signed out on the host")
	if _, err := raw.Read(make([]byte, 1)); err == nil {
		t.Error("a tunnel to the host where the token is refused goes on")
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://plain.x.example/", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	if status, text, _ := w.do(w.client(false), req); status != 403 || !strings.Contains(text, "holds a token of the sign-in x, which was withdrawn: x was signed out on the host") {
		t.Errorf("the token: %d %s", status, text)
	}
	w.session.Keys.Restore(own.Name)
	if status, text, _ := w.do(w.client(false), req); status != 200 {
		t.Errorf("the token that is given again: %d %s", status, text)
	}
}

// webSocket opens one from inside, with a key.
func (w *world) webSocket(host, key string) (net.Conn, *bufio.Reader) {
	w.t.Helper()
	c := w.inside(host+":443", "http/1.1")
	w.t.Cleanup(func() { c.Close() })
	fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nAuthorization: Bearer %s\r\n\r\n", host, key)
	in := bufio.NewReader(c)
	if res, err := http.ReadResponse(in, nil); err != nil || res.StatusCode != http.StatusSwitchingProtocols {
		w.t.Fatal(res, err)
	}
	return c, in
}

const token, laterToken = "sk-ant-oat01-CANARY0123456789-abcdefghijklmnopqrstuvwxyzAA", "sk-ant-oat01-LATER00123456789-abcdefghijklmnopqrstuvwxyzAA"

// ownToken says of a token that the session has it itself.
func ownToken(t *testing.T, w *world, host, token string) secrets.Secret {
	t.Helper()
	own := secrets.Secret{Name: "sign-in x", Value: secrets.NewValue([]byte(token)), Binding: secrets.Binding{Hosts: []string{host}}}
	if err := w.session.Keys.Own(own); err != nil {
		t.Fatal(err)
	}
	return own
}

// TestB88_WhatHasTheSessionsOwnTokenIsCut, although nothing was ever swapped in it:
// streams and WebSockets in which the token stands, to whatever host that is read;
// and all to the hosts of the sign-in, in whose bodies and messages it may have been
// said. None of the tokens that the session ever had is taken afterwards.
func TestB88_WhatHasTheSessionsOwnTokenIsCut(t *testing.T) {
	w, _ := keyWorld(t, all, secrets.Binding{Hosts: []string{"api.x.example", "read.x.example"}})
	w.resolver.answers["read.x.example"] = [][]string{{publicAddr}}
	ownToken(t, w, "api.x.example", token)
	own := ownToken(t, w, "api.x.example", laterToken)
	end := make(chan struct{})
	w.serve(443, true, func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			_, _ = io.WriteString(rw, "data: one\n\n")
			_ = http.NewResponseController(rw).Flush()
			if r.URL.Path == "/events" {
				select {
				case <-end:
				case <-r.Context().Done():
				}
				_, _ = io.WriteString(rw, "data: two\n\n")
			}
			return
		}
		echoing(rw)
	})
	// What goes on is found out by waiting, what is cut at once.
	waiting, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	late, _ := waiting.Deadline()
	stream := func(h2 bool, host, token string) io.ReadCloser {
		req, err := http.NewRequestWithContext(waiting, http.MethodGet, "https://"+host+"/events", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		res, err := w.client(h2).Do(req)
		if err != nil || res.StatusCode != 200 {
			t.Fatal(res, err)
		}
		return res.Body
	}
	socket := func(host, token string) io.ReadCloser {
		c, in := w.webSocket(host, token)
		if err := c.SetDeadline(late); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write(textFrame("hello")); err != nil {
			t.Fatal(err)
		}
		if got, err := readFrame(in); err != nil || got != "hello" {
			t.Fatal(got, err)
		}
		return struct {
			io.Reader
			io.Closer
		}{in, c}
	}
	cut, goesOn := map[string]io.ReadCloser{}, map[string]io.ReadCloser{}
	for _, h2 := range []bool{false, true} {
		as := fmt.Sprintf("a stream, h2=%t, ", h2)
		cut[as+"with the token"] = stream(h2, "api.x.example", laterToken)
		cut[as+"with an earlier one"] = stream(h2, "api.x.example", token)
		cut[as+"with the token, elsewhere"] = stream(h2, "read.x.example", token)
		cut[as+"without it"] = stream(h2, "api.x.example", "mine")
		goesOn[as] = stream(h2, "read.x.example", "mine")
	}
	cut["a WebSocket with the token"] = socket("api.x.example", token)
	cut["a WebSocket with the token, elsewhere"] = socket("read.x.example", token)
	cut["a WebSocket without it"] = socket("api.x.example", "mine")

	w.session.Keys.Withdraw(own.Name, "x was signed out on the host")
	for as, body := range cut {
		text, err := io.ReadAll(body)
		_ = body.Close()
		ended := err == nil && strings.HasPrefix(as, "a stream")
		if ended || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s goes on: %q, %v", as, text, err)
		}
	}
	close(end)
	for as, body := range goesOn {
		text, err := io.ReadAll(body)
		_ = body.Close()
		if err != nil || !strings.HasSuffix(string(text), "two\n\n") {
			t.Errorf("%sto another host: %q, %v", as, text, err)
		}
	}
	ask := func(h2 bool, token string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://api.x.example/", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		status, text, _ := w.do(w.client(h2), req)
		return status, text
	}
	for _, h2 := range []bool{false, true} {
		for _, token := range []string{token, laterToken} {
			status, text := ask(h2, token)
			for _, want := range []string{"the header Authorization holds a token of the sign-in x, which was withdrawn: x was signed out on the host", "mojoup-node signin status"} {
				if status != 403 || !strings.Contains(text, want) {
					t.Errorf("h2=%t, afterwards: %d %s, want %q", h2, status, text, want)
				}
			}
		}
		if status, text := ask(h2, "mine"); status != 200 {
			t.Errorf("h2=%t, without it: %d %s", h2, status, text)
		}
	}
	w.session.Keys.Restore(own.Name)
	if status, text := ask(true, token); status != 200 {
		t.Errorf("given again: %d %s", status, text)
	}
}
