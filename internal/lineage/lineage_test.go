package lineage

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

// store is commits by name.
type store map[string]string

// commit makes one whose parents are those.
func (s store) commit(digits int, message string, parents ...string) string {
	text := "tree " + strings.Repeat("4", digits) + "\n"
	for _, p := range parents {
		text += "parent " + p + "\n"
	}
	text += "author a <a@a.example> 1 +0000\ncommitter a <a@a.example> 1 +0000\n\n" + message + "\nparent " + strings.Repeat("1", digits) + "\n"
	id := hashOf(digits, []byte(text))
	s[id] = text
	return id
}

func batch(id, text string) string { return fmt.Sprintf("%s commit %d\n%s\n", id, len(text), text) }

func read(texts ...string) *Commits {
	c := &Commits{}
	for i := range []byte(strings.Join(texts, "")) {
		_, _ = c.Write([]byte(strings.Join(texts, ""))[i : i+1]) // in the smallest parts there are
	}
	return c
}

func TestChainsAreProofs(t *testing.T) {
	for _, digits := range []int{40, 64} {
		s := store{}
		old := s.commit(digits, "old")
		side := s.commit(digits, "side")
		middle := s.commit(digits, "middle", old)
		merge := s.commit(digits, "merge", side, middle)
		other := s.commit(digits, "other", side)
		c := read(batch(merge, s[merge]), strings.Repeat("0", digits)+" missing\n", batch(middle, s[middle]), batch(other, s[other]))
		for _, want := range []struct {
			earlier, later string
			leads          bool
		}{{old, merge, true}, {middle, merge, true}, {old, old, true}, {old, other, false}, {merge, old, false}, {strings.Repeat("1", digits), merge, false}} {
			if got, err := c.Leads(want.earlier, want.later); got != want.leads || err != nil {
				t.Errorf("%d digits: %.6s to %.6s: %v, %v", digits, want.earlier, want.later, got, err)
			}
		}
	}
}

// TestForgedCommitsProveNothing: whoever writes a repository's objects can put
// any text under any name, and git shows it.
func TestForgedCommitsProveNothing(t *testing.T) {
	s := store{}
	old := s.commit(40, "old")
	fresh := s.commit(40, "rewritten")
	lie := s.commit(40, "rewritten, it says", old)
	c := read(batch(fresh, s[lie]))
	if leads, err := c.Leads(old, fresh); leads || err == nil {
		t.Errorf("%v %v", leads, err)
	}
}

func TestWhatIsNoAnswerProvesNothing(t *testing.T) {
	s := store{}
	old := s.commit(40, "old")
	fresh := s.commit(40, "new", old)
	for _, text := range []string{
		"", fresh, fresh + " commit 12", fresh + " tag 4\nabcd\n", fresh + " commit -1\n", fresh + " commit 99999999\n", strings.Repeat("x", 500),
		batch(fresh, s[fresh])[:100], strings.Replace(batch(fresh, s[fresh]), " commit", "  commit", 1),
	} {
		if leads, _ := read(text).Leads(old, fresh); leads {
			t.Errorf("%.80q proves something", text)
		}
	}
}

// TestRealCommits reads what git writes about commits of its own.
func TestRealCommits(t *testing.T) {
	dir := t.TempDir()
	sh := func(script string) string {
		cmd := exec.Command("sh", "-ec", script)
		cmd.Dir = dir
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v", script, err)
		}
		return string(out)
	}
	sh(`git init -q -b main .; git config user.name n; git config user.email n@n.example
for i in 1 2 3; do git commit -q --allow-empty -m $i; done
git checkout -q -b side HEAD~2; git commit -q --allow-empty -m s; git merge -q --no-edit main`)
	said, all := sh("git rev-list HEAD | git cat-file --batch"), strings.Fields(sh("git rev-list --reverse HEAD"))
	c := &Commits{}
	_, _ = c.Write([]byte(said))
	if leads, err := c.Leads(all[0], all[len(all)-1]); len(all) != 5 || !leads {
		t.Errorf("%d commits, %v, %v", len(all), leads, err)
	}
}

// FuzzCommits: what is kept has the name that it is called by.
func FuzzCommits(f *testing.F) {
	s := store{}
	old := s.commit(40, "old")
	fresh := s.commit(40, "new", old)
	f.Add([]byte(batch(fresh, s[fresh]) + batch(old, s[old])))
	f.Add([]byte(fresh + " commit 3\nabc\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		c := &Commits{}
		_, _ = c.Write(text)
		for id := range c.parents {
			if len(id) != 40 && len(id) != 64 {
				t.Fatalf("kept %q", id)
			}
		}
		if len(c.parents) > len(text)/10 {
			t.Fatalf("%d commits in %d bytes", len(c.parents), len(text))
		}
	})
}
