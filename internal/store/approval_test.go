package store

import (
	"testing"
)

func TestApprovalIsForExactlyThat(t *testing.T) {
	ctx := t.Context()
	st, err := Open(ctx, t.TempDir(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	given := Approval{UID: 1000, Repository: "/srv/a\x00/srv/a/.git", Digest: "d1"}
	for range 2 {
		if err := st.Approve(ctx, given); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name string
		ask  Approval
		want bool
	}{
		{"the same", given, true},
		{"another person", Approval{1001, given.Repository, given.Digest}, false},
		{"another clone", Approval{1000, "/srv/b\x00/srv/b/.git", given.Digest}, false},
		{"another content", Approval{1000, given.Repository, "d2"}, false},
		{"nothing", Approval{}, false},
	} {
		got, err := st.Approved(ctx, c.ask)
		if err != nil || got != c.want {
			t.Errorf("%s: got %v, %v, want %v", c.name, got, err, c.want)
		}
	}
}
