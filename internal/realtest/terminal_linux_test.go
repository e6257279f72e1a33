package realtest

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// shell is a bash whose prompt a test can wait for.
var shell = []string{"run", "--env", "PS1=prompt> ", "--", "bash", "--norc", "--noprofile"}

// TestDayEditor edits with vim, suspends it, looks at the file, goes on and
// saves: the terminal is given back with the modes that it had.
func TestDayEditor(t *testing.T) {
	everybody(t, func(t *testing.T, who somebody) {
		programs(t, "vim", "bash")
		r := newRig(t, who, nil)
		s := r.screen(100, 30, shell...)
		s.see("prompt> ")
		s.press("vim -u NONE text<CR>")
		s.see("\x1b[?1049h") // the other screen
		s.press("ione two<Esc>:w<CR>")
		s.see("written")
		s.press("<C-z>")
		s.see("Stopped")
		s.see("prompt> ")
		s.press("cat text; jobs; stty size<CR>")
		s.see("one two")
		s.see("30 100")
		s.press("fg<CR>")
		s.see("\x1b[?1049h")
		s.press("A three<Esc>:wq<CR>")
		s.see("\x1b[?1049l")
		s.see("prompt> ")
		s.press("exit 3<CR>")
		s.ends(3)
		if got := r.file("text"); got != "one two three\n" {
			t.Errorf("saved %q", got)
		}
	})
}

// TestDayRebase has git start editors: one for the list, one for a message.
func TestDayRebase(t *testing.T) {
	everybody(t, func(t *testing.T, who somebody) {
		programs(t, "vim", "git")
		r := newRig(t, who, nil)
		r.outside("sh", "-ec", "git config user.name n; git config user.email n@n.example; for i in one two three; do echo $i >$i; git add $i; git commit -q -m $i; done").succeed()
		s := r.screen(80, 24, "run", "--env", "EDITOR=vim -u NONE --cmd 'set shm=atF'", "--", "git", "rebase", "-i", "HEAD~2")
		s.see("pick")
		s.press(":1s/pick/reword/<CR>:wq<CR>")
		s.see("enter the commit message")
		s.press(":1s/two/second/<CR>:wq<CR>")
		s.see("Successfully rebased")
		s.ends(0)
		if got := r.outside("git", "log", "--format=%s").succeed().stdout; got != "three\nsecond\none\n" {
			t.Errorf("history %q", got)
		}
	})
}

// TestDayPager pages, searches, and draws anew in a window of another size.
func TestDayPager(t *testing.T) {
	everybody(t, func(t *testing.T, who somebody) {
		programs(t, "less")
		r := newRig(t, who, nil)
		var lines strings.Builder
		for i := range 1000 {
			fmt.Fprintf(&lines, "line %d of many\n", i)
		}
		r.write("repo/long", lines.String(), 0o644)
		s := r.screen(60, 10, "run", "--", "less", "long")
		s.see("line 8 of many")
		s.press("/line 504<CR>")
		s.see("line 512 of many\r\n:") // and it waits for a key
		// What ten rows do not show. less itself misses a size that comes just
		// when it begins to wait, with a session and without.
		for rows := uint16(30); rows < 40; rows++ {
			s.resize(60, rows)
			if s.sees("line 525 of many", time.Second) {
				break
			}
		}
		s.press("G")
		s.see("line 999 of many")
		s.press("q")
		s.ends(0)
	})
}

// awaitSize is what to type into a shell that is to wait for a size of its
// terminal. A viewer who comes makes it change for a moment, so that programs
// draw anew.
func awaitSize(size string) string {
	return `until [ "$(stty size)" = "` + size + `" ]; do sleep 0.05; done; echo "now it i""s ` + size + `"<CR>`
}

// TestDayViewers looks at one program from several terminals of different
// sizes: it has that of whoever did something last, and all see the same.
func TestDayViewers(t *testing.T) {
	everybody(t, func(t *testing.T, who somebody) {
		programs(t, "top", "bash")
		r := newRig(t, who, nil)
		first := r.screen(100, 30, shell...)
		first.see("prompt> ")
		id := r.living()
		second := r.screen(60, 20, "session", "attach", id)
		second.see("prompt> ")
		second.press(awaitSize("20 60"))
		first.see("now it is 20 60")
		second.see("now it is 20 60")
		first.press(awaitSize("30 100"))
		second.see("now it is 30 100")
		second.resize(70, 15)
		second.press(awaitSize("15 70"))
		first.see("now it is 15 70")

		// A program that fills its window draws for whoever it is that acts.
		first.press("top<CR>")
		first.see("load average")
		second.see("load average")
		third := r.screen(50, 12, "session", "attach", "--read-only", id)
		third.see("load average")
		third.press("q") // only looks
		third.leave()
		second.press("q")
		first.see("prompt> ")

		// Who leaves is no longer asked for the size, and the terminal of who
		// is simply gone takes nothing along but a session that is theirs.
		second.leave()
		first.press(awaitSize("30 100"))
		first.see("now it is 30 100")
		first.press("exit<CR>")
		first.ends(0)
	})
}

// TestDayDrop lets connections drop, which a terminal sees as its end: who left
// before finds everything again, from another terminal; who did not has ended
// the session by that.
func TestDayDrop(t *testing.T) {
	everybody(t, func(t *testing.T, who somebody) {
		programs(t, "python3", "bash")
		r := newRig(t, who, nil)
		s := r.screen(80, 24, "run", "--env", "PYTHON_BASIC_REPL=1", "--", "python3", "-q")
		s.see(">>> ")
		s.press("x = 6 * 7<CR>")
		s.see(">>> ")
		s.leave()
		s.hangUp()
		again := r.screen(100, 30, "session", "attach", r.living())
		again.see(">>> ")
		again.hangUp() // a viewer's
		s = r.screen(100, 30, "session", "attach", r.living())
		s.see(">>> ")
		s.press("print('x is', x)<CR>")
		s.see("x is 42")
		s.press("<Up><CR>") // its own history
		s.see("x is 42")
		s.press("<C-c>")
		s.see("KeyboardInterrupt")
		s.press("exit(5)<CR>")
		s.ends(5)

		s = r.screen(80, 24, "run", "--", "bash", "-c", "trap 'echo hup >hup; exit' HUP; echo begun; while :; do sleep 0.05; done")
		s.see("begun")
		s.hangUp()
		r.eventually("the session ends with its terminal", func() bool { return strings.Contains(r.node("session", "list"), "no sessions") })
		if got := r.file("hup"); got != "hup\n" {
			t.Errorf("it was told %q", got)
		}
	})
}

// TestDayServer starts a dev server as people do, reaches it from this machine,
// and ends it with Ctrl-C.
func TestDayServer(t *testing.T) {
	everybody(t, func(t *testing.T, who somebody) {
		programs(t, "npm", "node")
		r := newRig(t, who, nil)
		port := freePort(t)
		r.write("repo/package.json", `{"name": "x", "version": "1.0.0", "scripts": {"dev": "node server.js"}}`, 0o644)
		r.write("repo/server.js", fmt.Sprintf(`require('http').createServer((q, a) => a.end('hello from ' + q.url + '\n')).listen(%d, 'localhost', () => console.log('\x1b[32mlistening\x1b[0m'))`, port), 0o644)
		policy := r.write("policy.json", fmt.Sprintf(`{"version": 1, "ports": [%d]}`, port), 0o644)
		r.own()
		s := r.screen(80, 24, "run", "--policy", policy, "--", "npm", "run", "dev")
		s.see("\x1b[32mlistening\x1b[0m")
		said := r.node("session", "ports", r.living(), fmt.Sprint(port))
		_, url, _ := strings.Cut(strings.TrimSpace(said), " ")
		answer, err := http.Get(strings.TrimSpace(url) + "/path")
		r.must(err)
		body, err := io.ReadAll(answer.Body)
		r.must(err)
		r.must(answer.Body.Close())
		if string(body) != "hello from /path\n" {
			t.Errorf("the server says %q", body)
		}
		s.press("<C-c>")
		<-s.done
		if c, err := net.Dial("tcp", strings.TrimPrefix(strings.TrimSpace(url), "http://")); err == nil {
			_ = c.Close()
			t.Error("the port is open after the session")
		}
	})
}

// freePort is one that nobody had a moment ago. Inside nobody else has any.
func freePort(t *testing.T) int {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().(*net.TCPAddr).Port
}

// TestDayTests runs a test suite: in colour on a terminal, without on a pipe,
// and its exit code is the session's.
func TestDayTests(t *testing.T) {
	everybody(t, func(t *testing.T, who somebody) {
		programs(t, "/usr/bin/pytest")
		r := newRig(t, who, nil)
		r.write("repo/test_x.py", "def test_good(): pass\ndef test_bad(): assert 1 == 2\n", 0o644)
		s := r.screen(80, 24, "run", "--", "/usr/bin/pytest", "-q", "-p", "no:cacheprovider")
		s.see("\x1b[31m")
		s.see("1 failed")
		s.ends(1)
		res := r.inside("", "/usr/bin/pytest", "-q", "-p", "no:cacheprovider").fail()
		if res.code != 1 || strings.Contains(res.all(), "\x1b") || !strings.Contains(res.stdout, "1 failed, 1 passed") {
			t.Errorf("on a pipe: %d, %q", res.code, res.all())
		}
	})
}

// TestDayShell is a shell as an agent's person uses it: jobs in the background
// and back, Ctrl-C, Ctrl-D, colours, and the variables that programs ask.
func TestDayShell(t *testing.T) {
	everybody(t, func(t *testing.T, who somebody) {
		programs(t, "bash", "tput")
		r := newRig(t, who, nil)
		r.write("repo/dir/file", "", 0o644)
		r.own()
		s := r.screen(80, 24, shell...)
		s.see("prompt> ")
		s.press(`sleep 300 & sh -c 'echo be""gun; exec sleep 301'<CR>`)
		s.see("begun")
		s.press("<C-z>")
		s.see("[2]+  Stopped")
		s.see("prompt> ")
		s.press("bg; jobs<CR>")
		s.see("[1]-  Running")
		s.see("[2]+  Running")
		s.see("prompt> ")
		s.press("fg %1<CR>")
		s.see("sleep 300")
		for range 10 { // bash says so before the job has the terminal
			s.press("<C-c>")
			if s.sees("prompt> ", time.Second) {
				break
			}
		}
		s.press("echo code $?; kill %2; wait %2; echo code $?<CR>")
		s.see("code 130")
		s.see("code 143")
		s.see("prompt> ")
		s.press("tput colors; ls --color=auto; test \"$COLORTERM\" = truecolor && echo true''colour<CR>")
		s.see("256")
		s.see("\x1b[01;34mdir\x1b[0m")
		s.see("truecolour")
		s.see("prompt> ")
		s.press(`"$SHELL" -c 'echo it is a she""ll'; echo "editor: ${EDITOR:-not s""et}"<CR>`)
		s.see("it is a shell")
		s.see("editor: not set") // it comes by --env only, and git falls back
		s.see("prompt> ")        // a key that comes before is not a key to bash
		s.press("<C-d>")
		s.ends(0)
	})
}

// TestDayGitHub is what gh says where nobody is signed in.
func TestDayGitHub(t *testing.T) {
	everybody(t, func(t *testing.T, who somebody) {
		programs(t, "gh")
		r := newRig(t, who, nil)
		r.outside("git", "remote", "add", "origin", "https://github.com/acme/widget.git").succeed()
		r.mention(r.inside("", "gh", "auth", "status").fail(), "not logged in")
		r.mention(r.inside("", "gh", "pr", "list").fail(), "gh auth login")
		// A token, but no rule: what GitHub was never asked.
		r.mention(r.inside("", "gh", "pr", "list").with("GH_TOKEN=none").fail(), "403 Forbidden")
	})
}
