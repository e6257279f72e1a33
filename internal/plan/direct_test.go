package plan

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mojoup/mojoup-node/pkg/policy"
	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// TestD29d_HostsOfTCPRulesGetAnAddress each, whatever the number of their ports,
// and not without end.
func TestD29d_HostsOfTCPRulesGetAnAddress(t *testing.T) {
	made, err := Make(input(func(in *Input) {
		in.Direct = []policy.HostPort{{Host: "a.example", Port: 6379}, {Host: "db.example", Port: 5432}, {Host: "db.example", Port: 5433}}
	}))
	if err != nil {
		t.Fatal(err)
	}
	want := []sandbox.Direct{{Host: "a.example", Port: 6379, Address: "127.0.1.1"}, {Host: "db.example", Port: 5432, Address: "127.0.1.2"}, {Host: "db.example", Port: 5433, Address: "127.0.1.2"}}
	if diff := cmp.Diff(want, made.Spec.Direct); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	made, err = Make(input(func(in *Input) {
		for i := range mostDirect + 2 {
			in.Direct = append(in.Direct, policy.HostPort{Host: fmt.Sprintf("h%03d.example", i), Port: 1})
		}
	}))
	if err != nil {
		t.Fatal(err)
	}
	if n := len(made.Spec.Direct); n != mostDirect || !strings.Contains(strings.Join(made.Notes, "\n"), "h128.example") {
		t.Errorf("%d hosts, notes %q", n, made.Notes)
	}
}
