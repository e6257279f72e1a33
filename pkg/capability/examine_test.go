package capability

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestD05_ElsewhereThanLinux(t *testing.T) {
	for _, system := range []string{"darwin", "windows", ""} {
		r := Examine(t.Context(), Host{OS: system}, Auto)
		if got := r.Verdict.String(); got != "This machine cannot sandbox agents: sandboxes need Linux" {
			t.Errorf("%s: %q", system, got)
		}
		if !r.Verdict.Known || r.Verdict.Able || len(r.Engines) != 2 {
			t.Errorf("%s: %+v", system, r)
		}
	}
	if got := Examine(t.Context(), Host{OS: "darwin"}, Off).Verdict.String(); got != SentenceOff {
		t.Errorf("off: %q", got)
	}
}

func TestNoProbesProveNothing(t *testing.T) {
	for _, engine := range []Engine{Auto, Native, Docker} {
		r := Examine(t.Context(), Host{OS: "linux"}, engine)
		if r.Verdict.Able {
			t.Errorf("%s: able without one probe", engine)
		}
		for _, line := range r.Engines {
			if line.Able {
				t.Errorf("%s: able without one probe", line.Engine)
			}
		}
	}
}

// TestEveryProbeCounts takes away each probe of a good host in turn: what
// decides an engine must make it unable, and nothing may panic.
func TestEveryProbeCounts(t *testing.T) {
	decides := []string{"Helper", "Listener", "Namespaces", "Version", "Create"}
	take := func(name string) {
		h := goodHost()
		v := reflect.ValueOf(&h).Elem().FieldByName("Landlock")
		if f := v.FieldByName(name); f.IsValid() {
			v = f
		} else {
			v = reflect.ValueOf(&h).Elem().FieldByName(name)
		}
		v.SetZero()
		r := Examine(t.Context(), h, Native)
		if r.Verdict.Able == slices.Contains(decides, name) {
			t.Errorf("without %s: %q", name, r.Verdict)
		}
	}
	n := 0
	for _, typ := range []reflect.Type{reflect.TypeFor[Host](), reflect.TypeFor[Landlock]()} {
		for i := range typ.NumField() {
			if kind := typ.Field(i).Type.Kind(); kind == reflect.Func || kind == reflect.Interface {
				take(typ.Field(i).Name)
				n++
			}
		}
	}
	if n < 10 {
		t.Errorf("only %d probes were found", n)
	}
}

func TestReportIsComplete(t *testing.T) {
	r := Examine(t.Context(), goodHost(), Auto)
	var got, want []string
	for _, c := range r.Checks {
		got = append(got, c.Name)
		if c.Title == "" || c.Found == "" || c.State == "" || c.Engines == nil {
			t.Errorf("incomplete: %+v", c)
		}
		if c.State != OK && c.State != Skipped && c.Reason == "" {
			t.Errorf("%s is %s without a reason", c.Name, c.State)
		}
	}
	for _, q := range questions {
		want = append(want, q.name)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	if r.Took <= 0 || r.At.IsZero() {
		t.Errorf("took %v at %v", r.Took, r.At)
	}
}

func TestB98_ReportAsJSON(t *testing.T) {
	h := goodHost()
	h.Namespaces = func(context.Context) error { return context.DeadlineExceeded }
	text, err := json.Marshal(Examine(t.Context(), h, Native))
	if err != nil {
		t.Fatal(err)
	}
	var back Report
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	if back.Verdict.Known || back.Verdict.Able || len(back.Checks) != len(questions) {
		t.Errorf("read back: %+v", back.Verdict)
	}
	for _, want := range []string{`"verdict":{"able":false,"sentence":"This machine cannot sandbox agents"`, `"known":false`, `"engines":[]`, `"state":"unknown"`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	if strings.Contains(string(text), "null") {
		t.Errorf("null in %s", text)
	}
}

// TestB100_EngineSetDockerMissing is a setting that is stored and cannot work:
// the verdict says so in one sentence.
func TestB100_EngineSetDockerMissing(t *testing.T) {
	h := goodHost()
	h.Docker = func(context.Context) DockerAnswer { return DockerAnswer{Trouble: DockerDown} }
	h.Image = func(context.Context) (string, error) { return "", errors.New("a client's words") }
	r := Examine(t.Context(), h, Docker)
	if image := check(t, h, NameImage); image.Mend == "" || image.Reason != "Docker is not running" {
		t.Errorf("the image: %+v", image)
	}
	if want := "This machine cannot sandbox agents: Docker is not running"; r.Verdict.String() != want {
		t.Errorf("verdict %q", r.Verdict)
	}
}

func TestProbesRunSideBySideAndBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := goodHost()
		h.Limit = time.Second
		slow := func(ctx context.Context) error {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(900 * time.Millisecond):
				return nil
			}
		}
		h.Listener, h.Namespaces = slow, slow
		h.Docker = func(ctx context.Context) DockerAnswer { _ = slow(ctx); return DockerAnswer{Trouble: DockerSilent} }
		r := Examine(t.Context(), h, Native)
		if !r.Verdict.Able || r.Took != 900*time.Millisecond {
			t.Errorf("three probes of 0.9 s took %v: %q", r.Took, r.Verdict)
		}

		// One obeys its context, one never comes back while the examination runs.
		stuck := make(chan struct{})
		h.Listener = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		h.OpenTUN = func() error { <-stuck; return nil }
		r = Examine(t.Context(), h, Native)
		if r.Took != h.Limit+grace {
			t.Errorf("took %v", r.Took)
		}
		if r.Verdict.Able || r.Verdict.Known || !strings.Contains(r.Verdict.Reason, "did not end in time") {
			t.Errorf("verdict %q, known %v", r.Verdict, r.Verdict.Known)
		}
		close(stuck) // synctest fails if anything is left
	})
}

func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	h := goodHost()
	h.Listener = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	if v := Examine(ctx, h, Native).Verdict; v.Able || v.Known {
		t.Errorf("verdict %q, known %v", v, v.Known)
	}
}

// settled reports whether the goroutines come down to n.
func settled(n int) bool {
	for range 6000 {
		if runtime.NumGoroutine() <= n {
			return true
		}
		timer := time.NewTimer(10 * time.Millisecond)
		<-timer.C
	}
	return false
}

func FuzzKernelTexts(f *testing.F) {
	for name, text := range usual() {
		f.Add(name, text)
	}
	f.Add("/proc/self/mountinfo", maskedProc)
	f.Add("/proc/self/cgroup", "1:name=systemd:/a:b\n::\n0::/../..\n")
	f.Add("/run/systemd/container", "docker\x1b[2J")
	f.Fuzz(func(t *testing.T, name, text string) {
		h := goodHost()
		h.Files = changed(map[string]string{name: text})
		for _, c := range ask(t.Context(), &h) {
			for _, s := range []string{c.Found, c.Reason, c.Mend} {
				if strings.IndexFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }) >= 0 {
					t.Errorf("%s: %q", c.Name, s)
				}
			}
		}
	})
}
