//go:build unix

package signin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// oddAnswers are what services that make tokens may say of them, and clients get
// along with.
var oddAnswers = map[string]func(said map[string]any){
	"no lifetime":             func(said map[string]any) { delete(said, "expires_in") },
	"lifetime with a point":   func(said map[string]any) { said["expires_in"] = json.RawMessage("28800.0") },
	"lifetime as text":        func(said map[string]any) { said["expires_in"] = "28800" },
	"lifetime of nothing":     func(said map[string]any) { said["expires_in"] = 0 },
	"lifetime without end":    func(said map[string]any) { said["expires_in"] = json.RawMessage("1e99") },
	"account as text":         func(said map[string]any) { said["account"], said["organization"] = "me", 1 },
	"identity of nobody":      func(said map[string]any) { said["id_token"] = "opaque" },
	"identity as a number":    func(said map[string]any) { said["id_token"] = 7 },
	"no access token":         func(said map[string]any) { delete(said, "access_token") },
	"access token is a list":  func(said map[string]any) { said["access_token"] = []string{"x"} },
	"access token of a word":  func(said map[string]any) { said["access_token"] = "x" },
	"access token with lines": func(said map[string]any) { said["access_token"] = "a line\nbreak" },
}

// TestT11_WhatTheServiceGaveIsKept: an answer comes for a refresh token that is
// spent. Whatever else is odd about it, the new one is in the tool's file, and the
// next renewal works.
func TestT11_WhatTheServiceGaveIsKept(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"claude", "codex", "opencode"} {
		for what, odd := range oddAnswers {
			h := newHost(t, name)
			h.clock.move(tokenLife - 5*time.Minute)
			h.srv.Odd(odd)
			r := h.refresher()
			var told []string
			r.Odd = func(sentence string) { told = append(told, sentence) }
			s, err := r.Refresh(t.Context(), h.tool, h.path, h.soon)
			if lacks := strings.HasPrefix(what, "access") || strings.HasPrefix(what, "no access"); lacks != (err != nil) {
				t.Errorf("%s, %s: %v", name, what, err)
			}
			h.usable(name + ", " + what)
			if err == nil && (s.Left(h.clock.now()) < 50*time.Minute || !s.Renews) {
				t.Errorf("%s, %s: holds for %v", name, what, s.Left(h.clock.now()))
			}
			if what == "no lifetime" && name != "codex" && (len(told) != 1 || !strings.Contains(told[0], "for how long")) {
				t.Errorf("%s, %s: told %q", name, what, told)
			}
			h.srv.Odd(nil)
			h.clock.move(tokenLife)
			if _, err := h.refresher().Refresh(t.Context(), h.tool, h.path, h.soon); err != nil {
				t.Errorf("%s, %s: the next one: %v", name, what, err)
			}
			h.usable(name + ", after " + what)
		}
	}
}

// TestT11_TheSameAccessToken: a service may give a new refresh token only.
func TestT11_TheSameAccessToken(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"claude", "codex", "opencode"} {
		h := newHost(t, name)
		h.clock.move(tokenLife - 5*time.Minute)
		old := string(h.found().access.RevealForTheWire())
		h.srv.Odd(func(said map[string]any) { said["access_token"] = old })
		if _, err := h.refresher().Refresh(t.Context(), h.tool, h.path, h.soon); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		h.usable(name)
	}
}

// TestT11_AnAnswerThatIsCutBehindItsEnd: the connection goes, the answer was there.
func TestT11_AnAnswerThatIsCutBehindItsEnd(t *testing.T) {
	t.Parallel()
	h := newHost(t, "claude")
	h.clock.move(tokenLife - 5*time.Minute)
	h.srv.Next(func(w http.ResponseWriter, _ func()) bool {
		access, refresh := h.srv.Renew("me")
		w.Header().Set("Content-Length", "10000")
		fmt.Fprintf(w, `{"access_token":%q,"refresh_token":%q,"expires_in":28800}`, access, refresh)
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	if _, err := h.refresher().Refresh(t.Context(), h.tool, h.path, h.soon); err != nil {
		t.Error(err)
	}
	h.usable("afterwards")
}

// TestT11_ADocumentWithoutTheRest: a tool's document may lack what is written
// beside the tokens.
func TestT11_ADocumentWithoutTheRest(t *testing.T) {
	t.Parallel()
	h := newHost(t, "codex")
	content, err := os.ReadFile(h.path)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := parse(content, false)
	if err != nil {
		t.Fatal(err)
	}
	delete(doc, "last_refresh")
	delete(doc["tokens"].(map[string]any), "id_token")
	if content, err = json.Marshal(doc); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(h.path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	h.clock.move(tokenLife - 5*time.Minute)
	h.srv.Odd(func(said map[string]any) {
		said["id_token"] = token(map[string]any{"https://api.openai.com/auth": map[string]any{"chatgpt_account_id": "acc-1"}})
	})
	if _, err := h.refresher().Refresh(t.Context(), h.tool, h.path, h.soon); err != nil {
		t.Error(err)
	}
	h.usable("afterwards")
}

// TestT11_AClockAhead: this machine's clock is further ahead of the service's than
// a token holds. What is got seems to have expired, and is kept.
func TestT11_AClockAhead(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"claude", "codex", "opencode"} {
		h := newHost(t, name)
		h.clock.move(tokenLife + time.Hour)
		h.ahead.Store(int64(tokenLife + time.Hour))
		var told string
		r := h.refresher()
		r.Odd = func(sentence string) { told = sentence }
		for range 2 {
			if _, err := r.Refresh(t.Context(), h.tool, h.path, h.soon); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			h.usable(name)
		}
		if want := name == "codex"; strings.Contains(told, "by the clock of this machine") != want {
			t.Errorf("%s: told %q", name, told)
		}
	}
}

// TestT11_SignedOutMeanwhile: who signs out while a renewal is on its way stays
// signed out.
func TestT11_SignedOutMeanwhile(t *testing.T) {
	t.Parallel()
	for how, content := range map[string]string{
		"removed": "", "blanked": `{"claudeAiOauth":{"accessToken":"","refreshToken":"","expiresAt":0}}`, "emptied": `{}`,
	} {
		for _, at := range []string{"intent", "ask", "next"} {
			h := newHost(t, "claude")
			h.clock.move(tokenLife - 5*time.Minute)
			r := h.refresher()
			r.settle = time.Millisecond
			r.Step = func(step string) {
				switch {
				case step != at:
				case content == "":
					_ = os.Remove(h.path)
				default:
					if err := os.WriteFile(h.path, []byte(content), 0o600); err != nil {
						t.Error(err)
					}
				}
			}
			_, err := r.Refresh(t.Context(), h.tool, h.path, h.soon)
			if KindOf(err) != Ended || !strings.Contains(err.Error(), "was signed out while") {
				t.Errorf("%s at %s: %v", how, at, err)
			}
			if b, err := os.ReadFile(h.path); string(b) != content || (content == "") != errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s at %s: the file holds %s, %v", how, at, b, err)
			}
			entries, err := os.ReadDir(filepath.Dir(h.path))
			if err != nil || len(entries) > 1 || len(entries) == 1 && content == "" {
				t.Errorf("%s at %s: left %v, %v", how, at, entries, err)
			}
		}
	}
}

// another is a sign-in to another service that comes into the same file.
func (h *host) another(key string) {
	h.t.Helper()
	b, err := os.ReadFile(h.path)
	if err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(h.path, append([]byte(`{"`+key+`":{"type":"api","key":"just-signed-in"},`), b[1:]...), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

// TestT11_WhatElseIsWrittenMeanwhile: what lands in the same file while a renewal
// is on its way, also of one that died and is finished by the next, stays there.
func TestT11_WhatElseIsWrittenMeanwhile(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"claude", "codex", "opencode"} {
		for _, at := range []string{"intent", "ask", "next"} {
			for _, dies := range []bool{false, true} {
				if dies && at != "next" {
					continue
				}
				h := newHost(t, name)
				h.clock.move(tokenLife - 5*time.Minute)
				r, done := h.refresher(), false
				r.Step = func(step string) {
					if step == at && !done {
						done = true
						h.another("just-new")
						if dies {
							panic(errDied)
						}
					}
				}
				func() {
					defer func() { _ = recover() }()
					if _, err := r.Refresh(t.Context(), h.tool, h.path, h.soon); err != nil {
						t.Errorf("%s at %s: %v", name, at, err)
					}
				}()
				if dies {
					if _, err := h.refresher().Refresh(t.Context(), h.tool, h.path, h.soon); err != nil {
						t.Errorf("%s, the next one: %v", name, err)
					}
				}
				if b, err := os.ReadFile(h.path); err != nil || !bytes.Contains(b, []byte("just-new")) {
					t.Errorf("%s at %s, dies %v: what came meanwhile is gone: %s, %v", name, at, dies, b, err)
				}
				if spent, _ := h.srv.Counts(); spent != 1 || h.found().Due(h.clock.now()) {
					t.Errorf("%s at %s, dies %v: spent %d, due still %v", name, at, dies, spent, h.found().Due(h.clock.now()))
				}
				h.usable(name + " at " + at)
			}
		}
	}
}

// TestT11_HalfWritten: a tool that writes its file in place is waited for.
func TestT11_HalfWritten(t *testing.T) {
	t.Parallel()
	h := newHost(t, "opencode")
	h.clock.move(tokenLife - 5*time.Minute)
	whole, err := os.ReadFile(h.path)
	if err != nil {
		t.Fatal(err)
	}
	r := h.refresher()
	r.settle = time.Minute
	written := make(chan error, 1)
	r.Step = func(step string) {
		switch step {
		case "ask":
			if err := os.WriteFile(h.path, nil, 0o600); err != nil {
				t.Error(err)
			}
		case "next":
			go func() { written <- os.WriteFile(h.path, whole, 0o600) }()
			r.Step = nil
		}
	}
	if _, err := r.Refresh(t.Context(), h.tool, h.path, h.soon); err != nil {
		t.Error(err)
	}
	if err := <-written; err != nil {
		t.Error(err)
	}
	h.usable("afterwards")
}
