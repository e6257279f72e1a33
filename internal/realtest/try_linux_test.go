package realtest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mojoup/mojoup-node/pkg/sandbox/kerneltest"
)

// TestTry runs what `make try` runs: what the README shows a session to be able
// to do, and not to be able to, is what it does here, and nothing is left.
func TestTry(t *testing.T) {
	kerneltest.Long(t)
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	script, err := os.ReadFile("../../packaging/try.sh")
	if err != nil {
		t.Fatal(err)
	}
	could := regexp.MustCompile(`(?m)^ +(could(?: not)? +.*)$`)
	lines := func(text string) (out []string) {
		for _, m := range could.FindAllStringSubmatch(text, -1) {
			out = append(out, m[1])
		}
		return out
	}
	want := lines(string(readme))
	if len(want) < 10 {
		t.Fatalf("the README shows %q", want)
	}
	_, agent, _ := strings.Cut(string(script), "<<'AGENT'\n")
	agent, _, ok := strings.Cut(agent, "\nAGENT\n")
	if !ok {
		t.Fatal("try.sh holds no agent")
	}
	everybody(t, func(t *testing.T, who somebody) {
		programs(t, "curl", "bash", "unshare")
		r := place(t, who, nil)
		node, err := binary()
		r.must(err)
		try := r.write("try.sh", string(script), 0o755)
		r.write("home/.ssh/key", "secret", 0o600)
		r.must(os.Mkdir(filepath.Join(r.dir, "tmp"), 0o700))
		r.own()
		res := r.outside("sh", try, node).with("TMPDIR=" + filepath.Join(r.dir, "tmp")).succeed()
		if diff := cmp.Diff(want, lines(res.stdout)); diff != "" {
			t.Errorf("(-README +done):\n%s\n%s", diff, res.all())
		}
		for _, said := range []string{"Agents run in a sandbox\n", "denied by policy", "enforced", "1 request was denied", "node: running"} {
			r.mention(res, said)
		}
		if left, err := os.ReadDir(filepath.Join(r.dir, "tmp")); err != nil || len(left) > 0 {
			t.Errorf("left in the temporary directory: %v, %v", left, err)
		}

		// What it could not, it could without a sandbox.
		r.write("repo/agent.sh", agent, 0o644)
		r.write("repo/.mojoup/policy.json", "{}", 0o644)
		r.own()
		r.outside("git", "config", "user.name", "n").succeed()
		r.outside("git", "config", "user.email", "n@n.example").succeed()
		outside := lines(r.outside("bash", "agent.sh").succeed().stdout)
		for _, line := range []string{"write a git hook that the host would run", "change git's configuration of the repository", "change the policy that it runs under", "read the keys in your home", "see the processes of the machine"} {
			if text := strings.Join(outside, "\n"); !regexp.MustCompile(`could +` + line).MatchString(text) {
				t.Errorf("without a sandbox it could not %s either:\n%s", line, text)
			}
		}
	})
}
