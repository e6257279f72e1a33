package realtest

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestSignInsGoWithADeadNode: what a session had of a real token, where it was put
// and where a program inside copied it, is gone once the next node has started.
func TestSignInsGoWithADeadNode(t *testing.T) {
	everywhere(t, func(t *testing.T, who somebody) {
		const token, file = "sk-ant-oat01-DeadNode0123456789abcdefghijklmnop", "home/.claude/.credentials.json"
		r := newRig(t, who, nil, func(r *rig) { r.env = append(r.env, "MOJOUP_NODE_SIGNIN_MODE_CLAUDE=lease") })
		r.write(file, fmt.Sprintf(`{"claudeAiOauth":{"accessToken":%q,"refreshToken":"sk-ant-ort01-never","expiresAt":%d,"scopes":["user:inference"]}}`, token, time.Now().Add(8*time.Hour).UnixMilli()), 0o600)
		r.own()
		policy := r.write("policy.json", `{"version": 1, "network": {"rules": []}, "signIns": ["claude"]}`, 0o644)
		ended := make(chan string, 1)
		go func() {
			out, err := r.command("", nil, "run", "--policy", policy, "--", "sh", "-ec", `cp -r ~/.claude ~/other; mv ~/other/.credentials.json ~/data.sqlite; chmod 0 ~/other; test -s ~/data.sqlite; : >up; exec sleep 600`)
			ended <- fmt.Sprintf("%v: %s", err, out)
		}()
		r.eventually("the session is up", func() bool {
			select {
			case said := <-ended:
				t.Fatalf("it ended with %s", said)
			default:
			}
			_, err := os.Stat(filepath.Join(r.repo, "up"))
			return err == nil
		})
		if found := r.holding(token); (len(found) > 0) != (r.double != nil) {
			t.Errorf("while it lives the token lies in %v", found)
		}
		r.kill()
		if said := <-ended; strings.Contains(said, token) {
			t.Errorf("the client says %s", said)
		}
		node, err := binary()
		r.must(err)
		r.start(node)
		r.eventually("the token is gone", func() bool { return len(r.holding(token)) == 0 && (r.double == nil || r.double.Containers(t) == 0) })
		if b, err := os.ReadFile(filepath.Join(r.dir, file)); err != nil || !strings.Contains(string(b), token) {
			t.Errorf("the person's own file: %v", err)
		}
	}, both...)
}

// holding are the files of the rig that hold a text, but for those of the
// person's home.
func (r *rig) holding(text string) (found []string) {
	r.t.Helper()
	r.must(filepath.WalkDir(r.dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case path == r.home:
			return filepath.SkipDir
		case err != nil || !d.Type().IsRegular():
			return nil // gone by now, or a socket
		}
		if b, err := os.ReadFile(path); err == nil && bytes.Contains(b, []byte(text)) {
			found = append(found, path)
		}
		return nil
	}))
	return found
}
