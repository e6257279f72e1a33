package realtest

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// canaries are the keys of the test, by where they are kept.
var canaries = map[string]string{
	"STORE_KEY":   "sk-ant-api03-CanaryStore0123456789abcdefghijklmnopqrstuvwxyzAA",
	"ENV_KEY":     "ghp_CanaryEnvironment0123456789abcdefghij",
	"FILE_KEY":    "AIzaCanaryFile9876543210onmlkjihgfedcba",
	"COMMAND_KEY": "glpat-CanaryCommand0123456789abc",
	"BARE_KEY":    "CanaryBare/0123456789+abcdefghijklmnop==",
	"QUERY_KEY":   "canary_query_0123456789_abcdefghijklmnop",
	"BODY_KEY":    "CANARYBODY-0123456789-ABCDEFGHIJKLMNOPQR",
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

// A wanted is what is searched for: forms of keys, by the keys' names.
type wanted map[string][][]byte

func wantedOf(keys map[string]string) wanted {
	w := wanted{}
	for name, key := range keys {
		w[name] = forms(key)
	}
	return w
}

// in names the keys that stand in a text.
func (w wanted) in(text []byte) (names []string) {
	for name, forms := range w {
		if slices.ContainsFunc(forms, func(f []byte) bool { return bytes.Contains(text, f) }) {
			names = append(names, name)
		}
	}
	return names
}

// below searches a file, or every file below a directory.
func (w wanted) below(t *testing.T, dir string) (found []string) {
	t.Helper()
	files := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil // gone by now, or a socket
		}
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		files++
		for _, name := range w.in(text) {
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
