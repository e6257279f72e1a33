package sandbox

// A Tree is what [Guards] has to know of a repository: values that somebody
// read on the host, so that the table of protected paths itself stays pure.
type Tree struct {
	// Top is the real path of the work tree.
	Top string
	// GitDir is the git directory of this work tree, CommonDir the one that it
	// shares with others. They differ in a linked worktree only, and are empty
	// where there is no git.
	GitDir, CommonDir string
	// GitFile says that .git in Top is a file that points to GitDir.
	GitFile bool
	// Targets are paths below Top that the host's git would run or obey,
	// because its configuration names them (core.hooksPath, include.path, …).
	Targets []string
	// Unclear are keys of the host's git configuration that name a program of
	// which cannot be told whether a session could write it.
	Unclear []string
	// Nested are the git directories of other repositories below Top.
	Nested []string
	// Protect are paths below Top that the policy protects. A missing one is
	// held by an empty directory.
	Protect []string
	// At says what stands at each path that [Watched] names. A path that is
	// not in it counts as unknown, and is refused.
	At map[string]Entry
}

// Linked reports whether the tree is a linked worktree.
func (t Tree) Linked() bool { return t.GitDir != t.CommonDir }

// An Entry is what stands at one path.
type Entry struct {
	Is EntryKind
	// Shared names a file, at or below the path, that has another hard link:
	// through that one it could be written in spite of a read-only mount.
	Shared string
	// Held says that this is another session's placeholder: it goes when that
	// session ends, so this one must hold it as well.
	Held bool
	// Sheltered says that the file stands in its [ShelterDir], with the link to
	// it at the path: Is and Shared are the file's own.
	Sheltered bool
	// Closed says that the session's user can neither make nor rename anything
	// in the directory above, nor get the right to: nothing has to be held or
	// pinned there.
	Closed bool
}

// EntryKind is the kind of a directory entry, never that of a link's target.
type EntryKind uint8

const (
	Unknown      EntryKind = iota // not looked at: refused
	Missing                       // nothing there
	RegularFile                   // an ordinary file
	Directory                     // a directory
	SymbolicLink                  // refused where a path is protected
	SpecialFile                   // pipe, socket or device: refused
)
