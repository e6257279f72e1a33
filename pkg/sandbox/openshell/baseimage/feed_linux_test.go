package baseimage

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// taker is a Docker that takes what it is given, or refuses it at once.
type taker struct {
	refuses error
	got     strings.Builder
}

func (d *taker) Import(_ context.Context, _ string, archive io.Reader) error {
	if d.refuses != nil {
		return d.refuses
	}
	_, err := io.Copy(&d.got, archive)
	return err
}

// TestNoProgramHangsABuild: whoever makes an image waits neither for a program that
// was given up, nor for what it has left running with its output open, nor for one
// whose reader has gone; and half of what it writes is no image.
func TestNoProgramHangsABuild(t *testing.T) {
	// It holds the output until the test is over.
	held := filepath.Join(t.TempDir(), "held")
	lingers := "(read line <" + held + ") & "
	if err := syscall.Mkfifo(held, 0o600); err != nil {
		t.Fatal(err)
	}
	holder, err := os.OpenFile(held, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { holder.Close() })
	refused := errors.New("refused")
	for name, tt := range map[string]struct {
		script  string
		refuses error
		giveUp  bool
		want    string // of the error, "" for none
		got     string
	}{
		"all of it":           {script: "printf abc", got: "abc"},
		"half of it":          {script: "printf ab; exit 3", want: "exit status 3", got: "ab"},
		"it holds its output": {script: lingers + "printf abc", want: "WaitDelay"},
		"given up":            {script: "echo up >&2; " + lingers + "wait", giveUp: true, want: "killed"},
		"nobody reads":        {script: lingers + "wait", refuses: refused, want: "refused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			say := func(string) {
				if tt.giveUp {
					cancel()
				}
			}
			d := &taker{refuses: tt.refuses}
			made := make(chan error, 2)
			go func() { made <- feed(ctx, d, "ref", say, "sh", "-c", tt.script) }()
			if err := within(t, made); tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("it says %v, want %q", err, tt.want)
			}
			if tt.got != "" && d.got.String() != tt.got {
				t.Errorf("Docker got %q", d.got.String())
			}
			if tt.refuses == nil && (tt.giveUp || tt.want == "WaitDelay") {
				// What tells people where it stands needs no more of a program than its end.
				go func() { made <- tell(ctx, say, "sh", "-c", tt.script) }()
				if err := within(t, made); (err != nil) != tt.giveUp {
					t.Errorf("it says %v", err)
				}
			}
		})
	}
}

func within(t *testing.T, made <-chan error) error {
	t.Helper()
	select {
	case err := <-made:
		return err
	case <-time.After(2 * time.Minute):
		t.Fatal("it hangs")
		return nil
	}
}
