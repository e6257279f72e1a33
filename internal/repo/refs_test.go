package repo

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestRefsAreRead where git puts them, in each arrangement, and compared.
func TestRefsAreRead(t *testing.T) {
	top := newRepo(t, filepath.Join(tempDir(t), "main"))
	git(t, top, "commit", "-q", "--allow-empty", "-m", "one")
	one := strings.TrimSpace(git(t, top, "rev-parse", "HEAD"))
	branch := strings.TrimSpace(git(t, top, "symbolic-ref", "HEAD"))
	git(t, top, "branch", "loose/deep")
	git(t, top, "tag", "v1")
	git(t, top, "update-ref", "refs/remotes/o/x", one)
	git(t, top, "symbolic-ref", "refs/remotes/o/HEAD", "refs/remotes/o/x")
	r, err := Look(top)
	if err != nil {
		t.Fatal(err)
	}
	before := r.Refs()
	want := map[string]string{branch: one, "refs/heads/loose/deep": one, "refs/tags/v1": one, "refs/remotes/o/x": one}
	if diff := cmp.Diff(want, before.at); diff != "" || !before.Known() {
		t.Fatalf("known %v (-want +got):\n%s", before.Known(), diff)
	}
	git(t, top, "pack-refs", "--all")
	if after := r.Refs(); !before.Same(after) {
		t.Errorf("packed they have moved: %+v", before.Moves(after))
	}
	git(t, top, "checkout", "-q", "--detach")
	git(t, top, "commit", "-q", "--allow-empty", "-m", "two")
	two := strings.TrimSpace(git(t, top, "rev-parse", "HEAD"))
	git(t, top, "branch", "-f", "loose/deep")
	git(t, top, "tag", "-d", "v1")
	moves := []Move{{"HEAD", "", two}, {"refs/heads/loose/deep", one, two}, {"refs/tags/v1", one, ""}}
	if diff := cmp.Diff(moves, before.Moves(r.Refs())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := r.Refs().Commits(); !slices.Equal(got, slices.Sorted(slices.Values([]string{one, two}))) {
		t.Errorf("commits %q", got)
	}

	git(t, top, "worktree", "add", "-q", "--detach", top+"/../linked", one)
	linked, err := Look(filepath.Join(filepath.Dir(top), "linked"))
	if err != nil {
		t.Fatal(err)
	}
	if at := linked.Refs().at; at["HEAD"] != one || at["refs/heads/loose/deep"] != two {
		t.Errorf("in a linked worktree %v", at)
	}
}

// TestRefsAreBounded: too many are said to be so, and none of them counts as
// deleted.
func TestRefsAreBounded(t *testing.T) {
	top := newRepo(t, filepath.Join(tempDir(t), "main"))
	git(t, top, "commit", "-q", "--allow-empty", "-m", "one")
	one := strings.TrimSpace(git(t, top, "rev-parse", "HEAD"))
	r, err := Look(top)
	if err != nil {
		t.Fatal(err)
	}
	known := r.Refs()
	var packed strings.Builder
	for i := range maxPacked / 60 {
		fmt.Fprintf(&packed, "%s refs/tags/many-%010d\n", one, i)
	}
	if err := os.WriteFile(filepath.Join(top, ".git", "packed-refs"), []byte(packed.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	many := r.Refs()
	if many.Known() || len(many.Moves(known)) > 0 {
		t.Errorf("known %v, moved %v", many.Known(), many.Moves(known))
	}
	if err := os.Remove(filepath.Join(top, ".git", "packed-refs")); err != nil {
		t.Fatal(err)
	}
	for i := range maxRefs + 1 {
		if err := os.WriteFile(filepath.Join(top, ".git/refs/tags", fmt.Sprint(i)), []byte(one+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if many := r.Refs(); many.Known() || len(many.at) > maxRefs {
		t.Errorf("known %v, %d read", many.Known(), len(many.at))
	}
}

// TestHostileRefsAreNoRefs: links, pipes and nonsense in place of references.
func TestHostileRefsAreNoRefs(t *testing.T) {
	top := newRepo(t, filepath.Join(tempDir(t), "main"))
	heads := filepath.Join(top, ".git/refs/heads")
	secret := filepath.Join(t.TempDir(), "secret")
	id := strings.Repeat("a", 40)
	for name, do := range map[string]func(path string) error{
		"link":     func(p string) error { return os.Symlink(secret, p) },
		"nonsense": func(p string) error { return os.WriteFile(p, []byte("--upload-pack=x\n"), 0o644) },
		"long":     func(p string) error { return os.WriteFile(p, []byte(strings.Repeat("a", 1<<20)), 0o644) },
		"option":   func(p string) error { return os.WriteFile(p, []byte("-"+id+"\n"), 0o644) },
	} {
		if err := do(filepath.Join(heads, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(secret, []byte(id+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	r, err := Look(top)
	if err != nil {
		t.Fatal(err)
	}
	if refs := r.Refs(); len(refs.at) != 1 { // main
		t.Errorf("read %v", refs.at)
	}
}
