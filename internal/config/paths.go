package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
)

// maxSocket is the longest path of a socket, in bytes. The kernel has room for
// 107 (unix(7)); the rest is kept for what is made beside the socket.
const maxSocket = 100

// Directories of a system node.
const (
	systemConfig  = "/etc/mojoup/node.toml"
	systemState   = "/var/lib/mojoup"
	systemRuntime = "/run/mojoup"
)

// Paths are where a node keeps its things. All are absolute.
type Paths struct {
	// System is true for a node of the whole machine: that of root.
	System  bool
	Config  string // the file of settings
	State   string // directory: database, approvals
	Runtime string // directory: socket, staged files; gone at reboot
	// Register is the directory that names every node of this user, wherever
	// its own directories are; empty for none. Nothing moves it but
	// XDG_STATE_HOME.
	Register string
	// OrSystem is the socket of the system node, which is asked where none of
	// this person's own runs; "" for root and where MOJOUP_RUNTIME_DIR says who
	// is asked.
	OrSystem string
	// moved is true where MOJOUP_RUNTIME_DIR names the runtime directory.
	moved bool
}

// SocketName is the name of a node's socket, in whichever runtime directory.
const SocketName = "node.sock"

// PeopleName is the directory, in both directories of a system node, in which
// each person has one of their own.
const PeopleName = "users"

// UnfinishedName is the directory, in the state directory of a system node, that
// has a file for each person whose part of it has not ended in order yet.
const UnfinishedName = "unfinished"

// Served is where a system node keeps what is uid's, if it may be asked at all.
func (p Paths) Served(uid int) (Place, bool) {
	own := filepath.Join(PeopleName, strconv.Itoa(uid))
	return Place{State: filepath.Join(systemState, own), Runtime: filepath.Join(filepath.Dir(p.OrSystem), own)}, p.OrSystem != ""
}

// Socket is where the node of these paths listens.
func (p Paths) Socket() string { return filepath.Join(p.Runtime, SocketName) }

// Lock is the file whose lock makes one node of a runtime directory.
func (p Paths) Lock() string { return filepath.Join(p.Runtime, "node.lock") }

// Log is the log of a node that runs in the background.
func (p Paths) Log() string { return filepath.Join(p.Runtime, "node.log") }

// Tools are the directories with profiles of agent tools, for a person with
// that home: the administrator's, the person's, and the one beside the settings.
func (p Paths) Tools(home string) (dirs []string) {
	for _, beside := range []string{systemConfig, filepath.Join(home, ".config", "mojoup", "node.toml"), p.Config} {
		if dir := filepath.Join(filepath.Dir(beside), "tools"); !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// Empty is the directory over which engines mount.
func (p Paths) Empty() string { return filepath.Join(p.Runtime, "empty") }

// Stays reports whether a file of this name in a runtime directory is there
// also when no node runs.
func (p Paths) Stays(name string) bool {
	at := filepath.Join(p.Runtime, name)
	return at == p.Lock() || at == p.Log() || at == p.Empty() || name == PeopleName
}

// A PathError says why a place cannot be used.
type PathError struct {
	Path   string
	Reason string
	hint   string
}

func (e *PathError) Error() string {
	if e.Path == "" {
		return e.Reason
	}
	return e.Reason + ": " + e.Path
}

// Code is for programs.
func (e *PathError) Code() string { return "path-unusable" }

// Exit is that of not having found out.
func (e *PathError) Exit() int { return exitUnknown }

// Hint says what to do.
func (e *PathError) Hint() string { return e.hint }

const (
	moveRuntime  = "name a directory of your own in MOJOUP_RUNTIME_DIR"
	shortRuntime = "name a short directory of your own in MOJOUP_RUNTIME_DIR"
	ofRoot       = "the node there is for root to start; without MOJOUP_RUNTIME_DIR you have one of your own, else name a directory of yours in it"
)

// FindPaths finds the places of uid's node from its environment, and makes
// none of them. MOJOUP_CONFIG, MOJOUP_STATE_DIR and MOJOUP_RUNTIME_DIR go
// before everything; then root has those of the machine and anybody else the
// XDG directories. Without XDG_RUNTIME_DIR the runtime directory lies in
// /run/user/UID, else it is /tmp/mojoup-UID.
func FindPaths(getenv func(string) string, uid int) (Paths, error) {
	return finder{getenv: getenv, uid: uid, run: "/run/user", tmp: "/tmp", home: passwdHome}.find()
}

// A finder finds paths on a machine that tests can replace.
type finder struct {
	getenv   func(string) string
	uid      int
	run, tmp string
	home     func(uid int) string
}

func (f finder) find() (Paths, error) {
	p := Paths{System: f.uid == 0}
	if p.System {
		p.Config, p.State, p.Runtime = systemConfig, systemState, systemRuntime
	}
	p.Register = f.register()
	for _, moved := range []struct {
		variable string
		path     *string
	}{{"MOJOUP_CONFIG", &p.Config}, {"MOJOUP_STATE_DIR", &p.State}, {"MOJOUP_RUNTIME_DIR", &p.Runtime}} {
		path := f.getenv(moved.variable)
		if path == "" {
			continue
		}
		if !filepath.IsAbs(path) {
			return Paths{}, &PathError{Path: path, Reason: moved.variable + " is not an absolute path", hint: "begin it with /"}
		}
		*moved.path = filepath.Clean(path)
		p.moved = p.moved || moved.path == &p.Runtime
	}
	if !p.System && !p.moved {
		p.OrSystem = Paths{Runtime: systemRuntime}.Socket()
	}
	if err := f.fill(&p); err != nil {
		return Paths{}, err
	}
	if n := len(p.Socket()); n > maxSocket {
		return Paths{}, &PathError{Path: p.Socket(), Reason: fmt.Sprintf("the path of the socket has %d bytes, %d at most can be used", n, maxSocket), hint: shortRuntime}
	}
	return p, nil
}

// fill finds what is not decided yet.
func (f finder) fill(p *Paths) (err error) {
	if p.Config == "" {
		dir, err := f.xdg("XDG_CONFIG_HOME", ".config", "MOJOUP_CONFIG")
		if err != nil {
			return err
		}
		p.Config = filepath.Join(dir, "mojoup", "node.toml")
	}
	if p.State == "" {
		dir, err := f.xdg("XDG_STATE_HOME", ".local/state", "MOJOUP_STATE_DIR")
		if err != nil {
			return err
		}
		p.State = filepath.Join(dir, "mojoup")
	}
	if p.Runtime == "" {
		p.Runtime, err = f.runtime()
	}
	return err
}

// xdg finds a base directory. Relative ones are to be ignored, as the XDG
// specification has it.
func (f finder) xdg(variable, below, instead string) (string, error) {
	if dir := f.getenv(variable); filepath.IsAbs(dir) {
		return filepath.Clean(dir), nil
	}
	home := f.getenv("HOME")
	if !filepath.IsAbs(home) {
		home = f.home(f.uid)
	}
	if !filepath.IsAbs(home) {
		return "", &PathError{Reason: "there is no home directory: HOME is not set and uid " + strconv.Itoa(f.uid) + " has none", hint: "set HOME, or name the place in " + instead}
	}
	return filepath.Join(home, below), nil
}

// register lies where the state of a node is that nothing moves. Without a home
// there is none.
func (f finder) register() string {
	dir, err := filepath.Join(systemState, "nodes"), error(nil)
	if f.uid != 0 || filepath.IsAbs(f.getenv("XDG_STATE_HOME")) {
		if dir, err = f.xdg("XDG_STATE_HOME", ".local/state", ""); err != nil {
			return ""
		}
		dir = filepath.Join(dir, "mojoup", "nodes")
	}
	return dir
}

// runtime finds a directory that is gone at reboot and belongs to this user.
func (f finder) runtime() (string, error) {
	for _, dir := range []string{f.getenv("XDG_RUNTIME_DIR"), filepath.Join(f.run, strconv.Itoa(f.uid))} {
		if filepath.IsAbs(dir) && f.owns(dir) {
			return filepath.Join(filepath.Clean(dir), "mojoup"), nil
		}
	}
	dir := filepath.Join(f.tmp, "mojoup-"+strconv.Itoa(f.uid))
	return dir, checkRuntime(dir, f.uid)
}

// owns reports whether dir is a directory of this user.
func (f finder) owns(dir string) bool {
	info, err := os.Stat(dir)
	if err != nil || !info.IsDir() {
		return false
	}
	uid, ok := ownerOf(info)
	return ok && uid == f.uid
}

// MakeRuntime makes the runtime directory for this process's user, 0700 (0755
// for a system node, whose socket others may reach), and refuses one that is
// not ours: whoever owns it could put a socket of their own there.
func (p Paths) MakeRuntime() error {
	mode := fs.FileMode(0o700)
	if p.System && !p.moved {
		mode = 0o755
	}
	if err := os.MkdirAll(filepath.Dir(p.Runtime), 0o755); err != nil {
		return &PathError{Path: p.Runtime, Reason: "the runtime directory cannot be made (" + innermost(err).Error() + ")", hint: moveRuntime}
	}
	if err := os.Mkdir(p.Runtime, mode); err != nil && !errors.Is(err, fs.ErrExist) {
		return &PathError{Path: p.Runtime, Reason: "the runtime directory cannot be made (" + innermost(err).Error() + ")", hint: moveRuntime}
	}
	return checkRuntime(p.Runtime, os.Geteuid())
}

// checkRuntime refuses a runtime directory that is not ours; one that is missing
// is no error. It looks at the directory itself: in /tmp anybody can make a
// symbolic link of that name.
func checkRuntime(dir string, uid int) error {
	info, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	refuse := func(reason string) error { return &PathError{Path: dir, Reason: reason, hint: moveRuntime} }
	switch owner, ok := 0, false; {
	case err != nil:
		return refuse("the runtime directory cannot be read (" + innermost(err).Error() + ")")
	case info.Mode()&fs.ModeSymlink != 0:
		return refuse("the runtime directory is a symbolic link")
	case !info.IsDir():
		return refuse("the runtime directory is not a directory")
	default:
		owner, ok = ownerOf(info)
		if ok && owner == 0 && uid != 0 {
			return &PathError{Path: dir, Reason: "the runtime directory belongs to root", hint: ofRoot}
		}
		if !ok || owner != uid {
			return refuse(fmt.Sprintf("the runtime directory belongs to uid %d and not to uid %d", owner, uid))
		}
		if info.Mode().Perm()&0o022 != 0 {
			return refuse("others may write the runtime directory")
		}
	}
	return nil
}

// passwdHome asks the system's list of users.
func passwdHome(uid int) string {
	u, err := user.LookupId(strconv.Itoa(uid))
	if err != nil {
		return ""
	}
	return u.HomeDir
}
