package engine

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/sandbox/native"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/inlet"
)

// Where the engine's own files lie inside, in one read-only directory.
const (
	own           = "/run/mojoup"
	helperName    = "mojoup-child"
	forwarderName = "forwarder"
	controlName   = "control" // socket of the helper
	arrangeName   = "arrange" // socket of the helper that runs as root
)

// scratchDir is where in a stage scratch directories lie.
const scratchDir = "scratch"

// A stage is the directory of one sandbox on the host.
type stage struct {
	dir string
	id  sandbox.Identity
	// mounts are what the gateway is asked for, in order.
	mounts []openshell.Mount
	// links are what nobody but root can make inside.
	links []sandbox.Mount
	// same are what must turn out to be the same inside as it was here: the
	// gateway and Docker are given names.
	same []sandbox.Check
	// read and write are what OpenShell's Landlock must allow.
	read, write []string
	// measured says that what scratch directories hold has a limit, so that all
	// of them must be the stage's.
	measured bool
}

func (e *Engine) stageDir(id string) string { return filepath.Join(e.o.Staging, id) }

// newStage makes the directory, which must not be there yet.
func (e *Engine) newStage(s sandbox.Spec) (*stage, error) {
	if err := os.MkdirAll(e.o.Staging, 0o700); err != nil {
		return nil, fmt.Errorf("making the staging directory: %w", err)
	}
	st := &stage{dir: e.stageDir(s.ID), id: s.Identity, measured: s.Limits.Disk > 0}
	if err := os.Mkdir(st.dir, 0o700); err != nil {
		return nil, fmt.Errorf("making a sandbox's directory: %w", err)
	}
	return st, nil
}

// mkdir makes a directory of the stage for the session's user.
func (st *stage) mkdir(name string, mode os.FileMode) (string, error) {
	dir := filepath.Join(st.dir, name)
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return "", fmt.Errorf("staging: %w", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", fmt.Errorf("staging: %w", err)
	}
	return dir, st.give(dir, mode)
}

// file makes a file of the stage for the session's user.
func (st *stage) file(name string, content []byte, mode os.FileMode) (string, error) {
	file := filepath.Join(st.dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return "", fmt.Errorf("staging: %w", err)
	}
	if err := os.WriteFile(file, content, 0o600); err != nil {
		return "", fmt.Errorf("staging: %w", err)
	}
	return file, st.give(file, mode)
}

func (st *stage) give(name string, mode os.FileMode) error {
	if os.Geteuid() == 0 {
		if err := os.Lchown(name, st.id.UID, st.id.GID); err != nil {
			return fmt.Errorf("staging: %w", err)
		}
	}
	bits := mode.Perm()
	if mode&0o1000 != 0 {
		bits |= fs.ModeSticky
	}
	if err := os.Chmod(name, bits); err != nil {
		return fmt.Errorf("staging: %w", err)
	}
	return nil
}

// programs stages what the engine itself has inside.
func (e *Engine) programs(st *stage, c inlet.Config) error {
	dir, err := st.mkdir("own", 0o500)
	if err != nil {
		return err
	}
	// A directory that its owner may not write is no hindrance to root, but
	// to an ordinary user's node.
	if err := os.Chmod(dir, 0o700); err != nil {
		return fmt.Errorf("staging: %w", err)
	}
	for _, f := range []struct {
		name    string
		content []byte
		mode    os.FileMode
	}{
		{helperName, e.helper, 0o500}, {forwarderName, e.forwarder, 0o500}, {inlet.ConfigName, c.Encode(), 0o400},
	} {
		if _, err := st.file(filepath.Join("own", f.name), f.content, f.mode); err != nil {
			return err
		}
	}
	st.mounts = append(st.mounts, openshell.Mount{Source: dir, Target: own, ReadOnly: true})
	st.read = append(st.read, own)
	return nil
}

// A MountError says why something cannot be mounted here.
type MountError struct {
	Path    string
	Problem string
	Advice  string
}

func (e *MountError) Error() string { return fmt.Sprintf("mounting %q: %s", e.Path, e.Problem) }

// Hint says what to do.
func (e *MountError) Hint() string { return e.Advice }

// mount turns the Spec's mounts into the gateway's, staging what is not there.
func (st *stage) mount(s sandbox.Spec) error {
	for i, m := range s.Mounts {
		if err := st.one(strconv.Itoa(i), m); err != nil {
			return err
		}
	}
	if err := st.protect(s); err != nil {
		return err
	}
	return st.points()
}

// points makes the places within scratch directories at which something else
// is mounted. Docker would make them too, as root, and nobody but root could
// remove them again.
func (st *stage) points() error {
	for _, m := range st.mounts {
		over := st.covering(m.Target)
		if over == nil || !under(over.Source, filepath.Join(st.dir, scratchDir)) {
			continue
		}
		dir := true
		if m.Source != "" {
			info, err := os.Stat(m.Source)
			if err != nil {
				return fmt.Errorf("mounting %q: %w", m.Source, err)
			}
			dir = info.IsDir()
		}
		if err := st.point(over.Source, strings.TrimPrefix(m.Target[len(over.Target):], "/"), dir); err != nil {
			return err
		}
	}
	return nil
}

// covering is the mount within which another one's target lies, or nil.
func (st *stage) covering(target string) *openshell.Mount {
	var best *openshell.Mount
	for i := range st.mounts {
		m := &st.mounts[i]
		if m.Target != target && under(target, m.Target) && (best == nil || len(m.Target) > len(best.Target)) {
			best = m
		}
	}
	return best
}

func (st *stage) point(below, rel string, dir bool) error {
	parts := strings.Split(rel, "/")
	for i, part := range parts {
		below = filepath.Join(below, part)
		if i == len(parts)-1 && !dir {
			f, err := os.OpenFile(below, os.O_WRONLY|os.O_CREATE, 0o600)
			if err != nil {
				return fmt.Errorf("staging: %w", err)
			}
			if err := f.Close(); err != nil {
				return fmt.Errorf("staging: %w", err)
			}
			return st.give(below, 0o644)
		}
		if err := os.Mkdir(below, 0o755); errors.Is(err, fs.ErrExist) {
			continue
		} else if err != nil {
			return fmt.Errorf("staging: %w", err)
		}
		if err := st.give(below, 0o755); err != nil {
			return err
		}
	}
	return nil
}

func (st *stage) one(name string, m sandbox.Mount) error {
	switch m.Kind {
	case sandbox.Link:
		st.links = append(st.links, m)
		return nil
	case sandbox.Scratch:
		if !st.measured && slices.Contains(native.Shared, m.Target) && m.Access == sandbox.ReadWrite && !m.NoExec {
			return nil // the image's own, empty as every container's is
		}
		return st.scratch(name, m)
	case sandbox.Seed:
		return st.seed(m)
	case sandbox.Text:
		mode := m.Mode
		if mode == 0 {
			mode = 0o444
		}
		file, err := st.file(filepath.Join("text", name), slices.Concat(m.Begin, m.Content), mode&^0o222)
		if err != nil {
			return err
		}
		st.add(file, m.Target, sandbox.ReadOnly)
		return nil
	}
	if err := st.there(m); err != nil {
		if m.Optional && errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	st.add(m.Source, m.Target, m.Access)
	return nil
}

// seed writes a file into a scratch directory that is staged already.
func (st *stage) seed(m sandbox.Mount) error {
	over := st.covering(m.Target)
	if over == nil || !under(over.Source, filepath.Join(st.dir, scratchDir)) {
		return &MountError{m.Target, "there is no directory of the stage that it could lie in", ""}
	}
	at := over.Source
	parts := strings.Split(strings.TrimPrefix(m.Target[len(over.Target):], "/"), "/")
	for _, part := range parts[:len(parts)-1] {
		at = filepath.Join(at, part)
		if err := os.Mkdir(at, 0o700); errors.Is(err, fs.ErrExist) {
			continue
		} else if err != nil {
			return fmt.Errorf("staging: %w", err)
		}
		if err := st.give(at, 0o700); err != nil {
			return err
		}
	}
	f, err := os.OpenFile(filepath.Join(at, parts[len(parts)-1]), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("staging: %w", err)
	}
	if _, err := f.Write(m.Content); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("staging: %w", err)
	}
	return st.give(f.Name(), cmp.Or(m.Mode, 0o600))
}

func (st *stage) scratch(name string, m sandbox.Mount) error {
	mode := m.Mode
	if mode == 0 {
		mode = 0o755
	}
	if m.NoExec && m.Size > 0 {
		st.mounts = append(st.mounts, openshell.Mount{Target: m.Target, Memory: m.Size, Mode: uint32(mode)})
		st.allow(m.Target, m.Access)
		return nil
	}
	dir, err := st.mkdir(filepath.Join(scratchDir, name), mode)
	if err != nil {
		return err
	}
	st.add(dir, m.Target, m.Access)
	return nil
}

func (st *stage) add(source, target string, a sandbox.Access) {
	st.cover(openshell.Mount{Source: source, Target: target, ReadOnly: a == sandbox.ReadOnly})
	st.allow(target, a)
}

// allow notes what Landlock must let through: the outermost ones do.
func (st *stage) allow(target string, a sandbox.Access) {
	if underAny(target, st.write) || a == sandbox.ReadOnly && underAny(target, st.read) {
		return
	}
	if a == sandbox.ReadOnly {
		st.read = append(st.read, target)
	} else {
		st.write = append(st.write, target)
	}
}

// there wants a source that is what it is called: the gateway and Docker take
// a path, and would follow a link that somebody puts in its place.
func (st *stage) there(m sandbox.Mount) error {
	if strings.ContainsAny(m.Source, ":") {
		return &MountError{m.Source, "the gateway takes no path with a colon", "move the repository, or: mojoup-node config set node.sandbox.engine native"}
	}
	if !printable(m.Source) {
		return &MountError{m.Source, "the gateway takes no path with control characters or other bytes than text", "rename it, or: mojoup-node config set node.sandbox.engine native"}
	}
	resolve := uint64(unix.RESOLVE_NO_MAGICLINKS)
	if m.Access == sandbox.ReadWrite {
		resolve |= unix.RESOLVE_NO_SYMLINKS
	}
	stat, err := look(m.Source, resolve)
	if err != nil {
		return fmt.Errorf("mounting %q: %w", m.Source, err)
	}
	if m.Access == sandbox.ReadWrite {
		st.remember(m.Target, stat)
	}
	return nil
}

// look is the status of what stands at a path.
func look(p string, resolve uint64) (stat unix.Stat_t, err error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, p, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: resolve})
	if err != nil {
		return stat, err
	}
	defer unix.Close(fd)
	return stat, unix.Fstat(fd, &stat)
}

func (st *stage) remember(target string, stat unix.Stat_t) {
	st.same = append(st.same, sandbox.Check{Kind: sandbox.MustBeSame, Path: target, Device: stat.Dev, Inode: stat.Ino})
}

func printable(s string) bool {
	for _, r := range s {
		if r < ' ' || r == 0x7f || r == '�' {
			return false
		}
	}
	return strings.TrimSpace(s) == s
}

// under reports whether p is dir or lies below it.
func under(p, dir string) bool {
	return p == dir || dir == "/" || strings.HasPrefix(p, dir+"/")
}

func underAny(p string, dirs []string) bool {
	for _, dir := range dirs {
		if under(p, dir) {
			return true
		}
	}
	return false
}
