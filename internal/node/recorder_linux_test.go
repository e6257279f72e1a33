package node

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/mojoup/mojoup-node/internal/config"
	"github.com/mojoup/mojoup-node/internal/session"
	"github.com/mojoup/mojoup-node/internal/store"
	"github.com/mojoup/mojoup-node/pkg/console/api"
)

// An end is written whatever was written before: where the state file could
// not be written for a while, that may have been the first step only.
func TestEndsAreWrittenFromEveryState(t *testing.T) {
	for _, from := range []session.State{session.Staging, session.Starting, session.Running, session.Stopping} {
		for _, to := range []session.State{session.Gone, session.Failed} {
			t.Run(fmt.Sprintf("%s to %s", from, to), func(t *testing.T) {
				s, err := store.Open(t.Context(), t.TempDir(), store.Options{})
				must(t, err)
				defer s.Close()
				n := &Node{store: s}
				row := store.Session{ID: session.New(), State: session.Staging}
				must(t, s.CreateSession(t.Context(), row, nil))
				for _, st := range []session.State{session.Starting, session.Running, session.Stopping} {
					if got, err := s.Session(t.Context(), row.ID); err != nil || got.State == from {
						break
					}
					must(t, s.MoveSession(t.Context(), row.ID, st, nil))
				}
				row.State, row.Reason, row.Ended = to, "why", time.Now()
				must(t, n.writeEnd(t.Context(), row))
				if got, err := s.Session(t.Context(), row.ID); err != nil || got.State != to || got.Reason != "why" || got.Ended.IsZero() {
					t.Errorf("%+v, %v", got, err)
				}
			})
		}
	}
}

// What is shown of a session is bounded, and says what there was besides.
func TestShownVerdictsAreBounded(t *testing.T) {
	s, err := store.Open(t.Context(), t.TempDir(), store.Options{Keep: store.Retention{Verdicts: 1200}})
	must(t, err)
	defer s.Close()
	show := func(verdicts, size int) api.Session {
		row := store.Session{ID: session.New(), State: session.Staging, Notices: []string{"first"}}
		must(t, s.CreateSession(t.Context(), row, nil))
		var vs []store.Verdict
		for i := range verdicts {
			vs = append(vs, store.Verdict{Session: row.ID, Outcome: api.Outcome{ID: fmt.Sprint(i), Method: strings.Repeat("&", size)}})
		}
		must(t, s.AddVerdicts(t.Context(), vs))
		got, err := s.Session(t.Context(), row.ID)
		must(t, err)
		out := got.API()
		must(t, detail(t.Context(), s, &out))
		return out
	}
	for _, tt := range []struct {
		verdicts, size, shown int
		notices               string
	}{
		{0, 0, 0, "first"},
		{1000, 1, 1000, "first"},
		{1001, 1, 1000, "first|1 older verdict is not shown"},
		{1300, 1, 1000, "first|200 older verdicts are not shown|100 older verdicts are no longer kept"},
		{250, 60000, 69, "first|181 older verdicts are not shown"}, // 4 MiB
	} {
		got := show(tt.verdicts, tt.size)
		if len(got.Verdicts) != tt.shown || strings.Join(got.Notices, "|") != tt.notices {
			t.Errorf("of %d: %d shown, notices %q", tt.verdicts, len(got.Verdicts), got.Notices)
		}
		if n := len(got.Verdicts); n > 0 && got.Verdicts[n-1].ID != fmt.Sprint(tt.verdicts-1) {
			t.Errorf("of %d: the last one shown is %s", tt.verdicts, got.Verdicts[n-1].ID)
		}
	}
}

// What was allowed and could not be done says so where the session is shown.
func TestFailuresAreShown(t *testing.T) {
	w, e := newWorld(t), newStub()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	e.ln = func() net.Listener { return ln }
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	port := closed.Addr().(*net.TCPAddr).Port
	must(t, closed.Close())
	o := w.options(t, e)
	o.Times = brisk
	o.Settings, err = config.Origin{Environ: append(noPage, "MOJOUP_NODE_NETWORK_PRIVATE=127.0.0.0/8")}.Load()
	must(t, err)
	r := w.serve(t, o)
	a := w.ask(t, r.client, api.RunRequest{
		Command: []string{"sh", "-c", "echo up; exec sleep 300"}, PolicyName: "mine",
		Policy: fmt.Sprintf(`{"version": 1, "network": {"rules": [{"hosts": ["host.mojoup.internal"], "ports": [%d], "protocol": "tcp", "addresses": ["127.0.0.1/32"]}]}}`, port),
	})
	awaitUp(t, a)
	status, body := answerOf(t, ln.Addr().String(), fmt.Sprintf("http://host.mojoup.internal:%d/", port))
	if status != 502 {
		t.Errorf("answered %d %s", status, body)
	}
	live, err := r.client.Sessions(t.Context(), false)
	must(t, err)
	s, err := r.client.Session(t.Context(), live[0].ID)
	must(t, err)
	if len(s.Verdicts) != 1 || !s.Verdicts[0].Allowed || s.Verdicts[0].Failure != "host.mojoup.internal refused the connection." || s.Allowed != 1 {
		t.Errorf("shown: %d allowed, %+v", s.Allowed, s.Verdicts)
	}
}

// A session at whose end something had been denied says so, once.
func TestEndSaysWhatWasDenied(t *testing.T) {
	for n, want := range map[int]string{
		0: "", 1: "1 request was denied: mojoup-node session show x", 12: "12 requests were denied: mojoup-node session show x",
	} {
		if got := deniedLine(store.Session{ID: "x", Denied: n}); got != want {
			t.Errorf("%d: %q", n, got)
		}
	}
}
