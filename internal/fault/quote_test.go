package fault

import (
	"os/exec"
	"testing"
)

func TestQuotedIsOneWordOfAShell(t *testing.T) {
	for _, s := range []string{"/srv/repo", "", "my repo", "it's", "a;b", "$HOME", "`id`", "é", "a\nb", `back\slash`, "-x", ";reboot", "$(touch pwned)", "`touch$IFSpwned`", "a'$(id)'b", "x&y|z(w)", "*?[a-z]", "~", "!!", "#", "{a,b}", "<>"} {
		out, err := exec.CommandContext(t.Context(), "sh", "-c", "printf %s "+Quoted(s)).Output()
		if s == "-x" {
			out, err = exec.CommandContext(t.Context(), "sh", "-c", "printf -- %s "+Quoted(s)).Output()
		}
		if err != nil || string(out) != s {
			t.Errorf("%q came out as %q, %v", s, out, err)
		}
	}
	if got := Quoted("/srv/a-b_1.git"); got != "/srv/a-b_1.git" {
		t.Errorf("a plain path was quoted: %s", got)
	}
}
