package node

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// TestRefusedCallsAreNamed in the closing lines, a few of them, and all in the
// store with their numbers.
func TestRefusedCallsAreNamed(t *testing.T) {
	w := newWorld(t)
	r := w.serve(t, w.options(t, nativeEngine(t)))
	ended, _ := w.whole(t, r.client, "perl", "-e", fmt.Sprintf(
		`for my $n (1..5) { $0 = "p$n"; syscall(%d, %d) for 1..$n }`, unix.SYS_UNSHARE, unix.CLONE_NEWUSER))
	sessions, err := r.client.Sessions(t.Context(), true)
	must(t, err)
	id := sessions[0].ID
	want := []string{
		"p1 tried to make a user namespace (unshare): refused",
		"p2 tried 2 times to make a user namespace (unshare): refused",
		"p3 tried 3 times to make a user namespace (unshare): refused",
		"2 more kinds of system calls were refused: mojoup-node session show " + id,
	}
	if diff := cmp.Diff(want, ended.Notices); diff != "" {
		t.Errorf("closing lines (-want +got):\n%s", diff)
	}
	s, err := r.client.Session(t.Context(), id)
	must(t, err)
	if len(s.Refused) != 5 {
		t.Fatalf("%d kept: %+v", len(s.Refused), s.Refused)
	}
	for i, kept := range s.Refused {
		if kept.Program != fmt.Sprintf("p%d", i+1) || kept.Count != int64(i+1) || kept.Call != "unshare" || kept.Answer != "EPERM" || kept.PID < 2 {
			t.Errorf("kept: %+v", kept)
		}
	}
	if sessions[0].Refused != nil {
		t.Error("a list has them too")
	}
}

func TestRefusedLine(t *testing.T) {
	for want, r := range map[string]sandbox.Refusal{
		"python3 tried to load a program into the kernel (bpf): refused":              {Program: "python3", Call: "bpf", Tried: "load a program into the kernel", Count: 1},
		"some program tried 3 times to load a program into the kernel (bpf): refused": {Program: " ", Call: "bpf", Tried: "load a program into the kernel", Count: 3},
	} {
		if got := refusedLine(r); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
