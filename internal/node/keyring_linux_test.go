package node

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mojoup/mojoup-node/internal/store"
	"github.com/mojoup/mojoup-node/pkg/console/api"
	"github.com/mojoup/mojoup-node/pkg/secrets"
	"github.com/mojoup/mojoup-node/pkg/secrets/keyringtest"
	"github.com/mojoup/mojoup-node/pkg/secrets/signin"
	"github.com/mojoup/mojoup-node/pkg/secrets/source"
)

// TestT11_ATokenInAKeyringIsFollowed: what a tool has put into the keyring since a
// session began is what goes out, at the latest when the old token is not taken any
// more; an item that is gone is withdrawn, and given again; a locked keyring takes
// nothing away. The keyring is a real one.
func TestT11_ATokenInAKeyringIsFollowed(t *testing.T) {
	home := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(home, ".copilot"), 0o700))
	must(t, os.WriteFile(filepath.Join(home, ".copilot/config.json"), []byte(`{"lastLoggedInUser":{"host":"https://github.com","login":"me"},"copilotTokens":{}}`), 0o600))
	keyringtest.Start(t)
	attributes := map[string]string{"service": "copilot-cli", "account": "https://github.com:me"}
	put := func(token string) {
		t.Helper()
		keyringtest.Clear(t, attributes)
		if token != "" {
			must(t, source.StoreKeyringItem(t.Context(), "test", attributes, secrets.NewValue([]byte(token))))
		}
	}
	s, err := store.Open(t.Context(), t.TempDir(), store.Options{})
	must(t, err)
	defer s.Close()
	n := &Node{store: s, log: slog.New(slog.DiscardHandler), user: whois(os.Getuid())}
	defer n.telling.Wait()
	l := &life{n: n, req: api.RunRequest{Env: []string{"HOME=" + home}}, diary: newDiary(), client: newHub(nil, false), keys: keys{ring: secrets.NewBook().Open("s")}}
	tool := signin.Named(signin.Builtin(), "copilot")[0]
	n.o.Tools = []signin.Tool{tool}
	put("gho_First0123456789abcdefghijklm")
	n.o.Settings = testSettings(t)
	one, err := l.findSignIn(t.Context(), tool, n.signInWorld(home, api.SignInPlaces{}), signin.StandIn)
	must(t, err)
	l.lent = []*lent{one}
	sent := func() string { return l.sends(one) }
	look := func() error { return l.lookAfter(context.Background(), one, keyringTurns, inSession{}) }
	if got := sent(); got != "gho_First0123456789abcdefghijklm" {
		t.Fatal(got)
	}
	put("gho_Second0123456789abcdefghijkl")
	if err := look(); err != nil || sent() != "gho_Second0123456789abcdefghijkl" {
		t.Errorf("another token: %v: %s", err, sent())
	}
	put("gho_Third0123456789abcdefghijklm")
	k := l.keeper()
	if !k.Rejected(t.Context(), []string{signInKey(tool)}, "api.github.com", "/x") || sent() != "gho_Third0123456789abcdefghijklm" {
		t.Errorf("the old one is not taken any more: %s", sent())
	}
	put("")
	for range 2 {
		if err := look(); err != nil {
			t.Error(err)
		}
	}
	if got := sent(); !strings.Contains(got, "was withdrawn") {
		t.Errorf("gone: %s", got)
	}
	put("gho_Fourth0123456789abcdefghijkl")
	if err := look(); err != nil || sent() != "gho_Fourth0123456789abcdefghijkl" {
		t.Errorf("there again: %v: %s", err, sent())
	}
	keyringtest.Lock(t)
	for range 3 {
		if err := look(); err == nil || !strings.Contains(err.Error(), "locked") {
			t.Errorf("locked: %v", err)
		}
	}
	if got := sent(); got != "gho_Fourth0123456789abcdefghijkl" {
		t.Errorf("locked: %s", got)
	}
}

// TestT11_WhatPlacesAreForgiven: a place that refuses a token which was renewed for
// its sake is not believed again; one for which no renewal could be had is. There is
// an end to it, since who is inside may make any place say so.
func TestT11_WhatPlacesAreForgiven(t *testing.T) {
	o := &lent{}
	if o.forgives("a", "one") {
		t.Error("a place that has said nothing yet")
	}
	if o.forgives("a", "one") { // the renewal has failed
		t.Error("a place for which nothing was renewed")
	}
	o.renewedFor("a", "two")
	if o.forgives("a", "three") { // which came by other ways
		t.Error("a place that took the token of its sake, perhaps, and refuses a later one")
	}
	o.renewedFor("a", "four")
	for _, mark := range []string{"four", "five"} {
		if !o.forgives("a", mark) {
			t.Errorf("a place that refuses whatever there is, %s", mark)
		}
	}
	for i := range maxForgiven {
		o.renewedFor(strings.Repeat("b", i), "six")
	}
	if !o.forgives("new", "seven") {
		t.Error("there is no end to it")
	}
}
