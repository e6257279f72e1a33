package sandboxtest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/sandbox/kerneltest"
	"github.com/mojoup/mojoup-node/pkg/sandbox/sandboxtest/escape"
)

// processLimit is large enough for the attack program, whose runtime has
// threads, and small enough to be reached quickly.
const processLimit = 256

func chownArg(p *place) string { return fmt.Sprintf("%d:%d", p.id.UID, p.id.GID) }

// attackProgram is the built program, in a directory of the host that may be
// mounted.
func attackProgram(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sandboxtest-attack-")
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	must(t, os.Chmod(dir, 0o755))
	program := filepath.Join(dir, "attack")
	if built := os.Getenv("MOJOUP_TEST_ATTACK"); built != "" {
		content, err := os.ReadFile(built)
		must(t, err)
		must(t, os.WriteFile(program, content, 0o755))
		return program
	}
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", program, "github.com/mojoup/mojoup-node/pkg/sandbox/sandboxtest/escape/attack")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building the attack program: %v\n%s", err, out)
	}
	must(t, os.Chmod(program, 0o755))
	return program
}

// A terrain is one layout of the repository for the table of escapes.
type terrain struct {
	name   string
	layout escape.Layout
	make   func(t *testing.T, p *place) (spec sandbox.Spec, common, own string)
}

func (s *suite) terrains() []terrain {
	return []terrain{
		{"MainTree", escape.MainTree, func(t *testing.T, p *place) (sandbox.Spec, string, string) {
			spec := s.spec(t, p)
			spec.Protect = p.mainTree(t)
			git := filepath.Join(p.repo, ".git")
			return spec, git, git
		}},
		{"Worktree", escape.Worktree, s.worktreeSpec},
	}
}

// testEscapes makes every attempt of the table, in each layout.
func testEscapes(t *testing.T, s *suite) {
	attack := attackProgram(t)
	for _, land := range s.terrains() {
		t.Run(land.name, func(t *testing.T) {
			attempts := escape.For(land.layout)
			if len(attempts) < 60 {
				t.Fatalf("only %d attempts", len(attempts))
			}
			if !kerneltest.ShortOfLong() { // else TestAttemptsWorkOutside shows it, once for all engines
				t.Run("Outside", func(t *testing.T) { s.showOutside(t, land, attack) })
			}
			t.Run("Inside", func(t *testing.T) {
				p := s.newPlace(t)
				spec, common, own := land.make(t, p)
				spec = readOnly(spec, filepath.Dir(attack))
				spec.Limits.Processes = processLimit
				// The arena is made first: its setuid program and socket are
				// there before the sandbox is, as they would be.
				a := stage(t, p, attack, common, own)
				b := s.open(t, spec)
				results := try(t, attempts, a, b.runner(attack))
				s.judge(t, land.name, attempts, results)
				wantTold(t, attempts, results, b.Sandbox)
			})
		})
	}
}

// showOutside wants that what the table counts on works without a sandbox.
func (s *suite) showOutside(t *testing.T, land terrain, attack string) {
	p := s.newPlace(t)
	_, common, own := land.make(t, p)
	a := stage(t, p, attack, common, own)
	shown := outside(escape.For(land.layout))
	s.wantShown(t, shown, try(t, shown, a, hostRunner(p, attack)))
	shown = slices.DeleteFunc(escape.For(land.layout), func(a escape.Attempt) bool { return !a.Elsewhere() })
	s.wantShown(t, shown, try(t, shown, a, func(ctx context.Context, args []string) ([]byte, error) {
		return hostRunner(p, attack)(ctx, append([]string{"run-own"}, args[1:]...))
	}))
}

func (s *suite) wantShown(t *testing.T, shown []escape.Attempt, results []escape.Result) {
	t.Helper()
	for i, r := range results {
		t.Logf("%-24s %s", r.Name, r.Outcome)
		if wrong := shown[i].Shown(r); wrong != "" {
			t.Error(wrong)
		}
	}
}

// judge compares with the table and with what the engine is known to lack.
func (s *suite) judge(t *testing.T, land string, attempts []escape.Attempt, results []escape.Result) {
	t.Helper()
	for i, r := range results {
		t.Logf("%-24s %s", r.Name, r.Outcome)
		wrong := attempts[i].Inside(r)
		reason, excepted := s.options.Except[r.Name]
		if !excepted {
			reason, excepted = s.options.Except[land+"/"+r.Name]
		}
		switch {
		case wrong == "" && excepted && attempts[i].Held(r.Outcome):
			t.Errorf("%s holds, although it is excepted: %s", r.Name, reason)
		case wrong != "" && excepted:
			t.Logf("not held: %s: %s", r.Name, reason)
		case wrong != "":
			t.Error(wrong)
		}
	}
}

// wantTold wants that an engine which tells of refused calls has told of those
// of the table, and of whose they were.
func wantTold(t *testing.T, attempts []escape.Attempt, results []escape.Result, b sandbox.Sandbox) {
	t.Helper()
	teller, tells := b.(sandbox.Teller)
	if !tells {
		return
	}
	told := map[string]bool{}
	list, _ := teller.Refusals()
	for _, r := range list {
		told[r.Call] = told[r.Call] || r.Program == "attack" || r.Program == ""
		if r.Count < 1 || r.Tried == "" || r.Answer == "" {
			t.Errorf("half told: %+v", r)
		}
	}
	for i, a := range attempts {
		if a.Call != "" && results[i].Outcome != escape.NoArena && !told[a.Call] {
			t.Errorf("%s was not told: %s %s", a.Name, a.Call, results[i].Outcome)
		}
	}
}

// outside are the attempts that must be shown to work.
func outside(all []escape.Attempt) []escape.Attempt {
	var shown []escape.Attempt
	for _, a := range all {
		if a.Outside == "" {
			shown = append(shown, a)
		}
	}
	return shown
}

func stage(t *testing.T, p *place, attack, common, own string) *escape.Staged {
	t.Helper()
	dir := filepath.Join(p.dir, "arena")
	must(t, os.Mkdir(dir, 0o755))
	must(t, os.Chown(dir, p.id.UID, p.id.GID))
	a, err := escape.Stage(escape.StageOptions{
		Dir: dir, Attack: attack, Repo: p.repo, GitDir: own, Common: common,
		Held: filepath.Join(p.repo, ".mojoup"),
		UID:  p.id.UID, GID: p.id.GID, Proxy: proxyAddress, Limit: processLimit,
	})
	must(t, err)
	t.Cleanup(a.Close)
	return a
}

func try(t *testing.T, attempts []escape.Attempt, a *escape.Staged, run escape.Runner) []escape.Result {
	t.Helper()
	results, err := escape.Try(deadline(t), attempts, &a.Arena, run)
	must(t, err)
	return results
}

// hostRunner runs the program as the session's user, unconfined.
func hostRunner(p *place, attack string) escape.Runner {
	return func(ctx context.Context, args []string) ([]byte, error) {
		cmd := exec.CommandContext(ctx, attack, args...)
		cmd.Dir = "/"
		p.asUser(cmd)
		var errs bytes.Buffer
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, errs.String())
		}
		return out, err
	}
}

// runner runs it as a command of the sandbox.
func (b *box) runner(attack string) escape.Runner {
	return func(_ context.Context, args []string) ([]byte, error) {
		r, err := b.try(sandbox.Command{Argv: append([]string{attack}, args...)}, nil)
		if err == nil && r.Code != 0 {
			err = fmt.Errorf("exit %d: %s", r.Code, r.err)
		}
		return []byte(r.out), err
	}
}
