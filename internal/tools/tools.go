// Package tools promises which agent tools a person has: those whose profiles
// ship with the program, and those of their own in files that nobody else may
// write. What a profile may say is package profile's.
package tools

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/mojoup/mojoup-node/internal/fault"
	"github.com/mojoup/mojoup-node/pkg/secrets/signin"
	"github.com/mojoup/mojoup-node/pkg/secrets/signin/profile"
)

// Dirs are directories with profiles, NAME.toml each: an administrator's, then
// the person's own. Of several profiles of one name the last one counts, and a
// built-in one counts last of all.
type Dirs []string

// maxFiles bounds how many profiles one directory may hold.
const maxFiles = 200

// Find returns the profile of that name. It reads no other: what is wrong with
// one tool's profile hinders no other tool.
func (d Dirs) Find(name string) (*profile.Profile, error) {
	if name != filepath.Base(name) || strings.ContainsAny(name, "/\\\x00") || strings.HasPrefix(name, ".") {
		return nil, &UnknownError{Tool: name, Known: d.names()}
	}
	for _, dir := range slices.Backward(d) {
		p, err := read(dir, name+extension)
		if err == nil || !errors.Is(err, fs.ErrNotExist) {
			return p, err
		}
	}
	if p := profile.Find(name); p != nil {
		return p, nil
	}
	return nil, &UnknownError{Tool: name, Known: d.names()}
}

const extension = ".toml"

// A Tool is one entry of the list of tools.
type Tool struct {
	Name string
	// File is the profile's, empty for a built-in one.
	File string
	// Replaces reports whether there is a built-in profile of that name too.
	Replaces bool
	// Profile is nil where Err says why it cannot be used.
	Profile *profile.Profile
	Err     error
}

// Fault is in one line why the profile cannot be used, with file, line and key
// where it says something wrong.
func (t Tool) Fault() string {
	wrong, ok := errors.AsType[*profile.Errors](t.Err)
	if !ok {
		return t.Err.Error()
	}
	first := wrong.Problems[0]
	if n := len(wrong.Problems) - 1; n > 0 {
		return fmt.Sprintf("%s (and %d more)", first, n)
	}
	return first.String()
}

// Advice is the next step for people.
func (t Tool) Advice() string {
	wrong, ok := errors.AsType[*profile.Errors](t.Err)
	if h, hints := t.Err.(interface{ Hint() string }); hints && !ok {
		return h.Hint()
	}
	if ok && len(wrong.Problems) == 1 && wrong.Problems[0].Hint != "" {
		return wrong.Problems[0].Hint
	}
	return "`mojoup-node tool check " + fault.Quoted(t.File) + "` names all that is wrong in it"
}

// Broken are the tools whose profiles cannot be used. A built-in one always can.
func (d Dirs) Broken() []Tool {
	if len(d.own()) == 0 {
		return nil
	}
	return slices.DeleteFunc(d.List(), func(t Tool) bool { return t.Err == nil })
}

// List returns all tools, by name, those whose profile cannot be used too.
func (d Dirs) List() (out []Tool) {
	for _, name := range d.names() {
		t := Tool{Name: name, Replaces: profile.Find(name) != nil}
		t.Profile, t.Err = d.Find(name)
		for _, dir := range slices.Backward(d) {
			file := filepath.Join(dir, name+extension)
			if _, err := os.Lstat(file); err == nil {
				t.File = file
				break
			}
		}
		t.Replaces = t.Replaces && t.File != ""
		out = append(out, t)
	}
	return out
}

// SignIns are those that the profiles know of. A profile that cannot be used
// knows of none: whoever runs its tool is told why.
func (d Dirs) SignIns() (all []signin.Tool) {
	own := d.own()
	if len(own) == 0 {
		return builtinSignIns()
	}
	state := d.state(own)
	known.Lock()
	defer known.Unlock()
	if known.state == state {
		return known.all
	}
	for _, t := range d.List() {
		if t.Profile != nil {
			all = append(all, signin.FromProfile(t.Profile)...)
		}
	}
	known.state, known.all = state, all
	return all
}

// known are the sign-ins of the directories that were read last, and what these were
// like: they are asked for several times in a start.
var known struct {
	sync.Mutex
	state string
	all   []signin.Tool
}

// state tells one state of the directories from another without reading a file. It
// has what a file is refused for, too.
func (d Dirs) state(own []string) string {
	var b strings.Builder
	look := func(path string) {
		if info, err := os.Lstat(path); err == nil {
			fmt.Fprintf(&b, "%q %v %d %d\n", path, info.Mode(), info.Size(), info.ModTime().UnixNano())
		}
	}
	for _, dir := range d {
		look(dir)
		for _, name := range own {
			look(filepath.Join(dir, name+extension))
		}
	}
	return b.String()
}

// builtinSignIns are not changed by anybody, and asked for at every start.
var builtinSignIns = sync.OnceValue(signin.Builtin)

// names are those of all profiles, without a look into the files.
func (d Dirs) names() []string {
	out := d.own()
	for _, p := range profile.Builtin() {
		out = append(out, p.Name)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// own are the names of those in the directories.
func (d Dirs) own() (out []string) {
	for _, dir := range d {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue // not there, which is usual; else each file of it says so
		}
		for _, e := range entries[:min(len(entries), maxFiles)] {
			if name, ok := strings.CutSuffix(e.Name(), extension); ok && name != "" && !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	return out
}

// An UnknownError names the tools that there are.
type UnknownError struct {
	Tool  string
	Known []string
}

func (e *UnknownError) Error() string { return fmt.Sprintf("unknown tool %q", e.Tool) }

// Hint lists what is known.
func (e *UnknownError) Hint() string {
	return "tools: " + strings.Join(e.Known, ", ") + "; any other command runs after --"
}

// A FileError says why a profile's file is not read.
type FileError struct{ File, Reason, Advice string }

func (e *FileError) Error() string { return "the profile " + e.File + " " + e.Reason }

// Hint is the next step for people.
func (e *FileError) Hint() string { return e.Advice }

// Read reads the profile in a file, as [Dirs.Find] does.
func Read(file string) (*profile.Profile, error) {
	return read(filepath.Dir(file), filepath.Base(file))
}

// read takes nothing from where others could have put it: a profile says to
// which hosts the person's keys go.
func read(dir, name string) (*profile.Profile, error) {
	file := filepath.Join(dir, name)
	bad := func(advice, format string, args ...any) error {
		return &FileError{file, fmt.Sprintf(format, args...), advice}
	}
	there, err := os.Lstat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, err
	case err != nil:
		return nil, bad("", "cannot be looked at: %v", errors.Unwrap(err))
	case !there.Mode().IsRegular():
		// A link may lead into a repository that a session can write.
		return nil, bad("put the file itself there", "is no regular file")
	}
	for _, path := range []string{dir, file} {
		info, err := os.Lstat(path)
		switch {
		case err != nil:
			return nil, bad("", "cannot be looked at: %v", errors.Unwrap(err))
		case path == dir && !info.IsDir():
			return nil, bad("make it a directory", "lies in %s, which is a link", dir)
		case !own(info):
			return nil, bad("chmod go-w "+fault.Quoted(path)+", and chown it to yourself", "can be written by others, by way of %s", path)
		}
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, bad("", "cannot be read: %v", errors.Unwrap(err))
	}
	defer f.Close()
	if opened, err := f.Stat(); err != nil || !os.SameFile(there, opened) {
		return nil, bad("try again", "was replaced while it was looked at")
	}
	text, err := io.ReadAll(io.LimitReader(f, profile.MaxSize+1))
	if err != nil {
		return nil, bad("", "cannot be read: %v", errors.Unwrap(err))
	}
	return profile.Parse(file, text)
}
