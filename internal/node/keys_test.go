package node

import (
	"context"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mojoup/mojoup-node/pkg/console/api"
	"github.com/mojoup/mojoup-node/pkg/secrets"
	"github.com/mojoup/mojoup-node/pkg/secrets/source"
)

const oneKey, otherKey = "ghp_one0123456789abcdefghijklmnopqrstuvwx", "ghp_two0123456789abcdefghijklmnopqrstuvwx"

// TestRotationReachesRunningSessions: a key that changes in its file is the one
// that goes out soon, under the stand-in of before; one that is gone leaves the
// old one, and a line in the diary.
func TestRotationReachesRunningSessions(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	write(oneKey)
	l := &life{n: &Node{o: Options{Times: Times{Keys: time.Millisecond}}, user: &user.User{HomeDir: t.TempDir()}}, diary: newDiary(), client: newHub(nil, false)}
	l.keys = keys{ring: secrets.NewBook().Open("s"), kept: map[string]source.Reference{"KEY": {Kind: source.File, At: file}}}
	defer l.keys.ring.Close()
	standIn, err := l.keys.ring.Add(secrets.Secret{Name: "KEY", Value: secrets.NewValue([]byte(oneKey)), Binding: secrets.Binding{Hosts: []string{"x.example"}}})
	if err != nil {
		t.Fatal(err)
	}
	sent := func() string {
		h := http.Header{"X-Api-Key": {standIn}}
		swap, misuse := l.keys.ring.Look(secrets.Request{Host: "x.example", Port: 443, TLS: true, Path: "/", Header: h})
		if misuse != nil {
			t.Fatal(misuse.Reason)
		}
		swap.Header(h)
		return h.Get("X-Api-Key")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	var done sync.WaitGroup
	done.Go(func() { l.refreshKeys(ctx) })
	defer done.Wait()
	defer cancel()
	if got := sent(); got != oneKey {
		t.Errorf("at first %s", got)
	}
	write(otherKey)
	wait := time.NewTicker(time.Millisecond)
	defer wait.Stop()
	for sent() != otherKey {
		select {
		case <-wait.C:
		case <-ctx.Done():
			t.Fatal("the new key does not come")
		}
	}
	write("short")
	for !strings.Contains(l.diaryText(), "keeps the key that it had") {
		select {
		case <-wait.C:
		case <-ctx.Done():
			t.Fatalf("nothing is noted: %s", l.diaryText())
		}
	}
	if got := sent(); got != otherKey {
		t.Errorf("in the end %s", got)
	}
}

func (l *life) diaryText() string {
	var b strings.Builder
	l.diary.mu.Lock()
	defer l.diary.mu.Unlock()
	for _, e := range l.diary.events {
		if e.Kind == api.EventNotice {
			b.WriteString(e.Text + "\n")
		}
	}
	return b.String()
}

// TestWantedSecrets: what one layer needs is not optional because another can
// do without.
func TestWantedSecrets(t *testing.T) {
	got := wanted([]string{"A?", "B", "A", "C?", "C?"})
	want := []wantedKey{{"A", false}, {"B", false}, {"C", true}}
	if len(got) != len(want) {
		t.Fatal(got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%v", got)
		}
	}
}
