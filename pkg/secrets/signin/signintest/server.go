// Package signintest promises a service that makes tokens as the strictest of
// the real ones do, for tests: a real HTTP server whose refresh tokens are
// spent by their use, and which takes a second use of one for theft and ends
// the whole sign-in.
package signintest

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"
)

// A Server makes tokens.
type Server struct {
	URL string
	now func() time.Time

	mu       sync.Mutex // guards what follows
	life     time.Duration
	families map[string]*family // by account
	tokens   map[string]*token
	made     int
	spent    int
	reused   int
	next     func(w http.ResponseWriter, heard func()) bool
	odd      func(said map[string]any)
}

type family struct {
	account string
	access  string // the last one
	dead    bool
}

type token struct {
	of      *family
	refresh bool
	spent   bool
	until   time.Time
}

// Start makes a server whose clock is now and whose access tokens hold for
// life. It ends with the test.
func Start(t testing.TB, now func() time.Time, life time.Duration) *Server {
	s := &Server{now: now, life: life, families: map[string]*family{}, tokens: map[string]*token{}}
	web := httptest.NewServer(s)
	t.Cleanup(web.Close)
	s.URL = web.URL + "/oauth/token"
	return s
}

// SignIn signs an account in, anew where it was.
func (s *Server) SignIn(account string) (access, refresh string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := &family{account: account}
	s.families[account] = f
	return s.pairLocked(f)
}

func (s *Server) pairLocked(f *family) (access, refresh string) {
	s.made++
	until := s.now().Add(s.life)
	claims, err := json.Marshal(map[string]any{"exp": until.Unix(), "n": s.made, "account": f.account})
	if err != nil {
		panic("BUG: " + err.Error())
	}
	enc := base64.RawURLEncoding
	access = enc.EncodeToString([]byte(`{"alg":"none"}`)) + "." + enc.EncodeToString(claims) + "." + enc.EncodeToString(fmt.Appendf(nil, "signature %08d", s.made))
	refresh = fmt.Sprintf("refresh-of-%s-%08d-0123456789", f.account, s.made)
	f.access = access
	s.tokens[access] = &token{of: f, until: until}
	s.tokens[refresh] = &token{of: f, refresh: true}
	return access, refresh
}

// Life is for how long access tokens hold from now on.
func (s *Server) Life(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.life = d
}

// Access is the access token that an account was given last.
func (s *Server) Access(account string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.families[account].access
}

// Renew makes new tokens for an account's, as for its own tool.
func (s *Server) Renew(account string) (access, refresh string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.families[account]
	for _, t := range s.tokens {
		if t.of == f && t.refresh {
			t.spent = true
		}
	}
	s.spent++
	return s.pairLocked(f)
}

// Revoke has an account's access token taken no more, whatever it says itself.
func (s *Server) Revoke(account string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.families[account].access = ""
}

// Alive reports whether an account is still signed in.
func (s *Server) Alive(account string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.families[account]
	return f != nil && !f.dead
}

// Good reports whether an access token is taken now.
func (s *Server) Good(access string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tokens[access]
	return t != nil && !t.refresh && !t.of.dead && s.now().Before(t.until)
}

// Usable reports whether a refresh token could be spent now.
func (s *Server) Usable(refresh string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tokens[refresh]
	return t != nil && t.refresh && !t.spent && !t.of.dead
}

// Counts are how often a refresh token was spent, and one spent before came
// again.
func (s *Server) Counts() (spent, reused int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.spent, s.reused
}

// Next has the next request handled by f, which calls heard where the service
// is to act on it and reports whether it has answered itself.
func (s *Server) Next(f func(w http.ResponseWriter, heard func()) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next = f
}

// Odd has every answer with new tokens changed by f before it is sent, or none
// where f is nil.
func (s *Server) Odd(f func(said map[string]any)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.odd = f
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	refresh := refreshOf(r)
	s.mu.Lock()
	next := s.next
	s.next = nil
	s.mu.Unlock()
	var status int
	var said any
	acted := false
	act := func() {
		if !acted {
			status, said = s.exchange(refresh)
			acted = true
		}
	}
	if next != nil && next(w, act) {
		return
	}
	act()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(said)
}

func refreshOf(r *http.Request) string {
	body, err := io.ReadAll(io.LimitReader(r.Body, 64<<10))
	if err != nil {
		return ""
	}
	if r.Header.Get("Content-Type") == "application/json" {
		var fields map[string]string
		if json.Unmarshal(body, &fields) != nil || fields["grant_type"] != "refresh_token" {
			return ""
		}
		return fields["refresh_token"]
	}
	form, err := url.ParseQuery(string(body))
	if err != nil || form.Get("grant_type") != "refresh_token" {
		return ""
	}
	return form.Get("refresh_token")
}

func (s *Server) exchange(refresh string) (status int, said any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tokens[refresh]
	if t == nil || !t.refresh {
		return http.StatusBadRequest, map[string]string{"error": "invalid_grant"}
	}
	if t.spent {
		s.reused++
		t.of.dead = true // theft, as far as anybody can tell
	}
	if t.of.dead {
		return http.StatusBadRequest, map[string]string{"error": "invalid_grant"}
	}
	t.spent = true
	s.spent++
	access, fresh := s.pairLocked(t.of)
	made := map[string]any{"access_token": access, "refresh_token": fresh, "expires_in": int(s.life.Seconds()), "token_type": "Bearer"}
	if s.odd != nil {
		s.odd(made)
	}
	return http.StatusOK, made
}
