package plan

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var logins = []Login{
	{"*.corp.example", "for one label"}, {"**.deep.example:8443", "for many"}, {"git.corp.example", "it's $mine`"},
	{"github.com", "ghp_standin"}, {"github.com", "of another secret"}, {"gitlab.com", "glpat"}, {"[2001:db8::1]:8443", "six"},
}

// TestLoginHelper runs the helper as git does.
func TestLoginHelper(t *testing.T) {
	plan, err := Make(input(func(in *Input) { in.Logins = logins }))
	if err != nil {
		t.Fatal(err)
	}
	helper := filepath.Join(t.TempDir(), "helper")
	for _, m := range plan.Spec.Mounts {
		if m.Target == loginFile {
			if err := os.WriteFile(helper, m.Content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	ask := func(action, question string) string {
		t.Helper()
		cmd := exec.Command("sh", helper, action)
		cmd.Stdin = strings.NewReader(question)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%s %q: %v %s", action, question, err, out)
		}
		return string(out)
	}
	for host, want := range map[string]string{
		"github.com": "username=x-access-token\npassword=ghp_standin\n", "gitlab.com": "username=oauth2\npassword=glpat\n",
		"git.corp.example": "username=x-access-token\npassword=it's $mine`\n", "a.corp.example": "username=x-access-token\npassword=for one label\n",
		"a.b.corp.example": "", "corp.example": "", "a.deep.example:8443": "username=x-access-token\npassword=for many\n",
		"a.b.deep.example:8443": "username=x-access-token\npassword=for many\n", "a.deep.example": "", "[2001:db8::1]:8443": "username=x-access-token\npassword=six\n",
		"evil.example": "", "github.com.evil.example": "", "github.com:8443": "", "": "",
	} {
		if got := ask("get", "protocol=https\nhost="+host+"\npath=a=b\n\n"); got != want {
			t.Errorf("%s: %q, want %q", host, got, want)
		}
	}
	if got := ask("get", "protocol=https\nhost=github.com\nusername=me\nwwwauth[]=Basic realm=x\n\n"); got != "username=me\npassword=ghp_standin\n" {
		t.Errorf("with a name: %q", got)
	}
	for _, quiet := range []string{ask("get", "protocol=http\nhost=github.com\n\n"), ask("store", "protocol=https\nhost=github.com\n\n"), ask("erase", "protocol=https\nhost=github.com\n\n"), ask("get", "")} {
		if quiet != "" {
			t.Errorf("answered %q", quiet)
		}
	}
}

// TestGitGoesOverHTTPS has git say where it would go.
func TestGitGoesOverHTTPS(t *testing.T) {
	plan, err := Make(input(func(in *Input) { in.Logins = logins }))
	if err != nil {
		t.Fatal(err)
	}
	var env []string
	for _, kv := range plan.Spec.Env {
		if strings.HasPrefix(kv, "GIT_CONFIG_") {
			env = append(env, kv)
		}
	}
	got := map[string]string{}
	for _, remote := range []string{
		"git@github.com:acme/widget.git", "ssh://git@github.com/acme/widget", "ssh://git@ssh.github.com:443/acme/widget", "ssh://github.com/a/b", "ssh://git@github.com:22/a/b",
		"git@git.corp.example:a/b", "git@a.corp.example:a/b", "git@evil.example:a/b", "https://github.com/a/b", "git@github.com.evil.example:a/b",
	} {
		cmd := exec.Command("git", "ls-remote", "--get-url", remote)
		cmd.Env, cmd.Dir = append(env, "PATH="+os.Getenv("PATH"), "HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1"), t.TempDir()
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v %s", remote, err, out)
		}
		got[remote] = strings.TrimSpace(string(out))
	}
	want := map[string]string{
		"git@github.com:acme/widget.git": "https://github.com/acme/widget.git", "ssh://git@github.com/acme/widget": "https://github.com/acme/widget",
		"ssh://git@ssh.github.com:443/acme/widget": "https://github.com/acme/widget", "ssh://github.com/a/b": "https://github.com/a/b", "ssh://git@github.com:22/a/b": "https://github.com/a/b",
		"git@git.corp.example:a/b": "https://git.corp.example/a/b", "git@a.corp.example:a/b": "git@a.corp.example:a/b", "git@evil.example:a/b": "git@evil.example:a/b",
		"https://github.com/a/b": "https://github.com/a/b", "git@github.com.evil.example:a/b": "git@github.com.evil.example:a/b",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	without, err := Make(input(nil))
	if err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(without.Spec.Env, func(kv string) bool { return strings.Contains(kv, "insteadOf") || strings.Contains(kv, loginFile) }) {
		t.Error("without a login git is told of one")
	}
}
