package repo

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestConditionalIncludes asks of each pattern what git itself does with it.
func TestConditionalIncludes(t *testing.T) {
	base := tempDir(t)
	top := newRepo(t, filepath.Join(base, "Work.d", "deep", "repo"))
	r, err := Look(top)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", base)
	write(t, filepath.Join(base, "more"), "[user]\n\tname = Included\n")
	config := filepath.Join(base, "gitconfig")
	matched := 0
	for _, condition := range []string{
		"gitdir:~/Work.d/", "gitdir:" + base + "/Work.d/", "gitdir:" + base + "/work.d/", "gitdir/i:~/work.D/", "gitdir/i:" + base + "/work.d/", "gitdir:./Work.d/",
		"gitdir:Work.d/", "gitdir:deep/", "gitdir:**/Work.d/", "gitdir:**/Work.d/**", "gitdir:~/*/deep/", "gitdir:~/*/repo/", "gitdir:~/**/repo/", "gitdir:" + top + "/.git",
		"gitdir:" + top, "gitdir:~/Work", "gitdir:ork.d/", "gitdir:Work.*/", "gitdir:~/other/", "gitdir:**", "gitdir:~/", "gitdir:/", "onbranch:none",
	} {
		write(t, config, "[user]\n\tname = Plain\n[includeIf \""+condition+"\"]\n\tpath = more\n")
		cmd := exec.Command("git", "-C", top, "config", "user.name")
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + base, "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=" + config}
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		want := strings.TrimSpace(string(out))
		got, _ := r.Author(config)
		if got == "Included" {
			matched++
		}
		if want != got {
			t.Errorf("%s: %q, git says %q", condition, got, want)
		}
	}
	if matched < 8 {
		t.Errorf("only %d matched", matched)
	}
}
