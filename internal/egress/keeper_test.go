package egress

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/mojoup/mojoup-node/pkg/secrets"
)

// aKeeper has another key where a host does not take the first one, once.
type aKeeper struct {
	renew func()

	mu    sync.Mutex
	asked []string
	done  bool
}

func (*aKeeper) Fresh(context.Context, []string) bool { return false }

func (k *aKeeper) Rejected(_ context.Context, names []string, host, path string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.asked = append(k.asked, fmt.Sprint(names, host, path))
	if k.done {
		return false
	}
	k.done = true
	k.renew()
	return true
}

// TestT11_TriedAgainWhereTheKeyIsAnother: a 401 to a key of which there is
// another by now is a 503 to who asked, and the next request takes that one
// along. A 401 to anything else is what the host says.
func TestT11_TriedAgainWhereTheKeyIsAnother(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("h2=%t", h2), func(t *testing.T) {
			w, standIn := keyWorld(t, all, bindAPI)
			k := &aKeeper{renew: func() {
				if err := w.session.Keys.Rotate("API_KEY", secrets.NewValue([]byte(laterKey))); err != nil {
					t.Error(err)
				}
			}}
			w.stop()
			w.session.Keeper = k
			w.start()
			w.serve(443, true, func(rw http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Authorization") != "Bearer "+laterKey || r.URL.Path == "/other" {
					rw.WriteHeader(http.StatusUnauthorized)
				}
				_, _ = io.WriteString(rw, "the host's own words")
			})
			c := w.client(h2)
			for _, step := range []struct {
				path, key string
				status    int
				asked     int
			}{
				{"/x", "mine", 401, 0}, // not a key of the session's
				{"/x", standIn, 503, 1},
				{"/x", standIn, 200, 1},
				{"/other", standIn, 401, 2},
			} {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://api.x.example"+step.path, strings.NewReader("{}"))
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("Authorization", "Bearer "+step.key)
				res, err := c.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(res.Body)
				_ = res.Body.Close()
				if err != nil || res.StatusCode != step.status || res.ProtoMajor == 2 != h2 {
					t.Errorf("%+v: %s %d, %v", step, res.Proto, res.StatusCode, err)
				}
				again := res.StatusCode == 503
				if again != (res.Header.Get("Retry-After") == "1") || again == (string(body) == "the host's own words") {
					t.Errorf("%+v: %v: %s", step, res.Header, body)
				}
				k.mu.Lock()
				if len(k.asked) != step.asked || slices.ContainsFunc(k.asked, func(s string) bool { return !strings.HasPrefix(s, "[API_KEY]api.x.example/") }) {
					t.Errorf("%+v: asked %q", step, k.asked)
				}
				k.mu.Unlock()
			}
		})
	}
}
