package capability

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/mojoup/mojoup-node/pkg/sandbox/kerneltest"
)

// need skips a test that this machine cannot run, and fails it instead where
// kernel tests are obligatory.
func need(t *testing.T, ok bool, wanted, found string) {
	t.Helper()
	if !ok {
		kerneltest.Lacking(t, wanted, found)
	}
}

const childVariable = "MOJOUP_CAPABILITY_TEST_CHILD"

// inChild runs the calling test once more in a process of its own, prepared by
// attr, and reports its failure here. It returns true in that process.
func inChild(t *testing.T, value string, attr *syscall.SysProcAttr, files ...*os.File) bool {
	t.Helper()
	if os.Getenv(childVariable) != "" {
		return true
	}
	cmd := exec.CommandContext(t.Context(), copyOfTest(t), "-test.run=^"+t.Name()+"$", "-test.v", "-test.count=1")
	cmd.Env = append(os.Environ(), childVariable+"="+value)
	cmd.Dir = "/"
	cmd.SysProcAttr = attr
	cmd.ExtraFiles = files
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("in a process of its own: %v\n%s", err, out)
	} else if !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("did not run in a process of its own:\n%s", out)
	}
	t.Logf("in a process of its own:\n%s", out)
	return false
}

// copyOfTest is this test's program where any user may start it.
func copyOfTest(t *testing.T) string {
	t.Helper()
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(openDir(t), "capability.test")
	if err := os.WriteFile(path, self, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// openDir is a directory that any user may enter.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "mojoup-capability-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// asOrdinaryUser prepares a directory as root and runs body on it as uid 1000.
func asOrdinaryUser(t *testing.T, body func(t *testing.T, dir string), prepare func(dir string) error) {
	t.Helper()
	if dir := os.Getenv(childVariable); dir != "" {
		body(t, dir)
		return
	}
	need(t, os.Geteuid() == 0, "uid 0, to become another user", "an ordinary user")
	dir := openDir(t)
	if err := prepare(dir); err != nil {
		t.Fatal(err)
	}
	inChild(t, dir, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1000, Gid: 1000}})
}

func TestB04_LandlockOfThisKernel(t *testing.T) {
	version, err := landlockVersion()
	need(t, err == nil && version >= leastABI, "Landlock ABI 3", describe(version, err))
	before := descriptors(t)
	h := ThisHost(Options{})
	if c := checkLandlock(&h, facts{}); c.State != OK {
		t.Errorf("%s: %q, %q", c.State, c.Found, c.Reason)
	}
	for abi := 1; abi <= min(version, newestABI); abi++ {
		if err := createRuleset(abi); err != nil {
			t.Errorf("a ruleset of ABI %d: %v", abi, err)
		}
	}
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
	// What the kernel does not know must be refused, or the test above proves
	// nothing.
	if version < newestABI && rights(newestABI) != rights(version) {
		if createRuleset(newestABI) == nil {
			t.Errorf("a kernel of ABI %d took a ruleset of ABI %d", version, newestABI)
		}
	}
}

func TestRightsGrow(t *testing.T) {
	if got := rights(1); got != (rulesetAttr{fs: 1<<13 - 1}) {
		t.Errorf("ABI 1 has %+v", got)
	}
	if got := rights(leastABI); got != (rulesetAttr{fs: 1<<15 - 1}) {
		t.Errorf("ABI 3 has %+v", got)
	}
	if got := rights(newestABI); got != (rulesetAttr{fs: 1<<17 - 1, net: 15, scoped: 3}) {
		t.Errorf("ABI %d has %+v", newestABI, got)
	}
}

func describe(version int, err error) string {
	if err != nil {
		return err.Error()
	}
	return "ABI " + strconv.Itoa(version)
}

// descriptors counts what this process has open.
func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
