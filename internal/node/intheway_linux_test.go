package node

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/mojoup/mojoup-node/internal/store"
	"github.com/mojoup/mojoup-node/pkg/secrets"
	"github.com/mojoup/mojoup-node/pkg/secrets/signin"
)

// TestB88_APipeInTheWayHoldsUpNothing: a session puts pipes where a file of its
// sign-in is made, and a directory where it is to be. The new token arrives all the
// same, or is put there once there is a place.
func TestB88_APipeInTheWayHoldsUpNothing(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]string{
		"pipe":      `mkfifo ~/.claude/.mojoup-.credentials.json ~/.claude/.mojoup- ~/.claude/.mojoup-tmp`,
		"directory": `mv $f ~/aside; mkdir $f; (sleep 0.3; rmdir $f; cp ~/aside $f) &`,
	} {
		s, w := newSignedIn(t, 8*time.Hour), newWorld(t)
		r := s.serve(t, w, signin.Lease)
		script := `f=~/.claude/.credentials.json; cp $f ~/old; ` + prepare + "\n" + `echo up; while ! [ -f $f ] || cmp -s $f ~/old; do sleep 0.05; done; cat $f; ls -a ~/.claude`
		a := w.ask(t, r.client, s.request(script))
		defer a.gone()
		a.up(t, time.After(enough))
		must(t, s.renew(t.Context(), func(*signin.SignIn) bool { return true }))
		end, err := a.end(t)
		if err != nil || end.Code != 0 || !strings.Contains(a.out.String(), s.token(t)) {
			t.Errorf("%s: %+v, %v: %s", name, end, err, a.out.String())
		}
	}
}

// TestB88_NothingInsideComesBeforeARefusal: what could not be put inside is not tried
// again while the sign-in seems to be gone, so that a session that holds up the one
// does not keep the other.
func TestB88_NothingInsideComesBeforeARefusal(t *testing.T) {
	t.Parallel()
	st, err := store.Open(t.Context(), t.TempDir(), store.Options{})
	must(t, err)
	defer st.Close()
	s := newSignedIn(t, 8*time.Hour)
	n := &Node{store: st, log: slog.New(slog.DiscardHandler), user: whois(os.Getuid())}
	n.o.Tools, n.o.Settings = []signin.Tool{s.tool}, testSettings(t)
	defer n.telling.Wait()
	l := &life{n: n, diary: newDiary(), client: newHub(nil, false), keys: keys{ring: secrets.NewBook().Open("s")}}
	l.inside.Store(&inside{})
	one, err := l.lend(s.found(t), signin.Lease)
	must(t, err)
	l.lent = []*lent{one}
	one.behind.Store(true)
	must(t, os.Remove(s.file))
	tried := 0
	in := inSession{
		put: func(signin.Staged) error { tried++; return errors.New("held up") },
		remove: func(string) error {
			if !one.isWithdrawn() {
				t.Error("the file is removed before the token is refused")
			}
			return nil
		},
	}
	for range 2 {
		must(t, l.lookAfter(context.Background(), one, 1, in))
	}
	if !one.isWithdrawn() || tried != 0 || one.behind.Load() {
		t.Errorf("withdrawn %v, tried %d times, behind %v", one.isWithdrawn(), tried, one.behind.Load())
	}
}
