package kerneltest

import (
	"errors"
	"fmt"
	"testing"
)

// ending notes how a test was ended, at first: it does not really end.
type ending struct {
	testing.TB
	how string
}

func (e *ending) Helper()                   {}
func (e *ending) Skip(a ...any)             { e.end("skip") }
func (e *ending) Fatalf(f string, a ...any) { e.end("fail: " + fmt.Sprintf(f, a...)) }
func (e *ending) Skipf(f string, a ...any)  { e.end("skip: " + fmt.Sprintf(f, a...)) }

func (e *ending) end(how string) {
	if e.how == "" {
		e.how = how
	}
}

func TestEndings(t *testing.T) {
	absent := errors.New("no such thing")
	for name, tt := range map[string]struct {
		oblige, long string
		end          func(testing.TB)
		want         string
	}{
		"nothing lacks":            {"1", "", func(tb testing.TB) { Require(tb, "x", nil) }, ""},
		"skipped":                  {"", "", func(tb testing.TB) { Require(tb, "x", absent) }, "skip: wanted x, found: no such thing"},
		"long does not oblige":     {"", "1", func(tb testing.TB) { Lacking(tb, "x", "y") }, "skip: wanted x, found: y"},
		"obliged":                  {"1", "", func(tb testing.TB) { Require(tb, "x", absent) }, "fail: wanted x, found: no such thing"},
		"obliged by nothing but 1": {"0", "", func(tb testing.TB) { Lacking(tb, "x", "y") }, "skip: wanted x, found: y"},
		"long in a plain run":      {"", "", Long, "skip"},
		"long as asked":            {"", "1", Long, ""},
		"long where obliged":       {"1", "", Long, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("MOJOUP_REQUIRE_KERNEL", tt.oblige)
			t.Setenv("MOJOUP_TEST_LONG", tt.long)
			e := &ending{TB: t}
			tt.end(e)
			if e.how != tt.want {
				t.Errorf("ended by %q, want %q", e.how, tt.want)
			}
		})
	}
}
