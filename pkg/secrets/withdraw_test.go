package secrets

import (
	"net/http"
	"strings"
	"testing"
)

// TestB88_HoldsAreCutOnce: what holds a key is cut when the key is withdrawn or
// bound elsewhere, also where that came before it was noted; what holds another key
// is not, nor what has been let go.
func TestB88_HoldsAreCutOnce(t *testing.T) {
	r := NewBook().Open("s")
	for _, name := range []string{"A", "B"} {
		if _, err := r.Add(Secret{Name: name, Value: NewValue([]byte("sk-0123456789abcdefghijklmnop" + name)), Binding: Binding{Hosts: []string{"x.example"}}}); err != nil {
			t.Fatal(err)
		}
	}
	cuts := map[string]int{}
	seen := r.Turn()
	hold := func(as string, names ...string) func() {
		return r.Hold(Use{Names: names, Seen: seen}, func() { cuts[as]++ })
	}
	hold("both", "A", "B")
	hold("b", "B")
	hold("let go", "A")()
	defer r.HoldUnread("else.example", 443, func() { cuts["unread"]++ })()
	r.Withdraw("A", "because")
	r.Withdraw("A", "because")
	if !r.Withdraw("B", "so") || r.Withdraw("B", "so") || r.Withdraw("C", "so") {
		t.Error("what is withdrawn now is told from what was")
	}
	if err := r.Rotate("A", NewValue([]byte("sk-9876543210abcdefghijklmnop"))); err != nil {
		t.Fatal(err)
	}
	hold("late", "A") // seen before it was withdrawn, and given again since
	if err := r.Rebind("A", Binding{Hosts: []string{"x.example", "else.example"}}); err != nil {
		t.Fatal(err)
	}
	seen = r.Turn()
	hold("now", "A")
	if err := r.Rebind("A", Binding{Hosts: []string{"x.example", "else.example"}}); err != nil {
		t.Fatal(err)
	}
	for as, want := range map[string]int{"both": 1, "b": 1, "let go": 0, "late": 1, "now": 0, "unread": 1} {
		if cuts[as] != want {
			t.Errorf("%s was cut %d times, want %d", as, cuts[as], want)
		}
	}
	r.Close()
	r.Withdraw("A", "late")
	if cuts["now"] != 0 {
		t.Error("a session that has ended cuts")
	}
}

// TestB88_ATokenIsRefusedInItsSessionOnly: ten sessions may have one token. Every
// one is refused that the session has had, also one that comes too late.
func TestB88_ATokenIsRefusedInItsSessionOnly(t *testing.T) {
	const first, second, late = "sk-ant-oat01-0123456789abcdefghijklmnop", "sk-ant-oat01-9876543210abcdefghijklmnop", "sk-ant-oat01-5555555555abcdefghijklmnop"
	b := NewBook()
	one, other := b.Open("one"), b.Open("other")
	own := func(r *Ring, token string) {
		t.Helper()
		if err := r.Own(Secret{Name: "sign-in x", Value: NewValue([]byte(token)), Binding: Binding{Hosts: []string{"x.example"}, Body: []string{"token"}, Paths: []string{"/**"}}}); err != nil {
			t.Fatal(err)
		}
	}
	look := func(r *Ring, host, token string) string {
		s, misuse := r.Look(Request{Host: host, Port: 443, TLS: true, Path: "/", Header: http.Header{"Authorization": {"Bearer " + token}}})
		if misuse == nil {
			return strings.Join(s.Own(), " ")
		}
		if !misuse.Withdrawn || strings.Contains(misuse.Reason, token) {
			t.Errorf("%+v", misuse)
		}
		return misuse.Reason
	}
	for _, r := range []*Ring{one, other} {
		own(r, first)
		own(r, second)
		own(r, second)
	}
	own(other, late)
	for _, token := range []string{first, second} {
		if got := look(one, "x.example", token); got != "sign-in x" || one.Bound("x.example", 443) || one.InBody("x.example", 443, "/") {
			t.Errorf("at first: %q", got)
		}
	}
	for _, why := range []string{"signed out", "signed out again"} {
		one.Withdraw("sign-in x", why)
		own(one, late)
		for _, token := range []string{first, second, late} {
			for _, host := range []string{"x.example", "evil.example"} {
				if got := look(one, host, token); got != "the header Authorization holds a token of the sign-in x, which was withdrawn: "+why {
					t.Errorf("%s: %q", host, got)
				}
				if got := look(other, host, token); got != "sign-in x" {
					t.Errorf("another session, %s: %s", host, got)
				}
			}
			const form = "application/x-www-form-urlencoded"
			if m := one.WithdrawnInBody("x.example", 443, "/", form, []byte("token="+token)); m == nil || m.Reason != "the body holds a token of the sign-in x, which was withdrawn: "+why {
				t.Errorf("in a body: %+v", m)
			}
			if body, names := one.SwapBody("x.example", 443, "/", form, []byte("token="+token)); string(body) != "token="+token || names != nil {
				t.Errorf("swaps %s", names)
			}
		}
		if !one.Bound("x.example", 443) || other.Bound("x.example", 443) {
			t.Error("the hosts that are read are not those of the session that lost it")
		}
		one.Restore("sign-in x")
		if got := look(one, "x.example", first); got != "sign-in x" || one.Bound("x.example", 443) {
			t.Errorf("given again: %s", got)
		}
	}
	one.Close()
	if got := look(other, "x.example", first); got != "sign-in x" {
		t.Errorf("after the end of the other session: %s", got)
	}
	if got := look(one, "x.example", first); got != "" {
		t.Errorf("after its own end: %s", got)
	}
}

// TestB88_WhatUsesATokenIsCut: what has an own token, and what goes to its hosts,
// which may have been told it in a body or a message; but not what began when it was
// refused already.
func TestB88_WhatUsesATokenIsCut(t *testing.T) {
	r := NewBook().Open("s")
	own := Secret{Name: "sign-in x", Value: NewValue([]byte("sk-ant-oat01-0123456789abcdefghijklmnop")), Binding: Binding{Hosts: []string{"x.example"}}}
	if err := r.Own(own); err != nil {
		t.Fatal(err)
	}
	cuts := map[string]int{}
	hold := func(as, host string, seen Turn, names ...string) Use {
		u := Use{Names: names, Host: host, Port: 443, Seen: seen}
		r.Hold(u, func() { cuts[as]++ })
		return u
	}
	before := r.Turn()
	with := hold("has it", "else.example", before, own.Name)
	hold("its host", "x.example", before)
	hold("another host", "else.example", before)
	r.Withdraw(own.Name, "signed out")
	hold("late", "x.example", before)
	hold("refused already", "x.example", r.Turn())
	r.Withdraw(own.Name, "signed out")
	if got := r.Withdrawn(with); got != "the sign-in x was withdrawn: signed out" {
		t.Error(got)
	}
	r.Restore(own.Name)
	if got := r.Withdrawn(with); got != "the sign-in x was withdrawn meanwhile, and is there again" {
		t.Error(got)
	}
	for as, want := range map[string]int{"has it": 1, "its host": 1, "another host": 0, "late": 1, "refused already": 0} {
		if cuts[as] != want {
			t.Errorf("%s was cut %d times, want %d", as, cuts[as], want)
		}
	}
}

// TestB88_EachKeyIsNamed of those because of which something was cut, and each for
// its own reason.
func TestB88_EachKeyIsNamed(t *testing.T) {
	r := NewBook().Open("s")
	for _, name := range []string{"A", "B", "C", "D"} {
		if _, err := r.Add(Secret{Name: name, Value: NewValue([]byte("sk-0123456789abcdefghijklmnop" + name)), Binding: Binding{Hosts: []string{"x.example"}}}); err != nil {
			t.Fatal(err)
		}
	}
	u := Use{Names: []string{"A", "B", "C"}, Seen: r.Turn()}
	r.Withdraw("B", "its file is gone")
	r.Withdraw("D", "not of this one")
	if err := r.Rebind("C", Binding{Hosts: []string{"else.example"}}); err != nil {
		t.Fatal(err)
	}
	if got := r.Withdrawn(u); got != "the key of B was withdrawn: its file is gone; the key of C is bound elsewhere since" {
		t.Error(got)
	}
}

// TestB88_AWithdrawalIsDoneOnce, however often it is said; of several reasons the
// last one counts.
func TestB88_AWithdrawalIsDoneOnce(t *testing.T) {
	r := NewBook().Open("s")
	if _, err := r.Add(Secret{Name: "A", Value: NewValue([]byte("sk-0123456789abcdefghijklmnop")), Binding: Binding{Hosts: []string{"x.example"}}}); err != nil {
		t.Fatal(err)
	}
	r.Withdraw("A", "its file is gone")
	u := Use{Names: []string{"A"}, Seen: r.Turn()}
	for range 3 {
		if r.Withdraw("A", "its person has removed it") {
			t.Error("it is withdrawn again")
		}
	}
	if now := r.Turn(); now.of("A") != u.Seen.of("A") {
		t.Error("each look counts as another turn")
	}
	if got := r.Withdrawn(u); got != "the key of A was withdrawn: its person has removed it" {
		t.Error(got)
	}
}
