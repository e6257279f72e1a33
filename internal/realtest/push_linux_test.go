package realtest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// identity is who commits in a script.
const identity = `
git config --global user.name n
git config --global user.email n@n.example
git config --global gc.auto 0
`

// A forge is git's own server behind a password that is a canary.
type forge struct {
	r    *rig
	root string
	port string
	mu   sync.Mutex
	// mu guards what follows.
	seen map[string]bool // what came as a password, or "" where none did
}

func newForge(r *rig, repositories ...string) *forge {
	f := &forge{r: r, seen: map[string]bool{}}
	root, backend := r.gitRepositories(repositories...)
	f.root = root
	f.port = r.serve("127.0.0.1:0", http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		_, password, ok := q.BasicAuth()
		f.mu.Lock()
		f.seen[password] = true
		f.mu.Unlock()
		if !ok || password != canaries["ENV_KEY"] {
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, "who are you?")
			return
		}
		backend.ServeHTTP(w, q)
	}), gitName)
	out, err := r.command(canaries["ENV_KEY"], nil, "secret", "set", "GIT_TOKEN", "--host", gitName+":"+f.port)
	if err != nil {
		r.t.Fatalf("%v %s", err, out)
	}
	return f
}

// url is that of a repository.
func (f *forge) url(name string) string { return "https://" + gitName + ":" + f.port + "/" + name }

// is what a reference of a repository leads to, or "".
func (f *forge) is(repository, ref string) string {
	out, err := exec.Command("git", "-c", "safe.directory=*", "-C", filepath.Join(f.root, repository), "rev-parse", "-q", "--verify", ref).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// policy lets everything be fetched, and agents' branches and new tags of one
// repository be pushed.
func (f *forge) policy() string {
	return fmt.Sprintf(`{"version": 1, "secrets": ["GIT_TOKEN"], "network": {"rules": [
		{"name": "fetch", "hosts": [%[1]q], "ports": [%[2]s], "addresses": ["127.0.0.0/8"]},
		{"name": "work", "hosts": [%[1]q], "ports": [%[2]s], "addresses": ["127.0.0.0/8"], "paths": ["/acme/widget.git/**"], "push": ["refs/heads/agent/**", "refs/tags/**"]}
	]}}`, gitName, f.port)
}

// pushScript tries one push after the other; each ends with a line that says
// how it went.
const pushScript = identity + `
try() { name=$1; shift; if "$@" >/tmp/said 2>&1; then echo "DONE $name"; else echo "REFUSED $name"; fi; sed "s/^/$name| /" /tmp/said; }
commit() { git commit -q --allow-empty -m "$1"; }
git fetch -q origin
git checkout -q --no-track -b work origin/main
commit one
try create git push origin HEAD:refs/heads/agent/x
commit two
try forward git push origin HEAD:refs/heads/agent/x
git checkout -q --detach
git commit -q --amend --allow-empty -m rewritten
try forced git push --force origin HEAD:refs/heads/agent/x
try lease git push --force-with-lease origin +HEAD:refs/heads/agent/x
git checkout -q work
try delete git push origin :refs/heads/agent/x
try elsewhere git push origin HEAD:refs/heads/main
try other git push "$1" HEAD:refs/heads/agent/x
git tag v1
try tag git push origin v1
commit three
git tag -f v1 >/dev/null
try retag git push --force origin v1
try atomic git push --atomic origin HEAD:refs/heads/agent/y HEAD:refs/heads/main
try several git push origin HEAD:refs/heads/agent/y HEAD:refs/heads/main
try option git push -o ci.skip origin HEAD:refs/heads/agent/y
try mirror git push --mirror origin
head -c 3000000 /dev/urandom >big; git add big; git commit -q -m big
try large git push origin HEAD:refs/heads/agent/big
try old-http git -c http.version=HTTP/1.1 push origin HEAD:refs/heads/agent/http1
head -c 3000000 /dev/urandom >big; git add big; git commit -q -m bigger
try large-refused git push origin HEAD:refs/heads/main
try large-refused-1 git -c http.version=HTTP/1.1 push origin HEAD:refs/heads/main
try merge sh -c 'git checkout -q --detach origin/agent/x && git merge -q --no-edit work && git push origin HEAD:refs/heads/agent/x'
git clone -q "$2" /tmp/clone
cd /tmp/clone
commit elsewhere
try clone-new git push origin HEAD:refs/heads/agent/clone
commit more
try clone-forward git push origin HEAD:refs/heads/agent/clone
`

func TestD19b_PushesAreJudgedByReference(t *testing.T) {
	everywhere(t, func(t *testing.T, who somebody) {
		r := newRig(t, who, map[string]string{gitName: "127.0.0.1"})
		f := newForge(r, "acme/widget.git", "acme/other.git")
		// Reached by ssh, as remotes often are.
		r.outside("git", "-C", r.repo, "remote", "add", "origin", "git@"+gitName+":acme/widget.git").succeed()
		res := r.inside(f.policy(), "bash", "-c", pushScript, "bash", f.url("acme/other.git"), f.url("acme/widget.git")).succeed()
		for name, want := range map[string]struct {
			done bool
			said string
		}{
			"create":          {true, "agent/x"},
			"forward":         {true, "agent/x"},
			"forced":          {false, "not proved to be one: what the server has is no ancestor of it"},
			"lease":           {false, "not proved to be one"},
			"delete":          {false, "no reference to be deleted"},
			"elsewhere":       {false, "allows pushes to other references only: refs/heads/agent/** and refs/tags/**"},
			"other":           {false, "allows other paths only: /acme/widget.git/**"},
			"tag":             {true, "v1"},
			"retag":           {false, "none that is there to be moved"},
			"atomic":          {false, "another reference of this push was refused"},
			"several":         {false, "another reference of this push was refused"},
			"option":          {false, "push without them"},
			"mirror":          {false, "[remote rejected] main (denied by policy, id "},
			"large":           {true, "agent/big"},
			"old-http":        {true, "agent/http1"},
			"large-refused":   {false, "[remote rejected] HEAD -> main (denied by policy, id "},
			"large-refused-1": {false, "[remote rejected] HEAD -> main (denied by policy, id "},
			"merge":           {true, "agent/x"},
			"clone-new":       {true, "agent/clone"},
			"clone-forward":   {false, "not in the session's repository"},
		} {
			word := "REFUSED "
			if want.done {
				word = "DONE "
			}
			said := saidOf(res.stdout, name)
			if !strings.Contains(res.stdout, word+name+"\n") || !strings.Contains(said, want.said) {
				t.Errorf("%s: want %s and %q, got\n%s", name, word, want.said, said)
			}
			if !want.done && (!strings.Contains(said, "remote: This request was denied by policy") || !strings.Contains(said, "  id ")) {
				t.Errorf("%s: the agent is not told:\n%s", name, said)
			}
		}
		if got := f.is("acme/widget.git", "refs/heads/main"); got == "" || got != f.is("acme/other.git", "refs/heads/main") {
			t.Errorf("main has moved to %s", got)
		}
		for ref, there := range map[string]bool{"refs/heads/agent/x": true, "refs/heads/agent/y": false, "refs/heads/agent/big": true, "refs/tags/v1": true} {
			if (f.is("acme/widget.git", ref) != "") != there {
				t.Errorf("%s: there %v, want %v", ref, !there, there)
			}
		}
		if f.is("acme/other.git", "refs/heads/agent/x") != "" {
			t.Error("another repository was pushed to")
		}
		f.recorded(t)
		if t.Failed() {
			t.Logf("%s\n%s", res.stdout, res.stderr)
		}
	}, older...)
}

// saidOf is what one try said.
func saidOf(out, name string) string {
	var b strings.Builder
	for line := range strings.Lines(out) {
		if rest, ok := strings.CutPrefix(line, name+"| "); ok {
			b.WriteString(rest)
		}
	}
	return b.String()
}

// recorded looks for the verdicts of the session's pushes in its record.
func (f *forge) recorded(t *testing.T) {
	t.Helper()
	out, err := f.r.command("", nil, "session", "list", "--past", "--json")
	f.r.must(err)
	var list []struct{ ID string }
	if err := json.Unmarshal([]byte(out), &list); err != nil || len(list) == 0 {
		t.Fatalf("%v: %s", err, out)
	}
	for _, args := range [][]string{{"session", "show", list[0].ID}, {"session", "logs", list[0].ID}} {
		out, err := f.r.command("", nil, args...)
		f.r.must(err)
		for _, want := range []string{"refs/heads/main: rule \"work\" of the command line allows pushes to other references only", "creates refs/heads/agent/big", "refs/tags/v1: rule"} {
			if !strings.Contains(out, want) {
				t.Errorf("%v has no %q:\n%s", args, want, out)
			}
		}
	}
}

// TestGitSignsInWithAStandIn: git inside is given a password by itself, which
// is none, for the hosts that a token goes to.
func TestGitSignsInWithAStandIn(t *testing.T) {
	everywhere(t, func(t *testing.T, who somebody) {
		r := newRig(t, who, map[string]string{gitName: "127.0.0.1", plainName: "127.0.0.1"})
		f := newForge(r, "acme/widget.git", "acme/part.git")
		r.outside("git", "-C", r.repo, "remote", "add", "origin", "ssh://git@"+gitName+"/acme/widget.git").succeed()
		res := r.inside(f.policy(), "bash", "-ec", identity+`
fill() { printf 'protocol=%s\nhost=%s\n\n' "$1" "$2" | git credential fill 2>&1 | grep -v '^protocol\|^host' || true; }
echo "mine $(fill https "$1" | tr '\n' ' ')"
test "$(fill https "$1" | sed -n 's/^password=//p')" = "$GIT_TOKEN" && echo is the stand-in
echo "plain $(fill http "$1" | tr '\n' ' ')"
echo "else $(fill https else.example | tr '\n' ' ')"
echo "named $(printf 'protocol=https\nhost=%s\nusername=me\n\n' "$1" | git credential fill | sed -n 's/^username=//p')"
printf 'protocol=https\nhost=%s\nusername=a\npassword=b\n\n' "$1" | git credential approve
printf 'protocol=https\nhost=%s\n\n' "$1" | git credential reject
env -u GIT_TOKEN git fetch -q origin && echo without the variable
git remote get-url origin
git init -q /tmp/super && cd /tmp/super
git -c protocol.file.allow=always submodule --quiet add "git@$2:acme/part.git" part
git commit -q -m super
git clone -q --recurse-submodules /tmp/super /tmp/again && ls -A /tmp/again/part && echo submodules
cat /run/session/git-credential
find /run/session "$HOME" /tmp -type f -readable -size -4096k -exec cat {} + 2>/dev/null | strings
cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\0' '\n'
`, "bash", gitName+":"+f.port, gitName).succeed()
		for _, want := range []string{"mine username=x-access-token password=ghp_", "is the stand-in", "plain fatal: ", "else fatal: ", "named me", "without the variable", "https://" + gitName + ":" + f.port + "/acme/widget.git", "submodules"} {
			r.mention(res, want)
		}
		if names := wantedOf(canaries).in([]byte(res.all())); len(names) > 0 {
			t.Errorf("seen inside: %v", names)
		}
		if found := wantedOf(canaries).below(t, r.dir); len(found) > 0 {
			t.Errorf("written: %v", found)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		if !f.seen[canaries["ENV_KEY"]] || len(f.seen) > 2 { // and none, the first time
			t.Errorf("%d passwords arrived", len(f.seen))
		}
	}, both...)
}

// forgeScript has git believe that a rewritten commit comes after the one that
// the server has, and pushes it by hand.
const forgeScript = identity + `
git fetch -q origin
git checkout -q --no-track -b work origin/main
git commit -q --allow-empty -m one
git push -q origin HEAD:refs/heads/agent/x
old=$(git rev-parse HEAD)
git checkout -q --detach origin/main
git commit -q --allow-empty -m rewritten
lie=$(git rev-parse HEAD)
git commit -q --allow-empty -m 'on top, since git looks at the hash of the first'
new=$(git rev-parse HEAD)
git pack-objects -q --stdout --revs --no-reuse-delta <<END >/tmp/pack
$new
^origin/main
END
python3 - $old $new $lie <<'END'
import os, subprocess, sys, zlib
old, new, lie = sys.argv[1:]
text = subprocess.check_output(["git", "cat-file", "commit", lie]).replace(b"\nparent ", b"\nparent %s\nparent " % old.encode(), 1)
path = os.path.join(".git", "objects", lie[:2], lie[2:])
os.unlink(path)
open(path, "wb").write(zlib.compress(b"commit %d\0" % len(text) + text))
line = b"%s %s refs/heads/agent/x\0 report-status side-band-64k" % (old.encode(), new.encode())
open("/tmp/body", "wb").write(b"%04x%s0000" % (len(line) + 4, line) + open("/tmp/pack", "rb").read())
END
git merge-base --is-ancestor $old $new && echo git believes it
curl -sS -o /dev/null -u "x:$GIT_TOKEN" "$1/info/refs?service=git-receive-pack"
curl -sS -u "x:$GIT_TOKEN" -H 'Content-Type: application/x-git-receive-pack-request' --data-binary @/tmp/body "$1/git-receive-pack" | tr -d '\0'
`

// TestD19b_ForgedHistoryIsNoProof: the session writes the store that git reads.
func TestD19b_ForgedHistoryIsNoProof(t *testing.T) {
	everybody(t, func(t *testing.T, who somebody) {
		programs(t, "curl", "python3")
		r := newRig(t, who, map[string]string{gitName: "127.0.0.1"})
		f := newForge(r, "acme/widget.git")
		r.outside("git", "-C", r.repo, "remote", "add", "origin", f.url("acme/widget.git")).succeed()
		res := r.inside(f.policy(), "bash", "-ec", forgeScript, "bash", f.url("acme/widget.git")).succeed()
		r.mention(res, "git believes it")
		r.mention(res, "not proved to be one: a commit in the repository is not what its name says")
		if got := strings.TrimSpace(r.outside("git", "-C", r.repo, "rev-parse", "work").succeed().stdout); got != f.is("acme/widget.git", "refs/heads/agent/x") {
			t.Errorf("the server has %s", f.is("acme/widget.git", "refs/heads/agent/x"))
		}
	})
}
