package node

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mojoup/mojoup-node/internal/fault"
	"github.com/mojoup/mojoup-node/pkg/console/api"
	"github.com/mojoup/mojoup-node/pkg/secrets/source"
)

// outsideOf is a directory with a key, a command that gives it, and a repository.
func outsideOf(t *testing.T) (dir, get, key string) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	get, key = filepath.Join(dir, "get.sh"), filepath.Join(dir, "key")
	giver(t, dir)
	git(t, dir, "init", "-q", filepath.Join(dir, "repo"))
	return dir, get, key
}

// giver puts a key and a command that gives it into a directory.
func giver(t *testing.T, dir string) {
	t.Helper()
	must(t, os.WriteFile(filepath.Join(dir, "get.sh"), []byte("#!/bin/sh\necho "+oneKey+"\n"), 0o700))
	must(t, os.WriteFile(filepath.Join(dir, "key"), []byte(oneKey), 0o600))
}

// TestT2_NoKeyIsReadByWhatASessionHas: while a session has a directory, no secret is
// set that is read by a file in it, or by a command that runs one, however it is named.
func TestT2_NoKeyIsReadByWhatASessionHas(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.serve(t, w.options(t, nativeEngine(t)))
	tree, err := filepath.EvalSymlinks(w.repo)
	must(t, err)
	dir, get, key := outsideOf(t)
	giver(t, tree)
	must(t, os.Symlink(tree, filepath.Join(dir, "tree")))
	must(t, os.Symlink(filepath.Join(tree, "get.sh"), filepath.Join(dir, "link")))
	must(t, os.Symlink(dir, filepath.Join(tree, "out"))) // the session can have it lead elsewhere
	must(t, os.WriteFile(filepath.Join(dir, "script"), []byte("#!"+tree+"/get.sh\n"), 0o700))
	a := w.ask(t, r.client, api.RunRequest{Command: []string{"/bin/sh", "-c", "echo ready; exec sleep 600"}})
	defer a.gone()
	a.out.await(t, "ready")
	id := string(r.only().id)
	set := func(kind, at string) error {
		_, err := r.client.SetSecret(t.Context(), api.SecretRequest{Name: "API_KEY", Kind: kind, At: at, Hosts: []string{"api.x.example"}})
		return err
	}
	for _, tt := range [][2]string{
		{"command", tree + "/get.sh"}, {"command", "/bin/sh " + tree + "/get.sh"}, {"command", "PATH=" + tree + ":/bin get.sh"},
		{"command", "PATH=/bin:" + dir + "/tree get.sh"}, {"command", "cat --show-all=" + tree + "/key"}, {"command", "sh -c 'exec " + tree + "/./get.sh'"},
		{"command", ". " + tree + "/get.sh"}, {"command", "cd " + tree + " && ./get.sh"}, {"command", "cd " + dir + "; tree/get.sh"},
		{"command", dir + "/link"}, {"command", dir + "/tree/out/get.sh"}, {"command", dir + "/script"}, {"command", "cat " + tree + "/key"},
		{"file", tree + "/key"}, {"file", dir + "/tree/key"}, {"file", dir + "/tree/out/key"},
	} {
		err := set(tt[0], tt[1])
		if said := fmt.Sprint(err); err == nil || fault.As(err).Exit != fault.ExitUsage || !strings.Contains(said, "the secret API_KEY cannot be set so: it is read by "+tree) && !strings.Contains(said, "it is read by "+dir) ||
			!strings.Contains(said, "which the session "+id+" has in its hands by "+tree) {
			t.Errorf("%s: %v", tt, err)
		}
	}
	if all, err := r.client.Secrets(t.Context()); err != nil || len(all.Secrets) > 0 {
		t.Errorf("%+v, %v", all, err)
	}
	for kind, at := range map[string]string{"command": get, "file": key} {
		if err := set(kind, at); err != nil {
			t.Errorf("elsewhere: %v", err)
		}
	}
	a.gone()
	until(t, "the session has ended", func() bool { return r.only() == nil })
	if err := set("command", tree+"/get.sh"); err != nil {
		t.Errorf("with no session there: %v", err)
	}
}

// TestT2_LookedAtBeforeEachReading: what comes into the hands of a session after the
// secret was set, here by a link that its person has changed, is not read any more:
// not for a session that starts, and not for one that runs.
func TestT2_LookedAtBeforeEachReading(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"command", "file"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			o := w.options(t, nativeEngine(t))
			o.Times = Times{Keys: 10 * time.Millisecond}
			r := w.serve(t, o)
			dir, get, key := outsideOf(t)
			giver(t, w.repo)
			at := map[string]string{"command": get, "file": key}[kind]
			link := filepath.Join(dir, "link")
			must(t, os.Symlink(at, link))
			_, err := r.client.SetSecret(t.Context(), api.SecretRequest{Name: "API_KEY", Kind: kind, At: link, Hosts: []string{"api.x.example"}})
			must(t, err)
			req := api.RunRequest{
				Directory: filepath.Join(dir, "repo"), Command: []string{"/bin/sh", "-c", "echo ready; exec sleep 600"},
				PolicyName: "p", Policy: `{"version":1,"network":{"rules":[]},"secrets":["API_KEY"]}`,
			}
			has := w.ask(t, r.client, req)
			defer has.gone()
			has.out.await(t, "ready")
			with := r.only()
			other := w.ask(t, r.client, api.RunRequest{Command: req.Command})
			defer other.gone()
			other.out.await(t, "ready")
			must(t, os.Remove(link))
			must(t, os.Symlink(filepath.Join(w.repo, filepath.Base(at)), link))
			until(t, "it is looked at for a session that runs", func() bool {
				return strings.Contains(with.diaryText(), "the secret API_KEY keeps the key that it had: it is read by ")
			})
			if e, err := w.ask(t, r.client, req).end(t); err != nil || e.Problem == nil || !strings.Contains(e.Problem.Sentence, "reading the secret API_KEY: it is read by ") ||
				!strings.Contains(e.Problem.Hint, "mojoup-node session stop ") {
				t.Errorf("a session that starts: %+v, %v", e, err)
			}
		})
	}
}

// TestT2_NoSessionGetsWhatIsBeingRead: one that would have it in its hands is refused
// while a command runs that the store does not know yet, and after it does.
func TestT2_NoSessionGetsWhatIsBeingRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.serve(t, w.options(t, nativeEngine(t)))
	pipe := filepath.Join(t.TempDir(), "key")
	get := filepath.Join(w.repo, "get.sh")
	must(t, os.WriteFile(get, []byte("#!/bin/sh\ncat "+pipe+"\n"), 0o700))
	must(t, unix.Mkfifo(pipe, 0o600))
	done := make(chan error, 1)
	go func() {
		_, err := r.client.SetSecret(t.Context(), api.SecretRequest{Name: "API_KEY", Kind: "command", At: get, Hosts: []string{"api.x.example"}})
		done <- err
	}()
	key, err := os.OpenFile(pipe, os.O_WRONLY, 0) // waits until the command runs
	must(t, err)
	if all := r.node.readings.all(); len(all) != 1 || !slices.Contains(all[0].paths, get) {
		t.Errorf("while the command runs: %+v", all)
	}
	_, err = key.WriteString(oneKey + "\n")
	must(t, err)
	must(t, key.Close())
	must(t, <-done)
	start := func() string {
		e, err := w.ask(t, r.client, api.RunRequest{Command: []string{"true"}}).end(t)
		if err != nil || e.Problem == nil {
			return fmt.Sprintf("%+v, %v", e, err)
		}
		return e.Problem.Sentence
	}
	if got := start(); !strings.Contains(got, "the secret API_KEY is read by ") {
		t.Errorf("once it is set: %s", got)
	}
	_, err = r.client.RemoveSecret(t.Context(), "API_KEY")
	must(t, err)
	if all := r.node.readings.all(); len(all) > 0 {
		t.Errorf("when it has ended: %+v", all)
	}
	end, err := r.node.beginReading(source.Reference{Kind: source.Command, At: get}, "/nowhere", "/usr/bin:/bin") // as above, for as long as it takes
	must(t, err)
	if got := start(); !strings.Contains(got, "a key is being read by ") {
		t.Errorf("meanwhile: %s", got)
	}
	end()
	if e, err := w.ask(t, r.client, api.RunRequest{Command: []string{"true"}}).end(t); err != nil || e.Problem != nil || e.Code != 0 {
		t.Errorf("afterwards: %+v, %v", e, err)
	}
}
