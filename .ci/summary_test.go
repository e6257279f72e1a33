package main

import (
	"fmt"
	"strings"
	"testing"
)

func TestSummary(t *testing.T) {
	const pass = `{"Action":"pass","Package":"m/mojoup-node/a","Test":"TestA"}` + "\n"
	skip := func(test, why string) string {
		return `{"Action":"output","Package":"a","Test":"` + test + `","Output":"    a_test.go:1: ` + why + `\n"}` + "\n" +
			`{"Action":"output","Package":"a","Test":"` + test + `","Output":"--- SKIP: ` + test + `\n"}` + "\n" +
			`{"Action":"skip","Package":"a","Test":"` + test + `"}` + "\n"
	}
	for name, tt := range map[string]struct {
		in      string
		obliged bool
		good    bool
		want    string
	}{
		"all well":        {pass, true, true, "1 passed, 0 failed, 0 skipped"},
		"nothing ran":     {"", false, false, "0 passed"},
		"skip":            {pass + skip("TestB", "wanted strace, found: none"), false, true, "a.TestB: a_test.go:1: wanted strace"},
		"forbidden skip":  {pass + skip("TestB", "wanted strace, found: none"), true, false, "skipped where nothing may be"},
		"another's skip":  {pass + skip("TestB", "wanted root, found user 1000"), true, true, "1 skipped"},
		"no Java":         {pass + skip("TestB/java", "wanted javac, found none"), true, true, "TestB/java: a_test.go:1: wanted javac, found none"},
		"soak":            {pass + skip("TestSoak", "wanted MOJOUP_SOAK"), true, true, "1 skipped"},
		"failure":         {pass + `{"Action":"output","Package":"a","Test":"TestB","Output":"no bread\n"}` + "\n" + `{"Action":"fail","Package":"a","Test":"TestB"}`, false, false, "no bread"},
		"does not build":  {pass + `{"Action":"build-output","ImportPath":"a","Output":"a.go:1: no\n"}` + "\n" + `{"Action":"fail","Package":"a"}`, false, false, "a.go:1: no"},
		"counted":         {`{"Action":"output","Package":"a","Test":"TestA","Output":"    a_test.go:1: counted: 7 loaves\n"}` + "\n" + `{"Action":"pass","Package":"a","Test":"TestA"}`, false, true, "a.TestA: 7 loaves"},
		"not of go test":  {pass + "weather\n", false, true, "weather"},
		"package's words": {pass + `{"Action":"output","Package":"a","Output":"panic: lost\n"}` + "\n" + `{"Action":"fail","Package":"a"}`, false, false, "panic: lost"},
		"no end":          {`{"Action":"output","Package":"a","Test":"TestB","Output":"panic: lost\n"}` + "\n" + `{"Action":"fail","Package":"a"}`, false, false, "\n\nfailed: a.TestB\n    panic: lost\n"},
		"told again": {`{"Action":"output","Package":"a","Test":"TestB/c","Output":"    a_test.go:1: no bread\n"}` + "\n" + `{"Action":"fail","Package":"a","Test":"TestB/c"}` + "\n" + `{"Action":"fail","Package":"a","Test":"TestB"}` + "\n" + `{"Action":"fail","Package":"a"}`, false, false,
			"\n\nfailed: a.TestB/c\n        a_test.go:1: no bread\n\npackages that failed: a\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			s := newSummary(&out)
			for line := range strings.Lines(tt.in) {
				s.read(strings.TrimSuffix(line, "\n"))
			}
			if good := s.close(tt.obliged); good != tt.good || !strings.Contains(out.String(), tt.want) {
				t.Errorf("good is %v, want %v; want %q in:\n%s", good, tt.good, tt.want, out.String())
			}
		})
	}
}

// TestUnsteady: few tests get a second chance, and none for a grave reason.
func TestUnsteady(t *testing.T) {
	fail := func(test, said string) string {
		return `{"Action":"output","Package":"a","Test":"` + test + `","Output":"` + said + `\n"}` + "\n" + `{"Action":"fail","Package":"a","Test":"` + test + `"}` + "\n"
	}
	const broken = `{"Action":"fail","Package":"a"}` + "\n"
	for name, tt := range map[string]struct{ in, want string }{
		"one":                {fail("TestB", "no bread") + broken, "map[a:[TestB]]"},
		"a subtest":          {fail("TestB/c.TestD", "no bread") + fail("TestB", "") + broken, "map[a:[TestB]]"},
		"three":              {fail("TestB", "") + fail("TestC", "") + fail("TestD", "") + broken, "map[a:[TestB TestC TestD]]"},
		"four":               {fail("TestB", "") + fail("TestC", "") + fail("TestD", "") + fail("TestE", "") + broken, "map[]"},
		"a race":             {fail("TestB", "WARNING: DATA RACE") + broken, "map[]"},
		"a panic":            {fail("TestB", "panic: lost") + broken, "map[]"},
		"it took too long":   {fail("TestB", "panic: test timed out after 40m0s") + broken, "map[]"},
		"it has no end":      {`{"Action":"output","Package":"a","Test":"TestB","Output":"fatal error: lost\\n"}` + "\n" + broken, "map[]"},
		"does not build":     {broken, "map[]"},
		"another one, too":   {fail("TestB", "") + broken + `{"Action":"fail","Package":"b"}` + "\n", "map[]"},
		"nothing has failed": {"", "map[]"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSummary(&strings.Builder{})
			if err := s.readAll(strings.NewReader(tt.in)); err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(s.unsteady()); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}
