package people

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/mojoup/mojoup-node/internal/config"
)

// Below each of root's two directories a person's own lies in "users", by the
// number of that person. In the state directory "unfinished" has a file for each
// deputy that has not ended in order yet: by it a broker that comes later knows
// where something may be left.
const (
	users      = config.PeopleName
	unfinished = config.UnfinishedName
)

// places are directories of root's, held open, in which nobody but root can
// put or exchange anything. What is made in them is made by descriptor.
type places struct {
	state, runtime         *os.File // their "users"
	unfinished             *os.File
	statePath, runtimePath string
}

// openPlaces makes what is missing. Anybody may pass through the directories
// and nobody may look around in them: each person's own below is theirs alone.
func openPlaces(state, runtime string) (*places, error) {
	p := &places{statePath: filepath.Join(state, users), runtimePath: filepath.Join(runtime, users)}
	for _, one := range []struct {
		at   **os.File
		top  string
		name string
		mode uint32
	}{
		{&p.state, state, users, 0o711}, {&p.runtime, runtime, users, 0o711}, {&p.unfinished, state, unfinished, 0o700},
	} {
		top, err := openRoots(one.top)
		if err == nil {
			*one.at, err = makeIn(top, one.name, one.mode, os.Geteuid(), os.Getegid())
			_ = top.Close()
		}
		if err != nil {
			p.close()
			return nil, err
		}
	}
	return p, nil
}

// openRoots opens a directory of root's own and lets others pass through it.
func openRoots(path string) (*os.File, error) {
	if err := os.MkdirAll(path, 0o711); err != nil {
		return nil, fmt.Errorf("making a directory of the system node: %w", err)
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("opening the directory %s of the system node: %w", path, err)
	}
	dir := os.NewFile(uintptr(fd), path)
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	switch {
	case err != nil:
	case int(st.Uid) != os.Geteuid():
		err = fmt.Errorf("%s belongs to uid %d, not to uid %d", path, st.Uid, os.Geteuid())
	case st.Mode&0o022 != 0:
		err = fmt.Errorf("others may write %s", path)
	case st.Mode&0o011 != 0o011:
		err = dir.Chmod(fs.FileMode(st.Mode&0o777 | 0o011))
	}
	if err != nil {
		_ = dir.Close()
		return nil, fmt.Errorf("using the directory of the system node: %w", err)
	}
	return dir, nil
}

// makeIn makes name in a directory that only root may write, or takes the one
// that is there, and sees to its owner and mode.
func makeIn(dir *os.File, name string, mode uint32, uid, gid int) (*os.File, error) {
	at := filepath.Join(dir.Name(), name)
	if err := unix.Mkdirat(int(dir.Fd()), name, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, fmt.Errorf("making %s: %w", at, err)
	}
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", at, err)
	}
	made := os.NewFile(uintptr(fd), at)
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	switch owner := int(st.Uid); {
	case err != nil:
	case owner != uid && owner != os.Geteuid():
		err = fmt.Errorf("it belongs to uid %d, not to uid %d", owner, uid)
	case owner != uid || int(st.Gid) != gid:
		err = unix.Fchown(fd, uid, gid)
	}
	if err == nil && st.Mode&0o7777 != mode {
		err = unix.Fchmod(fd, mode)
	}
	if err != nil {
		_ = made.Close()
		return nil, fmt.Errorf("making %s somebody's own: %w", at, err)
	}
	return made, nil
}

// of makes a person's own two directories and returns their paths.
func (p *places) of(who Person) (state, runtime string, err error) {
	for _, dir := range []*os.File{p.state, p.runtime} {
		made, err := makeIn(dir, who.number(), 0o700, who.UID, who.GID)
		if err != nil {
			return "", "", err
		}
		_ = made.Close()
	}
	return filepath.Join(p.statePath, who.number()), filepath.Join(p.runtimePath, who.number()), nil
}

// begin notes that a deputy is about to run, end that it has ended in order.
func (p *places) begin(who Person) error {
	fd, err := unix.Openat(int(p.unfinished.Fd()), who.number(), unix.O_WRONLY|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("noting a deputy of %s down: %w", who.Name, err)
	}
	return unix.Close(fd)
}

func (p *places) end(who Person) { _ = unix.Unlinkat(int(p.unfinished.Fd()), who.number(), 0) }

// left are the people whose deputy did not end in order.
func (p *places) left() ([]Person, error) { return p.people(p.unfinished) }

// all are the people who have a state directory.
func (p *places) all() ([]Person, error) { return p.people(p.state) }

func (p *places) people(dir *os.File) ([]Person, error) {
	again, err := unix.Openat(int(dir.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("listing people: %w", err)
	}
	f := os.NewFile(uintptr(again), dir.Name())
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("listing people: %w", err)
	}
	var out []Person
	for _, name := range names {
		uid, err := strconv.Atoi(name)
		if err != nil || uid < 0 || strconv.Itoa(uid) != name {
			continue
		}
		var st unix.Stat_t
		if unix.Fstatat(int(p.state.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil || int(st.Uid) != uid {
			continue // never made, or not theirs: nothing of theirs is there
		}
		out = append(out, listed(uid, int(st.Gid)))
	}
	return out, nil
}

func (p *places) close() {
	for _, f := range []*os.File{p.state, p.runtime, p.unfinished} {
		if f != nil {
			_ = f.Close()
		}
	}
}
