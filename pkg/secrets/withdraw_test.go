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
	hold := func(as string, names ...string) func() { return r.Hold(names, seen, func() { cuts[as]++ }) }
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

// TestB88_ATokenIsRefusedInItsSessionOnly: ten sessions may have one token.
func TestB88_ATokenIsRefusedInItsSessionOnly(t *testing.T) {
	const token = "sk-ant-oat01-0123456789abcdefghijklmnop"
	b := NewBook()
	one, other := b.Open("one"), b.Open("other")
	lent := Secret{Name: "sign-in x", Value: NewValue([]byte(token)), Binding: Binding{Hosts: []string{"x.example"}}}
	if err := one.Refuse(lent, "signed out"); err != nil {
		t.Fatal(err)
	}
	look := func(r *Ring, host string) string {
		_, misuse := r.Look(Request{Host: host, Port: 443, TLS: true, Path: "/", Header: http.Header{"Authorization": {"Bearer " + token}}})
		if misuse == nil {
			return ""
		}
		return misuse.Reason
	}
	for _, host := range []string{"x.example", "evil.example"} {
		if got := look(one, host); !strings.Contains(got, "a token of sign-in x was withdrawn: signed out") || strings.Contains(got, token) {
			t.Errorf("%s: %q", host, got)
		}
		if got := look(other, host); got != "" {
			t.Errorf("another session, %s: %s", host, got)
		}
	}
	if !one.Bound("x.example", 443) || other.Bound("x.example", 443) {
		t.Error("the hosts that are read are not those of the session that lost it")
	}
	if masked := []byte("you sent " + token); one.Masker() != nil {
		one.Masker().Mask(masked)
		t.Errorf("masks %s", masked)
	}
	one.Forget("sign-in x")
	if got := look(one, "x.example"); got != "" || one.Bound("x.example", 443) {
		t.Errorf("given again: %s", got)
	}
	one.Close()
	if got := look(other, "x.example"); got != "" {
		t.Errorf("after the end of the other session: %s", got)
	}
}
