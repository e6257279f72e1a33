//go:build linux

package store

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/mojoup/mojoup-node/internal/session"
	"github.com/mojoup/mojoup-node/pkg/sandbox/kerneltest"
)

// again runs one test of this binary in a process of its own, with
// MOJOUP_STORE_TEST set to tell it which part it plays. The program is named
// by /proc, because another user may not reach its path.
func again(t *testing.T, part string, attr *syscall.SysProcAttr) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), "MOJOUP_STORE_TEST="+part)
	cmd.SysProcAttr = attr
	return cmd
}

// part is what a process started by again plays, "" in the test itself.
func part() string { return os.Getenv("MOJOUP_STORE_TEST") }

// A process that is killed between or within transactions leaves a store that
// opens, with everything whose writing had returned, and each session with
// the whole of its undo.
func TestKilledWriterLeavesWholeSessions(t *testing.T) {
	const undo = 7
	if dir := part(); dir != "" {
		s, err := Open(ctx, dir, Options{})
		must(t, err)
		for {
			id := session.New()
			must(t, s.CreateSession(ctx, Session{ID: id, State: session.Staging}, make([]Undo, undo)))
			fmt.Printf("wrote %s\n", id)
			must(t, s.UndoDone(ctx, id, 1))
			fmt.Printf("undid %s\n", id)
		}
	}
	dir := stateDir(t)
	for round := range 8 {
		wrote, undid := killedAfter(t, dir, 5+round*3)
		s, err := Open(ctx, dir, Options{})
		must(t, err)
		for _, id := range wrote {
			if got := get(t, s, id); got.State != session.Staging {
				t.Errorf("%+v", got)
			}
		}
		list, err := s.Sessions(ctx, Filter{})
		must(t, err)
		for _, one := range list {
			left, err := s.PendingOf(ctx, one.ID)
			must(t, err)
			if n := len(left); n != undo && n != undo-1 || undid[one.ID] && n != undo-1 {
				t.Errorf("session %s has %d undo acts left, undone %v", one.ID, n, undid[one.ID])
			}
		}
		var check string
		must(t, s.write.QueryRow("PRAGMA integrity_check").Scan(&check))
		if check != "ok" {
			t.Errorf("integrity: %s", check)
		}
		must(t, s.Close())
	}
}

// killedAfter runs the writer until it has said so many lines, and kills it.
func killedAfter(t *testing.T, dir string, lines int) (wrote []session.ID, undid map[session.ID]bool) {
	t.Helper()
	cmd := again(t, dir, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL})
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	undid = map[session.ID]bool{}
	read := bufio.NewScanner(out)
	for n := 0; read.Scan(); {
		word, id, _ := strings.Cut(read.Text(), " ")
		switch word {
		case "wrote":
			wrote = append(wrote, session.ID(id))
		case "undid":
			undid[session.ID(id)] = true
		default:
			continue // what the test program says itself
		}
		if n++; n == lines {
			must(t, cmd.Process.Kill()) // and read on: it may have said more
		}
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("the writer ended by itself: %v", err)
	}
	if len(wrote) == 0 {
		t.Fatal("the writer wrote nothing")
	}
	return wrote, undid
}

// A state file that is no database, or a damaged one, is refused in words and
// left as it is.
func TestCorruptFileIsLeftAsItIs(t *testing.T) {
	dir := stateDir(t)
	s, err := Open(ctx, dir, Options{})
	must(t, err)
	for i := range 50 {
		create(t, s, session.ID("s"+strconv.Itoa(i)), session.Gone)
	}
	must(t, s.Close())
	good, err := os.ReadFile(filepath.Join(dir, FileName))
	must(t, err)
	zeros := append([]byte(nil), good...)
	clear(zeros[100:4096])
	for name, bad := range map[string][]byte{
		"Text":      []byte(strings.Repeat("not a database\n", 1000)),
		"Short":     []byte("x"),
		"Header":    append([]byte("SQLite format 4\x00"), good[16:]...),
		"Truncated": good[:len(good)/2],
		"Zeros":     zeros,
	} {
		t.Run(name, func(t *testing.T) {
			dir := stateDir(t)
			must(t, os.Mkdir(dir, 0o700))
			file := filepath.Join(dir, FileName)
			must(t, os.WriteFile(file, bad, 0o600))
			wantError(t, dir, Corrupt, "state file")
			if after, err := os.ReadFile(file); err != nil || string(after) != string(bad) {
				t.Errorf("the file was changed (%d to %d bytes), %v", len(bad), len(after), err)
			}
		})
	}
}

// What is damaged where opening does not look is said when it is met.
func TestDamageFoundLater(t *testing.T) {
	dir := stateDir(t)
	s, err := Open(ctx, dir, Options{})
	must(t, err)
	create(t, s, "one", session.Running)
	for range 200 {
		must(t, s.AddVerdicts(ctx, []Verdict{{Session: "one"}, {Session: "one"}}))
	}
	var page int
	must(t, s.write.QueryRow(`SELECT rootpage FROM sqlite_master WHERE name = 'verdicts'`).Scan(&page))
	must(t, s.Close())
	f, err := os.OpenFile(filepath.Join(dir, FileName), os.O_RDWR, 0)
	must(t, err)
	_, err = f.WriteAt([]byte(strings.Repeat("\xff", 4096)), int64(page-1)*4096)
	must(t, errors.Join(err, f.Close()))
	s = openTest(t, dir, Options{})
	_, err = s.Verdicts(ctx, "one", 0)
	var bad *Error
	if !errors.As(err, &bad) || bad.Kind != Corrupt {
		t.Errorf("%v", err)
	}
	get(t, s, "one") // the rest can still be read
}

func TestPlacesThatAreRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		make func(dir string) error
		kind Kind
		says string
	}{
		"OthersMayWrite": {func(d string) error { return errors.Join(os.Mkdir(d, 0o700), os.Chmod(d, 0o777)) }, Unusable, "others may write"},
		"DirIsFile":      {func(d string) error { return os.WriteFile(d, nil, 0o600) }, Unusable, "cannot be made: "},
		"DBIsDir":        {func(d string) error { return os.MkdirAll(filepath.Join(d, FileName), 0o700) }, Unusable, "not a regular file"},
		"DBIsPipe": {func(d string) error {
			return errors.Join(os.Mkdir(d, 0o700), unix.Mkfifo(filepath.Join(d, FileName), 0o600))
		}, Unusable, "not a regular file"},
		"DBIsLink": {func(d string) error {
			return errors.Join(os.Mkdir(d, 0o700), os.Symlink("/nonexistent", filepath.Join(d, FileName)))
		}, Unusable, "not a regular file"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := stateDir(t)
			must(t, tt.make(dir))
			wantError(t, dir, tt.kind, tt.says)
		})
	}
	if _, err := Open(ctx, "relative", Options{}); err == nil || !strings.Contains(err.Error(), "not an absolute path") {
		t.Errorf("%v", err)
	}
	info, err := os.Stat("/proc/1") // somebody else's, whoever this is
	must(t, err)
	if os.Geteuid() != 0 {
		if err := onlyOurs("/proc/1", info); err == nil || !strings.Contains(err.Error(), "belongs to uid 0") {
			t.Errorf("%v", err)
		}
	}
}

func TestNetworkFileSystemsAreRefused(t *testing.T) {
	for name, magic := range map[string]int64{"NFS": 0x6969, "SMB": 0xfe534d42, "9p": 0x01021997, "Ceph": 0x00c36400, "Lustre": 0x0bd00bd0} {
		dir := stateDir(t)
		_, err := Open(ctx, dir, Options{fileSystem: func(string) (int64, error) { return magic, nil }})
		var bad *Error
		if !errors.As(err, &bad) || bad.Kind != Remote || !strings.Contains(err.Error(), "is on "+name+", where") {
			t.Errorf("%s: %v", name, err)
		}
		if list, err := os.ReadDir(dir); err != nil || len(list) != 0 {
			t.Errorf("%s: left %v, %v", name, list, err)
		}
	}
	if _, err := Open(ctx, stateDir(t), Options{fileSystem: func(string) (int64, error) { return 0, unix.ENOSYS }}); err == nil {
		t.Error("an unknown file system was taken")
	}
	// What this machine says of its own is understood, and local.
	for _, local := range []string{"/proc", t.TempDir()} {
		magic, err := fileSystem(local)
		if name, remote := networkFileSystem(magic); err != nil || remote || magic == 0 {
			t.Errorf("%s: %#x %s, %v", local, magic, name, err)
		}
	}
	if magic, _ := fileSystem("/proc"); magic != unix.PROC_SUPER_MAGIC {
		t.Errorf("/proc is %#x", magic)
	}
}

// The tests below look from a user who is not root: what root may write is
// not told by modes.
func TestReadOnlyDirectory(t *testing.T) {
	if part() == "" && os.Geteuid() == 0 {
		out, err := again(t, "user", &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1000, Gid: 1000}}).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "--- PASS") {
			t.Errorf("as uid 1000: %v\n%s", err, out)
		}
		return
	}
	top, err := os.MkdirTemp("/tmp", "store")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(top) })

	empty := filepath.Join(top, "empty")
	must(t, os.Mkdir(empty, 0o500))
	wantError(t, empty, Denied, "permission denied")
	wantError(t, filepath.Join(empty, "below"), Denied, "permission denied")

	made := filepath.Join(top, "made")
	s, err := Open(ctx, made, Options{})
	must(t, err)
	must(t, s.Close())
	must(t, os.Chmod(made, 0o500))
	wantError(t, made, ReadOnly, "cannot be written")
	must(t, os.Chmod(made, 0o700))
	openTest(t, made, Options{})
	if _, err := Open(ctx, "/root/x", Options{}); err == nil {
		t.Error("opened below /root")
	}
}

// A full disk is said in words, nothing is half written, and the store goes on
// when there is room again. The disk is a small one in a namespace of our own.
func TestFullDisk(t *testing.T) {
	if part() == "" {
		uid, gid := os.Getuid(), os.Getgid()
		cmd := again(t, t.TempDir(), &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: gid, Size: 1}},
		})
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			kerneltest.Require(t, "user namespaces", err)
		}
		if err != nil || !strings.Contains(string(out), "--- PASS") {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	disk := part()
	kerneltest.Require(t, "tmpfs in a user namespace", unix.Mount("tmpfs", disk, "tmpfs", 0, "size=600k,mode=700"))
	s, err := Open(ctx, filepath.Join(disk, "state"), Options{})
	must(t, err)
	create(t, s, "one", session.Running)
	must(t, fillDisk(filepath.Join(disk, "full")))

	var bad *Error
	n := 0
	for err = error(nil); err == nil && n < 10_000; n++ {
		id := session.ID("s" + strconv.Itoa(n))
		err = s.CreateSession(ctx, Session{ID: id, State: session.Staging}, make([]Undo, 5))
	}
	if !errors.As(err, &bad) || bad.Kind != Full || bad.Hint() == "" {
		t.Fatalf("after %d sessions: %v", n, err)
	}
	if list, err := s.Sessions(ctx, Filter{}); err != nil || len(list) != n {
		t.Errorf("%d sessions, want %d, %v", len(list), n, err)
	}
	if p, err := s.Pending(ctx); err != nil || len(p) != 5*(n-1) {
		t.Errorf("%d undo acts, want %d, %v", len(p), 5*(n-1), err)
	}
	wantError(t, filepath.Join(disk, "other"), Full, "")

	must(t, os.Remove(filepath.Join(disk, "full")))
	create(t, s, "after", session.Running)
	must(t, s.Close())
	must(t, fillDisk(filepath.Join(disk, "full")))
	wantError(t, filepath.Join(disk, "state"), Full, "the disk")
	must(t, os.Remove(filepath.Join(disk, "full")))
	get(t, openTest(t, filepath.Join(disk, "state"), Options{}), "after")
}

// fillDisk writes until nothing fits.
func fillDisk(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	for _, n := range []int{4096, 1} {
		for err = nil; err == nil; {
			_, err = f.Write(make([]byte, n))
		}
		if !errors.Is(err, unix.ENOSPC) {
			return err
		}
	}
	return nil
}
