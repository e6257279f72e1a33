package main

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/mojoup/mojoup-node/pkg/sandbox/kerneltest"
)

// look is what somebody is shown at an address, with the answer's code before it.
func (w *town) look(uid int, url string) string {
	w.t.Helper()
	_, port, _ := strings.Cut(strings.Trim(strings.TrimPrefix(url, "http://"), "/"), ":")
	cmd := exec.Command("curl", "-sS", "-m", "60", "-w", "code %{http_code}", "--resolve", "mojoup-node.localhost:"+port+":127.0.0.1", url)
	cmd.Dir, cmd.Env = "/", []string{"PATH=" + os.Getenv("PATH")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		w.t.Fatalf("uid %d asks for the page: %v: %s\nnode: %s", uid, err, out, w.log)
	}
	return string(out)
}

// TestT8_SystemNodePageIsEachOnesOwn: at one address everybody sees their own
// sessions, root everybody's, and who is not served nothing.
func TestT8_SystemNodePageIsEachOnesOwn(t *testing.T) {
	w := newTown(t)
	if _, err := exec.LookPath("curl"); err != nil {
		kerneltest.Lacking(t, "curl", err.Error())
	}
	w.page = "127.0.0.1:0"
	w.serve()
	w.allow("*")
	url := w.status(0).Node.Page
	if url == "" {
		t.Fatal("the node says nothing of its page")
	}
	// Whom no list of the machine has the kernel may name, but not say where from:
	// they come by the socket first.
	if got := w.look(ann, url); !strings.Contains(got, "cannot tell who is calling") || !strings.HasSuffix(got, "code 403") {
		t.Errorf("a stranger is shown\n%s", got)
	}
	hers, his := w.begin(ann).up(), w.begin(bob).up()
	for uid, want := range map[int][]int{ann: {ann}, bob: {bob}, 0: {ann, bob}} {
		if got := w.status(uid).Node.Page; got != url {
			t.Errorf("uid %d is told of a page at %q, want %q", uid, got, url)
		}
		got := w.look(uid, url)
		if !strings.HasSuffix(got, "code 200") || !strings.Contains(got, "Agents run in a sandbox") || !strings.Contains(got, "<dt>Engine native</dt>") ||
			!strings.Contains(got, "Sessions ("+strconv.Itoa(len(want))+")") {
			t.Errorf("uid %d is shown\n%s", uid, got)
		}
		for _, other := range []int{ann, bob} {
			shown := strings.Contains(got, w.repo(other))
			if wanted := other == want[0] || len(want) == 2; shown != wanted {
				t.Errorf("uid %d is shown sessions of %d: %v, want %v", uid, other, shown, wanted)
			}
		}
	}
	w.allow(strconv.Itoa(ann))
	if got := w.look(bob, url); !strings.Contains(got, "does not serve user "+strconv.Itoa(bob)) || !strings.HasSuffix(got, "code 403") || strings.Contains(got, "Sessions") {
		t.Errorf("who is no longer served is shown\n%s", got)
	}
	// A name of somebody else's is not this page, whoever asks.
	if got := w.look(ann, strings.Replace(url, "mojoup-node.localhost", "127.0.0.1", 1)); !strings.HasSuffix(got, "code 421") {
		t.Errorf("under another name ann is shown\n%s", got)
	}
	w.allow("*")
	for _, s := range []*stay{hers, his} {
		s.let()
		if code := s.code(); code != 0 {
			t.Errorf("a session ends with %d", code)
		}
	}
}
