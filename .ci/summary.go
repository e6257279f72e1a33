// The command summary reads `go test -json` and promises that nothing that
// failed or was skipped goes unread: a failing test's output is shown at once,
// every skipped test is named with its reason, and the last line counts them.
// What a passing test has counted, on a line with "counted:", is shown too.
// What failed is told again at the very end, shortened: of a long log, the end
// is what people are shown.
// Where MOJOUP_REQUIRE_KERNEL=1, a skip that is not in its list is a failure.
// With -again, the few tests that failed among all the others are run by
// themselves, twice. What then passes is told last as unsteady: a defect to
// mend, which does not stop what has nothing to do with it.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
)

// elsewhere are the skips that hide nothing, each with its cause.
var elsewhere = []*regexp.Regexp{
	regexp.MustCompile(`^\S*/?Test\S*(Tools|Soak)`),                                 // make test-tools, make soak
	regexp.MustCompile(`want(ed|s) (root|user 0|an ordinary user)`),                 // another run of the same tests is that user's
	regexp.MustCompile(`x32 is amd64.s`),                                            // this machine is the other one
	regexp.MustCompile(`wanted (cargo|mvn), found none`),                            // a registry that this machine does not use
	regexp.MustCompile(`wanted (java|javac|keytool), found none`),                   // a language that this machine does not have
	regexp.MustCompile(`wanted MOJOUP_TEST_(GATEWAY|OPENSHELL_PROTOS), found none`), // cannot be had everywhere: the double and the SDK are tested
	regexp.MustCompile(`ordinary process leaves its orphans`),                       // an engine without a sandbox has no init
	regexp.MustCompile(`Fuzz\S+.*positions are not comparable`),                     // what an input is, not what a machine lacks
}

// An event is one line of `go test -json`.
type event struct {
	Action, Package, ImportPath, Test, Output string
	Elapsed                                   float64
}

// A summary is what has been read so far.
type summary struct {
	out                     io.Writer
	said                    map[string][]string // by test, as long as it runs
	passed, failed, skipped int
	broken                  []string // packages
	failures                []failure
	skips                   []string // name and reason
	counts                  []string // what passing tests have counted
}

// A failure is a test, or a package without one, that failed.
type failure struct {
	name string
	said []string
}

// read takes one line. What is no event is shown as it is.
func (s *summary) read(line string) {
	var e event
	if json.Unmarshal([]byte(line), &e) != nil || e.Action == "" {
		fmt.Fprintln(s.out, line)
		return
	}
	pkg := e.Package
	if i := strings.Index(pkg, "mojoup-node/"); i >= 0 {
		pkg = pkg[i+len("mojoup-node/"):]
	}
	key := pkg + " " + e.Test
	switch e.Action {
	case "output":
		s.said[key] = append(s.said[key], e.Output)
	case "build-output":
		fmt.Fprint(s.out, e.Output)
	case "pass", "fail", "skip":
		s.end(e, pkg, s.said[key])
		delete(s.said, key)
	}
}

func (s *summary) end(e event, pkg string, said []string) {
	switch {
	case e.Test == "" && e.Action == "fail":
		s.unended(pkg)
		s.broken = append(s.broken, pkg)
		s.failures = append(s.failures, failure{pkg, said})
		fmt.Fprintf(s.out, "FAIL  %-36s %6.1fs\n%s", pkg, e.Elapsed, strings.Join(said, ""))
	case e.Test == "" && e.Action == "pass":
		fmt.Fprintf(s.out, "ok    %-36s %6.1fs\n", pkg, e.Elapsed)
	case e.Test == "":
	case e.Action == "pass":
		s.passed++
		for _, line := range said {
			if _, what, ok := strings.Cut(line, "counted: "); ok {
				s.counts = append(s.counts, pkg+"."+e.Test+": "+strings.TrimSpace(what))
			}
		}
	case e.Action == "skip":
		s.skipped++
		s.skips = append(s.skips, pkg+"."+e.Test+": "+reason(said))
	default:
		s.failed++
		s.failures = append(s.failures, failure{pkg + "." + e.Test, said})
		fmt.Fprintf(s.out, "\n--- FAIL %s %s (%.1fs)\n%s\n", pkg, e.Test, e.Elapsed, strings.Join(said, ""))
	}
}

// unended tells of the tests of a package that came to no end, since the whole
// package ended with them: what it died of is what one of them said last.
func (s *summary) unended(pkg string) {
	for _, key := range slices.Sorted(maps.Keys(s.said)) {
		of, test, _ := strings.Cut(key, " ")
		if of != pkg || test == "" {
			continue
		}
		said := s.said[key]
		delete(s.said, key)
		s.failed++
		s.failures = append(s.failures, failure{pkg + "." + test, said})
		fmt.Fprintf(s.out, "\n--- NO END %s %s\n%s\n", pkg, test, strings.Join(said, ""))
	}
}

// telling are the lines of a failing test for which it failed.
var telling = regexp.MustCompile(`_test\.go:\d+:|\bFAIL: |^panic: |^fatal error: |^signal: |^exit status |DATA RACE|\[no output\]`)

// brief is what a failing test said, as far as it tells why: the telling lines
// with some before them, or else the end.
func (f failure) brief() string {
	const before, after, most = 12, 6, 60
	lines := slices.DeleteFunc(slices.Clone(f.said), func(line string) bool {
		line = strings.TrimSpace(line)
		return strings.HasPrefix(line, "=== ") || strings.HasPrefix(line, "--- PASS")
	})
	wanted := make([]bool, len(lines))
	for i, line := range lines {
		if telling.MatchString(line) {
			for j := max(0, i-before); j < min(len(lines), i+after); j++ {
				wanted[j] = true
			}
		}
	}
	var told []string
	for i, line := range lines {
		if wanted[i] || !slices.Contains(wanted, true) {
			told = append(told, "    "+strings.TrimRight(line, "\n")+"\n")
		}
	}
	return strings.Join(told[max(0, len(told)-most):], "")
}

// again tells what failed: the innermost tests only, as what is around them
// failed for their sake.
func (s *summary) again() {
	for _, f := range s.failures {
		inner := slices.ContainsFunc(s.failures, func(other failure) bool {
			return strings.HasPrefix(other.name, f.name+"/") || strings.HasPrefix(other.name, f.name+".Test")
		})
		if !inner {
			fmt.Fprintf(s.out, "\nfailed: %s\n%s", f.name, f.brief())
		}
	}
}

// reason is the last thing that a skipped test said.
func reason(said []string) string {
	for _, line := range slices.Backward(said) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "---") && !strings.HasPrefix(line, "===") {
			return line
		}
	}
	return "no reason"
}

// foreign are the skips that hide something.
func (s *summary) foreign() []string {
	return slices.DeleteFunc(slices.Clone(s.skips), func(skip string) bool {
		return slices.ContainsFunc(elsewhere, func(r *regexp.Regexp) bool { return r.MatchString(skip) })
	})
}

// close says what there was and reports whether all is well.
func (s *summary) close(obliged bool) bool {
	slices.Sort(s.skips)
	if len(s.skips) > 0 {
		fmt.Fprintf(s.out, "\nskipped, and why:\n  %s\n", strings.Join(slices.Compact(s.skips), "\n  "))
	}
	if len(s.counts) > 0 {
		fmt.Fprintf(s.out, "\ncounted:\n  %s\n", strings.Join(s.counts, "\n  "))
	}
	good := s.failed == 0 && len(s.broken) == 0 && s.passed > 0
	if bad := s.foreign(); obliged && len(bad) > 0 {
		fmt.Fprintf(s.out, "\nskipped where nothing may be (MOJOUP_REQUIRE_KERNEL=1):\n  %s\n", strings.Join(bad, "\n  "))
		good = false
	}
	s.again()
	if len(s.broken) > 0 {
		fmt.Fprintf(s.out, "\npackages that failed: %s\n", strings.Join(s.broken, ", "))
	}
	fmt.Fprintf(s.out, "\n%d passed, %d failed, %d skipped\n", s.passed, s.failed, s.skipped)
	return good
}

// mostAgain is how many tests may have failed for a second chance. More are no
// accident.
const mostAgain = 3

// grave is what no second chance is given for.
var grave = regexp.MustCompile(`DATA RACE|^panic: |^fatal error: |test timed out`)

// unsteady lists the tests that may be run again, by package; none where there
// are too many, or one failed for a grave reason, or a package without a test.
func (s *summary) unsteady() map[string][]string {
	byPackage, count := map[string][]string{}, 0
	for _, f := range s.failures {
		if slices.ContainsFunc(f.said, grave.MatchString) {
			return nil
		}
		pkg, test, isTest := strings.Cut(f.name, ".Test")
		if test, _, _ = strings.Cut(test, "/"); !isTest || slices.Contains(byPackage[pkg], "Test"+test) {
			continue
		}
		byPackage[pkg] = append(byPackage[pkg], "Test"+test)
		count++
	}
	for _, pkg := range s.broken {
		if len(byPackage[pkg]) == 0 {
			return nil
		}
	}
	if count > mostAgain {
		return nil
	}
	return byPackage
}

// secondChance runs those tests twice more, each package alone, and reports
// whether they passed.
func secondChance(out io.Writer, tests map[string][]string) bool {
	for _, pkg := range slices.Sorted(maps.Keys(tests)) {
		names := strings.Join(tests[pkg], "|")
		fmt.Fprintf(out, "\nonce more, and twice: %s of %s\n", names, pkg)
		cmd := exec.Command(cmp.Or(os.Getenv("GO"), "go"), "test", "-race", "-count=2", "-timeout=20m", "-json", "-run", "^("+names+")$", "./"+pkg)
		cmd.Stderr = os.Stderr
		said, err := cmd.StdoutPipe()
		if err != nil || cmd.Start() != nil {
			return false
		}
		s := newSummary(out)
		readErr := s.readAll(said)
		if cmd.Wait() != nil || readErr != nil || !s.close(false) {
			return false
		}
	}
	for _, pkg := range slices.Sorted(maps.Keys(tests)) {
		fmt.Fprintf(out, "\nunsteady: %s of %s failed among the others, as told above, and passed twice alone\n", strings.Join(tests[pkg], ", "), pkg)
	}
	return true
}

func newSummary(out io.Writer) *summary { return &summary{out: out, said: map[string][]string{}} }

func (s *summary) readAll(from io.Reader) error {
	in := bufio.NewReader(from)
	for {
		line, err := in.ReadString('\n')
		if line != "" {
			s.read(strings.TrimSuffix(line, "\n"))
		}
		switch err {
		case nil:
		case io.EOF:
			return nil
		default:
			return err
		}
	}
}

func main() {
	again := flag.Bool("again", false, "run the few tests that failed a second time, alone")
	flag.Parse()
	obliged := os.Getenv("MOJOUP_REQUIRE_KERNEL") == "1"
	s := newSummary(os.Stdout)
	if err := s.readAll(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "reading the results:", err)
		os.Exit(1)
	}
	if s.close(obliged) {
		return
	}
	tests := s.unsteady()
	if hidden := obliged && len(s.foreign()) > 0; !*again || hidden || len(tests) == 0 || !secondChance(os.Stdout, tests) {
		os.Exit(1)
	}
}
