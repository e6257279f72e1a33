package realtest

import (
	"bytes"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/mojoup/mojoup-node/pkg/secrets/signin"
	"github.com/mojoup/mojoup-node/pkg/secrets/signin/profile"
)

// settingsOf are the files beside its sign-in that a tool changes by itself.
var settingsOf = map[string][]string{
	"claude": {".claude/.claude.json", ".claude/settings.json"}, "codex": {".codex/config.toml"}, "copilot": {".copilot/config.json", ".copilot/mcp-config.json"},
	"opencode": {".config/opencode/opencode.json"}, "kilo": {".config/kilo/kilo.json"},
}

// everyToken is what a person of [signedInEverywhere] is signed in with.
const everyToken = "sk-ant-oat01-everywhere0123456789abcdefghijklmnop"

// signedInEverywhere is a person who is signed in to each tool, in whose place a
// program of its name stands that runs the words it is given.
func signedInEverywhere(t *testing.T, who somebody, mode signin.Mode) (*rig, []toolSignIn) {
	t.Helper()
	var all []toolSignIn
	for _, s := range toolSignIns() {
		if s.tool != "kilo" || s.variable == "" { // one of kilo's two, whose file is inside
			all = append(all, s)
		}
	}
	r := newRig(t, who, nil, func(r *rig) {
		r.path = append(r.path, filepath.Join(r.home, "bin"))
		for _, s := range all {
			if s.variable == "" {
				r.env = append(r.env, "MOJOUP_NODE_SIGNIN_MODE_"+strings.ToUpper(s.tool)+"="+string(mode))
			}
		}
	})
	for _, s := range all {
		r.write("home/bin/"+s.tool, "#!/bin/sh\nexec /bin/sh -c \"$1\"\n", 0o755)
		r.write("home/"+s.file, s.text(everyToken, "refresh-of-me-0123456789", time.Now().Add(8*time.Hour)), 0o600)
	}
	r.own()
	return r, all
}

// tree are the files below a directory with what they hold.
func tree(t *testing.T, top string) string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		line := fmt.Sprintf("%s %v", path, info.Mode())
		if d.Type().IsRegular() {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" %v %s", info.ModTime(), b)
		}
		out = append(out, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	sort.Strings(out)
	return strings.Join(out, "\n")
}

// asToolsDo does to one file what tools do to theirs: by rename, in place, with a
// mode, removed and made anew, signed out and in again below a lock beside it. It
// ends at the first thing that cannot be done.
const asToolsDo = `
does() {
	f=$HOME/$1; d=$(dirname "$f"); umask 077
	mkdir -p "$d"
	[ -e "$f" ] || echo '{}' >"$f"
	[ "$(stat -c '%a %u' "$f")" = "600 $(id -u)" ] || { echo "$f: $(stat -c '%a %u' "$f")"; exit 9; }
	[ "$(stat -c '%a %u' "$d")" = "700 $(id -u)" ] || { echo "$d: $(stat -c '%a %u' "$d")"; exit 9; }
	text=$(cat "$f")
	(set -C; printf '%s\nby rename\n' "$text" >"$d/.new.$$"); mv "$d/.new.$$" "$f"
	grep -q 'by rename' "$f"; printf '%s\nin place\n' "$text" >"$f"
	grep -q 'in place' "$f"; chmod 600 "$f"; ln "$f" "$f.second"; rm "$f.second"
	mkdir "$d/.lock"; rm "$f"; [ ! -e "$f" ]; printf '%s\nsigned in again\n' "$text" >"$f"; rmdir "$d/.lock"
	mv "$d" "$d.away"; mkdir "$d"; cp -a "$d.away/." "$d/"; rm -r "$d.away"
	grep -q 'signed in again' "$f"
	[ "$(stat -c '%a %u' "$f")" = "600 $(id -u)" ]
	echo "done $1"
}
set -e
`

// TestB44_FilesAsToolsWriteThem: in a session of each tool its sign-in's file and
// its settings can be replaced, written, removed and made anew as the tools do it,
// in private directories of the session's user; and of all that nothing comes to
// the person's own files.
func TestB44_FilesAsToolsWriteThem(t *testing.T) {
	everywhere(t, func(t *testing.T, who somebody) {
		for _, mode := range []signin.Mode{signin.StandIn, signin.Lease} {
			if mode == signin.StandIn && who.gateway != "" {
				continue // the same files, and a container takes its time
			}
			r, all := signedInEverywhere(t, who, mode)
			before := tree(t, r.home)
			for _, s := range all {
				script := asToolsDo
				files := settingsOf[s.tool]
				if s.variable == "" { // else no file holds it
					script += fmt.Sprintf("grep -q %s ~/%s\n", s.field, s.file)
					files = append([]string{s.file}, files...)
				}
				for _, f := range files {
					script += "does " + f + "\n"
				}
				res := r.inside(`{"version": 1, "network": {"rules": []}}`, script).as(s.tool).succeed()
				for _, f := range files {
					r.mention(res, "done "+f)
				}
			}
			if after := tree(t, r.home); after != before {
				t.Errorf("mode %s: the person's home was\n%s\nand is\n%s", mode, before, after)
			}
		}
	}, older...)
}

// TestDatabasesGoWithTheSession: a database in which a tool keeps its sign-in, with
// its log of what is to be written, lies nowhere when its session has ended. While
// it lasts it does where the engine keeps homes on the disk, so that the search is
// seen to find it.
func TestDatabasesGoWithTheSession(t *testing.T) {
	everywhere(t, func(t *testing.T, who somebody) {
		programs(t, "python3")
		r, _ := signedInEverywhere(t, who, signin.Lease)
		const script = `python3 - <<'END'
import os, sqlite3
home = os.path.expanduser("~/.local/share/kilo/")
c = sqlite3.connect(home + "kilo.db")
c.execute("pragma journal_mode=wal")
c.execute("create table sign_ins (text)")
c.execute("insert into sign_ins values (?)", [open(home + "auth.json").read()])
c.commit()
open("up", "w").close()
os.system("while ! [ -e go ]; do sleep 0.1; done; ls " + home)
os._exit(0)  # with the database open, as a tool that is killed
END`
		ended := make(chan result, 1)
		go func() {
			res, err := r.inside(`{"version": 1, "network": {"rules": []}}`, script).as("kilo").run()
			if err != nil {
				res.stderr += err.Error()
			}
			ended <- res
		}()
		r.eventually("the database is written", func() bool {
			_, err := os.Stat(filepath.Join(r.repo, "up"))
			return err == nil
		})
		during := r.holding(everyToken)
		if r.double != nil && !strings.Contains(strings.Join(during, " "), "kilo.db-wal") {
			t.Errorf("the search finds only %v", during)
		}
		r.write("repo/go", "", 0o644)
		res := <-ended
		for _, name := range []string{"kilo.db", "kilo.db-wal", "auth.json"} {
			r.mention(res, name)
		}
		if found := r.holding(everyToken); len(found) > 0 || res.code != 0 {
			t.Errorf("code %d; after the end the token lies in %v", res.code, found)
		}
	}, older...)
}

// TestDaemonsOfToolsAreOutOfReach: of what a tool's profile names as never copied,
// of the files by which its daemons are found, and of the sockets at which they
// listen, nothing is in a session, though all of it lies beside the sign-in that is.
func TestDaemonsOfToolsAreOutOfReach(t *testing.T) {
	const mark = "NEVER-INSIDE-0123456789"
	everywhere(t, func(t *testing.T, who somebody) {
		r, all := signedInEverywhere(t, who, signin.Lease)
		made := 0
		for _, p := range profile.Builtin() {
			for _, pattern := range p.Never {
				name := strings.NewReplacer("**", "deep/file", "*", "x").Replace(pattern)
				if _, err := os.Lstat(filepath.Join(r.home, name)); err == nil {
					continue // the sign-in itself
				}
				r.must(os.MkdirAll(filepath.Dir(filepath.Join(r.home, name)), 0o700))
				r.write("home/"+name, mark, 0o600)
				made++
			}
		}
		var sockets []string
		listen := func(path string) {
			r.must(os.MkdirAll(filepath.Dir(path), 0o700))
			ln, err := net.Listen("unix", path)
			r.must(err)
			t.Cleanup(func() { _ = ln.Close() })
			go func() {
				for {
					c, err := ln.Accept()
					if err != nil {
						return
					}
					_, _ = c.Write([]byte(mark))
					_ = c.Close()
				}
			}()
			sockets = append(sockets, path)
		}
		for _, dir := range []string{".claude/daemon", ".codex", ".copilot/ide", ".local/share/opencode", ".local/share/kilo"} {
			listen(filepath.Join(r.home, dir, "d.sock"))
		}
		shared, err := os.MkdirTemp("/tmp", "cc-socks-")
		r.must(err)
		t.Cleanup(func() { _ = os.RemoveAll(shared) })
		listen(filepath.Join(shared, "1.sock"))
		r.own()
		r.must(os.Chown(shared, r.who.uid, r.who.gid))
		if made < 50 {
			t.Errorf("only %d files were made", made)
		}
		look := "grep -rlaF " + hidden(mark) + ` "$HOME" ` + shared + ` 2>/dev/null; find "$HOME" ` + shared + ` -type s 2>/dev/null; for s in ` + strings.Join(sockets, " ") + `; do
	python3 -c 'import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); print("answered", s.recv(99))' "$s" 2>&1 | tail -1; done; echo looked`
		if out, err := r.outside("sh", "-c", look).run(); err != nil || !strings.Contains(out.stdout, "answered") || !strings.Contains(out.stdout, "kilo.db") {
			t.Fatalf("outside nothing is found, so that the look means nothing: %v: %s", err, out.all())
		}
		for _, s := range all {
			res := r.inside(`{"version": 1, "network": {"rules": []}}`, look).as(s.tool).succeed()
			r.mention(res, "looked")
			for _, line := range strings.Split(strings.TrimSpace(res.stdout), "\n") {
				if line != "looked" && !bytes.Contains([]byte(line), []byte("No such file")) {
					t.Errorf("a session of %s: %s", s.tool, line)
				}
			}
		}
	}, older...)
}
