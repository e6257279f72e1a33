// Package plan promises to turn what is wanted and what is there into what a
// sandbox is to be: a pure function of values. It opens no file and knows no
// kernel; package host looks at the machine for it.
package plan

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/mojoup/mojoup-node/internal/repo"
	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// Proxy is where every program inside finds the way out.
const Proxy = "127.0.0.1:3128"

// Where the session's own files lie inside.
const (
	runDir     = "/run/session"
	caFile     = runDir + "/ca.pem"     // the session's authority alone
	bundleFile = runDir + "/bundle.pem" // with those of the host
	ignoreFile = runDir + "/gitignore"
)

// A Plan is a complete specification and what people should know of it.
type Plan struct {
	Spec sandbox.Spec
	// Dir is the working directory inside, as the person spelled it.
	Dir string
	// Facts are what holds less than one might think, before it was tried.
	Facts []sandbox.Fact
	// Notes are what could not be had, one sentence each.
	Notes []string
}

// An Error says why no plan can be made.
type Error struct {
	What   string
	Advice string
}

func (e *Error) Error() string { return e.What }

// Hint is the next step for people.
func (e *Error) Hint() string { return e.Advice }

// Make plans one session. It fails with a [*Error], or with a
// [*sandbox.GuardError] where a path of the repository cannot be protected.
func Make(in Input) (Plan, error) {
	if in.Host.OS != "linux" {
		return Plan{}, &Error{What: "sandboxes need Linux", Advice: "run the node on Linux, or in a Linux virtual machine"}
	}
	in.User = in.User.complete()
	if err := in.check(); err != nil {
		return Plan{}, err
	}
	in.Repository = seenBy(in.Repository, in.User.UID)
	protect, facts, err := sandbox.Guards(in.Repository.Tree)
	if err != nil {
		return Plan{}, err
	}
	b := &builder{in: in, home: in.User.Home}
	if n := in.Host.At[in.User.Home]; n.Real != "" {
		b.home = n.Real
	}
	b.system()
	b.identity()
	b.scratch()
	b.toolchains()
	b.javaWayOut()
	shared := len(b.mounts)
	b.packages = b.clients()
	b.certificates()
	b.ignores(protect)
	b.logins()
	b.repository()
	protect = b.hide(protect)
	b.boundaries(protect)
	if err := b.files(); err != nil {
		return Plan{}, err
	}
	direct := b.direct()
	env := b.environment()
	return Plan{
		Spec: sandbox.Spec{
			ID:       in.ID,
			Identity: sandbox.Identity{UID: in.User.UID, GID: in.User.GID, Groups: in.User.Groups},
			Hostname: hostname,
			Mounts:   b.mounts,
			Shared:   shared,
			Protect:  protect,
			Proxy:    Proxy,
			Direct:   direct,
			Env:      env,
			Limits:   in.Limits,
			Checks:   b.checks(),
			WorkDir:  in.WorkDir,
		},
		Dir:   b.workDir(),
		Facts: append(facts, b.facts...),
		Notes: append(slices.Clone(in.Repository.Notes), b.notes...),
	}, nil
}

// seenBy drops what only held for whoever looked: for another person every
// directory counts as open, and the engine finds out.
func seenBy(r repo.Repository, uid int) repo.Repository {
	if r.Reader == uid {
		return r
	}
	r.Writable = true
	open := make(map[string]sandbox.Entry, len(r.Tree.At))
	for path, e := range r.Tree.At {
		e.Closed = false
		open[path] = e
	}
	r.Tree.At = open
	return r
}

// hostname is the same in every sandbox: the machine's own is nobody's
// business inside.
const hostname = "sandbox"

// builder collects the mounts in their order.
type builder struct {
	in     Input
	home   string // real path
	mounts []sandbox.Mount
	path   []string // PATH inside
	notes  []string
	facts  []sandbox.Fact
	frozen map[string]bool // toolchain directories that are read-only inside
	// packages are the variables that say where packages come from.
	packages []string
}

func (b *builder) add(m ...sandbox.Mount)       { b.mounts = append(b.mounts, m...) }
func (b *builder) note(format string, a ...any) { b.notes = append(b.notes, fmt.Sprintf(format, a...)) }
func (b *builder) text(target, content string)  { b.add(textFile(target, content)) }
func (b *builder) stands(path string) (Node, bool) {
	n, ok := b.in.Host.At[path]
	return n, ok && n.Kind != Absent
}

func textFile(target, content string) sandbox.Mount {
	return sandbox.Mount{Kind: sandbox.Text, Target: target, Content: []byte(content)}
}

// imageDirs are what an image brings along.
var imageDirs = append([]string{"/etc", "/srv", "/usr", "/var"}, rootDirs...)

// bound reports whether path lies in something of the host that is already
// mounted, so that what stands there on the host stands there inside, or in
// what is an image's to say.
func (b *builder) bound(path string) bool {
	if b.in.Image && underAny(path, imageDirs) {
		return true
	}
	inside := false
	for _, m := range b.mounts {
		if under(path, m.Target) && m.Kind != sandbox.Link && (m.Kind != sandbox.Text || path == m.Target) {
			inside = m.Kind == sandbox.Bind && m.Source == m.Target
		}
	}
	return inside
}

// links makes the symbolic links of the host that a spelled path leads through.
func (b *builder) links(links []repo.Link) {
	for _, l := range links {
		made := slices.ContainsFunc(b.mounts, func(m sandbox.Mount) bool { return m.Target == l.At })
		if made || b.bound(l.At) || underAny(l.At, b.repositoryRoots()) {
			continue
		}
		b.add(sandbox.Mount{Kind: sandbox.Link, Source: l.To, Target: l.At})
	}
}

// repositoryRoots are the directories that hold the repository, outermost
// first and none inside another.
func (b *builder) repositoryRoots() []string {
	r := b.in.Repository
	var roots []string
	for _, dir := range []string{r.Top, r.CommonDir, r.GitDir} {
		if dir != "" && !underAny(dir, roots) {
			roots = append(roots, dir)
		}
	}
	return slices.DeleteFunc(roots, func(dir string) bool {
		return slices.ContainsFunc(roots, func(other string) bool { return other != dir && under(dir, other) })
	})
}

func (b *builder) repository() {
	for _, root := range b.repositoryRoots() {
		b.add(sandbox.Mount{Kind: sandbox.Bind, Source: root, Target: root, Access: sandbox.ReadWrite})
	}
	b.links(b.in.Repository.Links)
	if !b.in.Repository.Writable {
		why := "you may not write in %s, so the session cannot either"
		if b.in.User.UID == 0 {
			why = "%s belongs to somebody else: inside, root has no rights over others' files; start the session as its owner"
		}
		b.note(why, b.in.Repository.Top)
	}
}

// hide covers what the policy hides, and drops the protections of what is not
// seen any more.
func (b *builder) hide(protect []sandbox.Protection) []sandbox.Protection {
	var files []string
	for _, h := range b.in.Repository.Hide {
		if h.Dir {
			b.add(sandbox.Mount{Kind: sandbox.Scratch, Target: h.Path, Mode: 0o500})
		} else {
			b.text(h.Path, "")
			files = append(files, strings.TrimPrefix(h.Path, b.in.Repository.Top+"/"))
		}
		protect = slices.DeleteFunc(protect, func(p sandbox.Protection) bool { return under(p.Path, h.Path) })
	}
	if len(files) > 0 {
		b.facts = append(b.facts, sandbox.Fact{Name: "hidden files", Strength: sandbox.Weaker, Detail: fmt.Sprintf(
			"%q: a program of the host that replaces such a file, as editors do, shows it to the session, which is said at once; a directory does not have this gap", files[:min(len(files), 5)])})
	}
	return protect
}

// files makes the session's own, which are the last to be made.
func (b *builder) files() error {
	for _, f := range b.in.Tool.Files {
		target := filepath.Join(b.home, f.Path)
		for _, m := range b.mounts {
			if m.Target == target || m.Kind == sandbox.Bind && under(target, m.Target) {
				return &Error{What: fmt.Sprintf("the tool's profile makes the file %s, where there is something of the host's or the node's", target), Advice: "give the file another path in the profile"}
			}
		}
		b.add(sandbox.Mount{Kind: sandbox.Seed, Target: target, Content: f.Text, Mode: 0o600})
	}
	return nil
}

// boundaries says which directories of the tree are mounts of their own: a
// rename into or out of one is answered as between two disks.
func (b *builder) boundaries(protect []sandbox.Protection) {
	var dirs []string
	for _, p := range protect {
		rel, err := filepath.Rel(b.in.Repository.Top, p.Path)
		if p.Guard == sandbox.Pin && err == nil && filepath.IsLocal(rel) && filepath.Base(rel) != ".git" {
			dirs = append(dirs, rel)
		}
	}
	if len(dirs) > 0 {
		shown := strings.Join(dirs[:min(len(dirs), 5)], ", ")
		b.note("%s cannot be renamed, since something below is protected; a rename across its border is refused as between two disks (mv copies instead, git mv fails)", shown)
	}
}

// workDir is the directory that the person was in, spelled as they did where
// the links on the way exist inside.
func (b *builder) workDir() string {
	r := b.in.Repository
	if rel, err := filepath.Rel(r.Top, r.Dir); err == nil && r.Given != "" {
		return filepath.Join(r.Given, rel)
	}
	return r.Dir
}

// checks are what the sandbox must find true of itself.
func (b *builder) checks() []sandbox.Check {
	r := b.in.Repository
	out := []sandbox.Check{
		{Kind: sandbox.MustBeSame, Path: r.Top, Device: r.Device, Inode: r.Inode},
		{Kind: sandbox.MustWrite, Path: b.home},
		{Kind: sandbox.MustNotOpen, Path: "/etc/shadow"},
		{Kind: sandbox.MustNotOpen, Path: filepath.Join(b.home, ".ssh")},
	}
	if r.Writable {
		out = append(out, sandbox.Check{Kind: sandbox.MustWrite, Path: r.Top})
	}
	for _, dir := range b.in.Private {
		out = append(out, sandbox.Check{Kind: sandbox.MustNotOpen, Path: dir})
	}
	// The engine looks at every protection itself; these two are asked for by
	// name, whatever the table says.
	out = append(out, sandbox.Check{Kind: sandbox.MustNotWrite, Path: filepath.Join(r.Top, ".mojoup")})
	if r.CommonDir != "" {
		out = append(out, sandbox.Check{Kind: sandbox.MustNotWrite, Path: filepath.Join(r.CommonDir, "hooks")})
	}
	return out
}

func itoa(n int) string { return strconv.Itoa(n) }

// under reports whether path is root or lies below it.
func under(path, root string) bool {
	return root != "" && (path == root || root == "/" || strings.HasPrefix(path, root+"/"))
}

func underAny(path string, roots []string) bool {
	return slices.ContainsFunc(roots, func(root string) bool { return under(path, root) })
}
