package repo

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// maxIncludes is git's own bound on the depth of included files; maxWalk is
// how many entries of one protected directory are asked for other hard links.
const (
	maxIncludes = 10
	maxWalk     = 1000
)

// facts fills in what the table of protected paths has to know.
func (r *Repository) facts() error {
	r.Tree.Top, r.Tree.GitDir, r.Tree.CommonDir = r.Top, r.GitDir, r.CommonDir
	if r.GitDir != "" {
		files := []string{filepath.Join(r.CommonDir, "config"), filepath.Join(r.GitDir, "config.worktree")}
		for _, file := range files {
			if err := r.addTargets(r.Top, file, 0); err != nil {
				return err
			}
		}
		r.addSubmodules()
	}
	r.addNested()
	return r.lookAll()
}

// addSubmodules notes the .git file of each submodule that is checked out:
// git status in the superproject enters it and obeys what the file points to.
func (r *Repository) addSubmodules() {
	left := maxWalk
	_ = filepath.WalkDir(filepath.Join(r.GitDir, "modules"), func(path string, d fs.DirEntry, err error) error {
		if left--; left < 0 {
			return fs.SkipAll
		}
		if err != nil {
			return nil
		}
		if d.IsDir() {
			switch d.Name() {
			case "objects", "refs", "logs", "hooks", "info", "lfs":
				return fs.SkipDir
			}
			return nil
		}
		if d.Name() != "config" {
			return nil
		}
		if c, err := readGitConfig(path); err == nil {
			if tree, ok := c.Last("core.worktree"); ok {
				if dotgit := filepath.Join(absolute(filepath.Dir(path), tree), ".git"); isFile(dotgit) {
					r.target(dotgit)
				}
			}
		}
		return nil
	})
}

func isFile(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode().IsRegular()
}

// AddHostConfig adds what the host's own git configuration files make git run
// or obey below the work tree, such as a relative core.hooksPath. Missing
// files are nothing; what the person may not read, git may not either.
func (r *Repository) AddHostConfig(files ...string) error {
	r.HostConfig = append(r.HostConfig, files...)
	if r.GitDir == "" {
		return nil
	}
	for _, file := range files {
		if err := r.addTargets(r.Top, file, 0); err != nil {
			return err
		}
	}
	return r.lookAll()
}

// HostConfigs names the configuration files that a person's git reads beside
// the repository's, after git-config(1), "FILES".
func HostConfigs(home, xdgConfigHome string) []string {
	if xdgConfigHome == "" {
		xdgConfigHome = filepath.Join(home, ".config")
	}
	return []string{"/etc/gitconfig", filepath.Join(xdgConfigHome, "git", "config"), filepath.Join(home, ".gitconfig")}
}

func (r *Repository) lookAll() error {
	r.Tree.At = map[string]sandbox.Entry{}
	for _, path := range sandbox.Watched(r.Tree) {
		entry, err := r.entry(path)
		if err != nil {
			return err
		}
		r.Tree.At[path] = entry
	}
	return nil
}

// addTargets notes each path below the work tree that a configuration file
// makes the host's git run or obey, when it is started in the work tree top. An
// include is followed whatever its condition says: it may be true tomorrow.
func (r *Repository) addTargets(top, file string, depth int) error {
	if depth > maxIncludes {
		return &Error{Path: file, Reason: "is included more than ten levels deep, which git refuses too", Advice: "look for a file that includes itself"}
	}
	c, err := readGitConfig(file)
	if errors.Is(err, fs.ErrPermission) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, s := range c {
		section, _, _ := strings.Cut(s.key, ".")
		base, isInclude := top, false
		switch {
		case s.key == "core.hookspath", s.key == "core.attributesfile", s.key == "core.fsmonitor" && strings.Contains(s.value, "/") && !strings.Contains(s.value, " "):
		case (section == "include" || section == "includeif") && strings.HasSuffix(s.key, ".path"):
			base, isInclude = filepath.Dir(file), true
		default:
			r.addProgram(top, s)
			continue
		}
		path, ok := expand(base, s.value)
		if !ok {
			continue
		}
		r.target(path)
		if isInclude {
			if err := r.addTargets(top, path, depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

// expand makes a configured path absolute as git does.
func expand(base, value string) (string, bool) {
	switch {
	case value == "":
		return "", false
	case strings.HasPrefix(value, "~/"):
		home, err := os.UserHomeDir()
		return filepath.Join(home, value[2:]), err == nil
	case strings.HasPrefix(value, "~"), strings.HasPrefix(value, "%(prefix)"):
		return "", false // another person's home, or git's own installation
	}
	return absolute(base, value), true
}

// target notes path if it lies below the work tree. Where its directory is
// missing, the first missing one is noted: held, nothing can appear below it.
func (r *Repository) target(path string) {
	for _, top := range []string{r.Top, r.Given} {
		rel, err := filepath.Rel(top, path)
		if err != nil || rel == "." || !filepath.IsLocal(rel) {
			continue
		}
		path = r.Top
		for name := range strings.SplitSeq(rel, "/") {
			path = filepath.Join(path, name)
			if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
				break
			}
		}
		for _, have := range r.Tree.Targets {
			if have == path {
				return
			}
		}
		r.Tree.Targets = append(r.Tree.Targets, path)
		return
	}
}

// Sessions that begin and end in the same tree move files to their shelters
// and back and make and remove placeholders, each in a few system calls. What
// looks as if it met that is looked at again, at first at once: what is still
// so after looks tries is so.
const looks, atOnce = 6, 3

// settled calls look until it has no doubt.
func settled(look func() (doubt bool)) {
	for i := range looks {
		if !look() {
			return
		}
		if i >= atOnce {
			<-time.After(time.Millisecond)
		}
	}
}

// entry says what stands at one path.
func (r *Repository) entry(path string) (e sandbox.Entry, err error) {
	settled(func() (doubt bool) {
		e, doubt, err = r.entryNow(path)
		return doubt
	})
	return e, err
}

// entryNow says what stands there at this moment, and whether it may have been
// changed meanwhile.
func (r *Repository) entryNow(path string) (e sandbox.Entry, doubt bool, err error) {
	e.Closed = closed(filepath.Dir(path))
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		e.Is = sandbox.Missing
	case err != nil:
		return e, false, unreadable(path, err)
	case info.Mode()&fs.ModeSymlink != 0:
		doubt = linkEntry(path, &e)
	case info.Mode().IsRegular():
		e.Is = sandbox.RegularFile
		if otherLink(path, info) {
			e.Shared, doubt = path, true
		}
	case info.IsDir():
		e.Is, e.Shared = sandbox.Directory, r.sharedBelow(path)
		e.Held, err = held(path, info)
		doubt = err != nil || e.Shared != ""
	default:
		e.Is = sandbox.SpecialFile
	}
	return e, doubt, nil
}

// linkEntry says what a link stands for: the file in its shelter, or nothing
// that could be protected.
func linkEntry(path string, e *sandbox.Entry) (doubt bool) {
	to, err := os.Readlink(path)
	switch {
	case err != nil: // the file itself is back
		return true
	case to != sandbox.ShelterLink(path):
		e.Is = sandbox.SymbolicLink
		return false
	}
	e.Is, e.Sheltered, e.Held = sandbox.Missing, true, true
	info, err := os.Lstat(filepath.Join(filepath.Dir(path), to))
	if err != nil {
		return true // there is none, or it went back
	}
	e.Is = sandbox.SpecialFile
	if info.Mode().IsRegular() {
		e.Is = sandbox.RegularFile
	}
	if _, _, links := identity(info); links > 1 {
		e.Shared = path
	}
	return e.Shared != ""
}

// otherLink reports whether a file has another hard link than the one in its
// shelter, which a move makes first.
func otherLink(path string, info fs.FileInfo) bool {
	_, _, links := identity(info)
	if links < 2 {
		return false
	}
	inside, err := os.Lstat(filepath.Join(filepath.Dir(path), sandbox.ShelterLink(path)))
	return links > 2 || err != nil || !os.SameFile(info, inside)
}

// sheltered is where the file at path really stands: in the directory into
// which a session has it moved, or at path itself.
func sheltered(path string) string {
	if to, err := os.Readlink(path); err == nil && to == sandbox.ShelterLink(path) {
		return filepath.Join(filepath.Dir(path), to)
	}
	return path
}

// sharedBelow names the first file below dir with another hard link. Of a git
// directory only what git obeys is asked: its objects are hard links wherever
// somebody cloned by path, and content-addressed.
func (r *Repository) sharedBelow(dir string) string {
	roots := []string{dir}
	switch {
	case dir == r.CommonDir || dir == r.GitDir:
		roots = nil
		for _, name := range []string{"config", "config.worktree", "hooks", "info"} {
			roots = append(roots, filepath.Join(dir, name))
		}
	case r.GitDir != "" && (strings.HasPrefix(dir, r.CommonDir+"/") || strings.HasPrefix(dir, r.GitDir+"/")):
		switch filepath.Base(dir) {
		case "hooks", "info":
		default:
			return ""
		}
	}
	found, left := "", maxWalk
	for _, root := range roots {
		_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if left--; left < 0 || found != "" {
				return fs.SkipAll
			}
			if err != nil || !d.Type().IsRegular() {
				return nil
			}
			if info, err := d.Info(); err == nil && otherLink(path, info) {
				found = path
			}
			return nil
		})
	}
	return found
}
