package escape

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
)

// An attempt without an answer has not been seen to fail.
func TestTryWantsEveryAnswer(t *testing.T) {
	attempts := []Attempt{{Name: "a"}, {Name: "b"}}
	for name, c := range map[string]struct {
		out string
		err error
		ok  bool
	}{
		"all":         {out: `{"name":"a","outcome":"EPERM"}` + "\n" + `{"name":"b","outcome":"works"}` + "\n", ok: true},
		"one missing": {out: `{"name":"a","outcome":"EPERM"}` + "\n"},
		"none":        {},
		"wrong order": {out: `{"name":"b"}` + "\n" + `{"name":"a"}` + "\n"},
		"too many":    {out: `{"name":"a"}` + "\n" + `{"name":"b"}` + "\n" + `{"name":"c"}` + "\n"},
		"no JSON":     {out: "oops\n"},
		"failed":      {out: `{"name":"a"}` + "\n" + `{"name":"b"}` + "\n", err: errors.New("gone")},
	} {
		results, err := Try(t.Context(), attempts, &Arena{}, func(_ context.Context, args []string) ([]byte, error) {
			if strings.Join(args[2:], " ") != "a b" {
				t.Errorf("arguments %q", args)
			}
			return []byte(c.out), c.err
		})
		if (err == nil) != c.ok || err != nil && results != nil {
			t.Errorf("%s: got %v, %v", name, results, err)
		}
	}
}

func TestMainRefusesNonsense(t *testing.T) {
	for _, args := range [][]string{nil, {"run"}, {"one", "{}", "no-such-attempt"}, {"one", "no JSON", "chroot"}, {"other"}} {
		if code := Main(args, strings.NewReader(""), io.Discard); code != 2 {
			t.Errorf("%q: exit %d", args, code)
		}
	}
}
