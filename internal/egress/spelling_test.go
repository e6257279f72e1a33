package egress

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/mojoup/mojoup-node/pkg/secrets"
)

// TestT3_OtherSpellingsAreRefused: whatever a host may read a stand-in in, or a token
// of the session's own that was taken back, it does not get.
func TestT3_OtherSpellingsAreRefused(t *testing.T) {
	const token = "gho_CANARYabcdefghijklmnop0123456789AB"
	w, standIn := keyWorld(t, all, bindAPI)
	const signIn = secrets.SignIn + "copilot github.com"
	if err := w.session.Keys.Own(secrets.Secret{Name: signIn, Value: secrets.NewValue([]byte(token)), Binding: bindAPI}); err != nil {
		t.Fatal(err)
	}
	w.session.Keys.Withdraw(signIn, "it is gone")
	var got heard
	w.serve(443, true, got.ServeHTTP)
	for _, what := range []string{standIn, token} {
		once := ""
		for _, c := range []byte(what) {
			once += fmt.Sprintf("%%%02x", c)
		}
		get := func(path, fields string) string {
			return "GET " + path + " HTTP/1.1\r\nHost: api.x.example\r\n" + fields + "\r\n"
		}
		post := func(body string) string {
			return "POST / HTTP/1.1\r\nHost: api.x.example\r\nTransfer-Encoding: chunked\r\n\r\n" + body
		}
		for name, raw := range map[string]string{
			"query, bad escape":  get("/?b=%zz"+once, ""),
			"query, end":         get("/?b="+once+"%", ""),
			"path, twice":        get("/"+strings.ReplaceAll(once, "%", "%25"), ""),
			"cookie":             get("/", "Cookie: a=b; t="+once+"\r\n"),
			"any header":         get("/", "X-Other: "+once+"\r\n"),
			"chunk's extension":  post("1;k=" + what + "\r\na\r\n0\r\n\r\n"),
			"of the last chunk":  post("1\r\na\r\n0;" + what + "\r\n\r\n"),
			"extension, encoded": post("1;k=\"" + once + "\"\r\na\r\n0\r\n\r\n"),
		} {
			before := w.count(false)
			c := w.inside("api.x.example:443", "http/1.1")
			io.WriteString(c, raw)
			res, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			text, _ := io.ReadAll(res.Body)
			c.Close()
			if res.StatusCode != http.StatusForbidden || strings.Contains(string(text), what) {
				t.Errorf("%s: %d %s", name, res.StatusCode, text)
			}
			w.wait(name, func(Verdict) bool { return w.count(false) > before })
		}
		for name, fields := range map[string]string{
			"a name of CONNECT":   what + ": 1\r\n",
			"Basic of CONNECT":    "X-A: Basic " + base64.StdEncoding.EncodeToString([]byte("u:"+what)) + "\r\n",
			"encoded, of CONNECT": "X-A: " + once + "\r\n",
		} {
			c := w.raw()
			// To a port where the answer comes in the clear.
			fmt.Fprintf(c, "CONNECT api.x.example:8443 HTTP/1.1\r\nHost: api.x.example:8443\r\n%s\r\n", fields)
			res, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if res.StatusCode != http.StatusForbidden {
				t.Errorf("%s: %d", name, res.StatusCode)
			}
		}
	}
	if n := got.count(); n > 0 {
		if r, body := got.last(); true {
			t.Errorf("%d requests arrived, the last as %s %v %q", n, r.RequestURI, r.Header, body)
		}
	}
}

// TestChunksWithExtensionsPass: nobody has a use for them, and they are allowed.
func TestChunksWithExtensionsPass(t *testing.T) {
	w, _ := keyWorld(t, all, bindAPI)
	var got heard
	w.serve(443, true, got.ServeHTTP)
	c := w.inside("api.x.example:443", "http/1.1")
	io.WriteString(c, "POST / HTTP/1.1\r\nHost: api.x.example\r\nTransfer-Encoding: chunked\r\n\r\n3;a=b\r\nhel\r\n2\r\nlo\r\n0;c\r\n\r\n")
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatal(res, err)
	}
	if _, body := got.last(); body != "hello" {
		t.Errorf("it arrived as %q", body)
	}
}

// TestTrailersBehindNothing: a body of HTTP/2 may be empty, said so, and have
// trailers all the same; and trailers that are announced may never come.
func TestTrailersBehindNothing(t *testing.T) {
	for _, outside := range []bool{false, true} {
		for _, method := range []string{"POST", "GET"} {
			for _, tt := range []struct {
				name    string
				length  []string
				trailer []string
				want    string
			}{
				{"of no length", nil, []string{"x-sum", "7"}, "7"},
				{"of length 0", []string{"content-length", "0"}, []string{"x-sum", "7"}, "7"},
				{"that never came", nil, nil, ""},
				{"that never came, of length 0", []string{"content-length", "0"}, nil, ""},
			} {
				w, _ := keyWorld(t, all, bindAPI)
				heard := make(chan string, 1)
				srv := w.serve(443, true, func(_ http.ResponseWriter, r *http.Request) {
					body, err := io.ReadAll(r.Body)
					heard <- fmt.Sprint(string(body), r.Trailer.Get("X-Sum"), err)
				})
				if !outside {
					srv.TLS.NextProtos = []string{"http/1.1"}
				}
				c := w.h2("api.x.example:443")
				c.begin()
				c.ask(1, method, tt.trailer == nil, append([]string{"trailer", "x-sum"}, tt.length...)...)
				if tt.trailer != nil {
					c.fields(1, true, tt.trailer...)
				}
				if got := c.answers(1); got[0] != "200" {
					t.Errorf("%s %s, h2 outside %t: %v", method, tt.name, outside, got)
					continue
				}
				want := tt.want + "<nil>"
				if method == "GET" && !outside {
					want = "<nil>" // HTTP/1.1 has no place for it behind no body
				}
				if got := <-heard; got != want {
					t.Errorf("%s %s, h2 outside %t: heard %q", method, tt.name, outside, got)
				}
			}
		}
	}
}

// TestDenialCommandsCanBePasted: what a person is told to run has words in it that
// the session chose. A shell reads each as one word and runs nothing of it.
func TestDenialCommandsCanBePasted(t *testing.T) {
	words := regexp.MustCompile(`^(?: (?:[A-Za-z0-9/._+=:@%,-]+|'[^']*'|\\')+)+$`)
	for _, odd := range []string{";reboot", "$(touch${IFS}pwned)", "`touch$IFSpwned`", "a'b", "'$(id)'", "x&y|z", "a(b)", "*?[a]", "~", "!!", "\x1b[2J", "a\nb", strings.Repeat("'", 400), "#x", "\\"} {
		for _, text := range []string{
			denialText(Verdict{Host: "a.example", Port: 443, Method: "GET", Path: "/" + odd}),
			denialText(Verdict{Host: "a.example", Port: 443, Method: odd, Path: "/"}),
			denialText(Verdict{Host: "a.example", Port: 80, Method: odd, Path: "/" + odd}),
			pushDenialText(Verdict{Host: "a.example", Port: 443, Path: "/" + odd + receivePack}, "refs/heads/x"),
			pushDenialText(Verdict{Host: "a.example", Port: 443, Path: "/a" + receivePack}, "refs/heads/"+odd),
			denialText(Verdict{Host: "a.example", Port: 443, Withdrawn: true, Misused: odd}),
		} {
			found := false
			for line := range strings.SplitSeq(text, "\n") {
				_, command, ok := strings.Cut(line, "mojoup-node policy explain")
				if !ok {
					if _, command, ok = strings.Cut(line, "`mojoup-node secret set"); ok {
						command = command[:strings.LastIndex(command, "`")]
					}
				}
				if found = found || ok; ok && !words.MatchString(command) {
					t.Errorf("%q: not words of a shell: %s", odd, command)
				}
			}
			if !found {
				t.Errorf("%q: no command in\n%s", odd, text)
			}
		}
	}
	text := denialText(Verdict{Host: "a.example", Port: 443, Method: "POST", Path: "/a%20b/c-d?e"})
	if want := "\n  mojoup-node policy explain --method POST 'https://a.example/a%20b/c-d?e'\n"; !strings.Contains(text, want) {
		t.Error(text)
	}
	text = denialText(Verdict{Host: "a.example", Port: 443, Method: "POST", Path: "/a%20b/c-d"})
	if want := "\n  mojoup-node policy explain --method POST https://a.example/a%20b/c-d\n"; !strings.Contains(text, want) {
		t.Error(text)
	}
}

// TestDenialOfAMethodInSmallLetters: `policy explain` does not take it, and no rule
// can name it.
func TestDenialOfAMethodInSmallLetters(t *testing.T) {
	for method, want := range map[string]string{"get": "explain https://a.example/", "Post": "explain --method POST https://a.example/", "purge": "explain --method purge https://a.example/"} {
		text := denialText(Verdict{Host: "a.example", Port: 443, Method: method, Path: "/"})
		if !strings.Contains(text, want+"\n") || strings.Contains(text, "compared exactly") != (method != "purge") {
			t.Errorf("%s: %s", method, text)
		}
	}
}
