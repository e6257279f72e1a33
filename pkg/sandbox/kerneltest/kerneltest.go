// Package kerneltest promises that a test of the real kernel runs for real, or
// says why it did not: it skips with what was wanted and found, and fails
// instead where MOJOUP_REQUIRE_KERNEL=1.
package kerneltest

import (
	"flag"
	"os"
	"strconv"
	"testing"
)

// Obliged reports whether a test may not be skipped for what the machine lacks.
func Obliged() bool { return os.Getenv("MOJOUP_REQUIRE_KERNEL") == "1" }

// Require ends a test here where err says why this machine cannot run it.
// Wanted names what the test needs, as in "a user namespace".
func Require(tb testing.TB, wanted string, err error) {
	tb.Helper()
	if err != nil {
		Lacking(tb, wanted, err)
	}
}

// Lacking ends a test of something that the machine does not have. Found is
// what it has instead.
func Lacking(tb testing.TB, wanted string, found any) {
	tb.Helper()
	if Obliged() {
		tb.Fatalf("wanted %s, found: %v", wanted, found)
	}
	tb.Skipf("wanted %s, found: %v", wanted, found)
}

// ShortOfLong reports whether this run leaves the long tests out, so that a
// plain "go test ./..." stays under a minute.
func ShortOfLong() bool { return os.Getenv("MOJOUP_TEST_LONG") != "1" && !Obliged() }

// Rounds is how often a test repeats what goes wrong only once in a while: all
// times where the long tests run, and fewer in a plain run, which still tries.
func Rounds(all, plain int) int {
	if ShortOfLong() {
		return plain
	}
	return all
}

// Together lets that many parallel tests of a package run at once in a plain
// run, where nobody has asked for another number: of a package whose tests wait
// more than they compute. For TestMain.
func Together(tests int) {
	flag.Parse()
	asked := !ShortOfLong()
	flag.Visit(func(f *flag.Flag) { asked = asked || f.Name == "test.parallel" })
	if !asked {
		_ = flag.Set("test.parallel", strconv.Itoa(tests))
	}
}

// Long ends a test here that takes many seconds, unless MOJOUP_TEST_LONG=1 or
// MOJOUP_REQUIRE_KERNEL=1 asks for it, as "make test" does.
func Long(tb testing.TB) {
	tb.Helper()
	if ShortOfLong() {
		tb.Skip("wanted MOJOUP_TEST_LONG=1, as make test sets it, found a plain run: takes long")
	}
}
