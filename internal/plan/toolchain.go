package plan

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/mojoup/mojoup-node/internal/repo"
	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// A manager is one program that keeps toolchains, and where. Its directory is
// there inside, read-only, but for credentials.
type manager struct {
	name    string
	root    string   // below the home, or absolute
	hide    []string // below root: empty inside, mostly because of credentials
	scratch []string // below root: written at work, private and empty inside
}

func (m manager) in(home string) string {
	if filepath.IsAbs(m.root) {
		return m.root
	}
	return filepath.Join(home, m.root)
}

var managers = []manager{
	{name: "asdf", root: ".asdf"},
	{name: "bun", root: ".bun/bin"},
	{name: "bun", root: ".bun/install/global"},
	{name: "cargo", root: ".cargo/bin"}, // the rest of CARGO_HOME is written at work, and holds credentials
	{name: "claude", root: ".local/share/claude"},
	{name: "deno", root: ".deno/bin"},
	{name: "fnm", root: ".fnm", hide: []string{"node-versions/*/installation/etc/npmrc"}},
	{name: "fnm", root: ".local/share/fnm", hide: []string{"node-versions/*/installation/etc/npmrc"}},
	{name: "ghcup", root: ".ghcup"},
	{name: "go", root: "go/bin"}, // the module cache beside it is written at work
	{name: "go", root: "sdk"},
	{name: "goenv", root: ".goenv"},
	{name: "homebrew", root: "/home/linuxbrew/.linuxbrew"},
	{name: "mise", root: ".local/share/mise"},
	{name: "nodenv", root: ".nodenv"},
	{name: "nvm", root: ".nvm", hide: []string{".npmrc", "versions/node/*/etc/npmrc"}},
	{name: "pipx", root: ".local/pipx"},
	{name: "pipx", root: ".local/share/pipx"},
	{name: "pnpm", root: ".local/share/pnpm", scratch: []string{"store"}},
	// Its wrapper around pip fails after every install where it cannot write
	// its shims; without the wrapper pip installs for the person, as it should.
	{name: "pyenv", root: ".pyenv", hide: []string{"pyenv.d/exec/pip-rehash/*", "versions/*/pip.conf"}},
	{name: "rbenv", root: ".rbenv"},
	{name: "rustup", root: ".rustup"},
	{name: "sdkman", root: ".sdkman"},
	{name: "uv", root: ".local/share/uv", hide: []string{"credentials"}},
	{name: "volta", root: ".volta", hide: []string{"tools/image/node/*/etc/npmrc"}},
}

// prefixMarks tell a directory that holds a whole installation (PREFIX/bin,
// PREFIX/lib) from one that only has a bin.
var prefixMarks = []string{"include", "lib", "lib64", "libexec", "pkg"}

// prefixHide are files of an installation that may hold credentials.
var prefixHide = []string{".condarc", "condarc", "etc/npmrc", "pip.conf"}

// notOnPath are parts of the file system that are never mounted because PATH
// names them.
var notOnPath = []string{"/boot", "/dev", "/etc", "/proc", "/root/.ssh", "/run", "/sys", "/var/lib", "/var/log", "/var/run", "/var/spool"}

// ownPrefix is where installers inside put programs when the usual directory is
// the host's, and so read-only.
const ownPrefix = ".local/session"

// toolchains makes the person's own programs usable, read-only.
func (b *builder) toolchains() {
	b.frozen = map[string]bool{}
	for _, m := range managers {
		root := m.in(b.in.User.Home)
		n, ok := b.stands(root)
		if !ok || n.Kind != Dir {
			continue
		}
		if b.mountTool(root, n, m.hide) {
			for _, rel := range m.scratch {
				if _, ok := b.stands(filepath.Join(root, rel)); ok {
					b.add(sandbox.Mount{Kind: sandbox.Scratch, Target: filepath.Join(n.Real, rel), Mode: 0o700, Access: sandbox.ReadWrite})
				}
			}
		}
	}
	b.searchPath()
}

// mountTool mounts one directory of programs at its real path, with what leads
// to it, and reports whether it did.
func (b *builder) mountTool(path string, n Node, hide []string) bool {
	if why := b.forbidden(n.Real); why != "" {
		b.note("%s is not there inside: %s", path, why)
		return false
	}
	b.frozen[path] = true
	b.frozen[n.Real] = true
	if !b.bound(n.Real) && !underAny(n.Real, b.repositoryRoots()) {
		b.add(sandbox.Mount{Kind: sandbox.Bind, Source: n.Real, Target: n.Real, Optional: true})
	}
	b.links(n.Links)
	for _, secret := range b.in.Host.matches(path, hide) {
		s := b.in.Host.At[secret]
		switch {
		case s.Kind == Dir:
			b.add(sandbox.Mount{Kind: sandbox.Scratch, Target: s.Real, Mode: 0o500})
		case under(s.Real, n.Real):
			b.text(s.Real, "")
		}
	}
	return true
}

// forbidden says why a directory must not be seen inside although a program is
// looked for there, or "".
func (b *builder) forbidden(dir string) string {
	switch {
	case under(b.home, dir) || dir == "/":
		return "it is, or contains, the home directory"
	case underAny(dir, notOnPath):
		return "it is a directory of the system"
	}
	for _, secret := range append(repo.SignInDirs(b.home), b.in.Private...) {
		if under(secret, dir) || under(dir, secret) {
			return "it overlaps " + secret
		}
	}
	return ""
}

// searchPath carries the caller's PATH over: what is there inside anyway stays,
// what is the person's own is mounted, the rest is left out and named.
func (b *builder) searchPath() {
	own := filepath.Join(b.in.User.Home, ".local", "bin")
	dirs := searchPath(b.variable("PATH"))
	if len(dirs) == 0 {
		dirs = searchPath("/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	}
	var missing []string
	for _, dir := range dirs {
		n, ok := b.stands(dir)
		switch {
		case b.bound(dir), underAny(dir, b.repositoryRoots()), underAny(dir, rootDirs):
		case !ok || n.Kind != Dir:
			if dir != own {
				missing = append(missing, dir)
				continue
			}
		case b.bound(n.Real) || underAny(n.Real, b.repositoryRoots()):
			b.links(n.Links)
		case b.mountPrefix(dir):
			b.links(n.Links)
		case !b.mountTool(dir, n, nil):
			continue
		}
		b.path = append(b.path, dir)
	}
	if len(missing) > 0 {
		b.note("left out of PATH, because there is nothing: %s", strings.Join(missing, ", "))
	}
	if b.frozen[own] {
		b.path = append([]string{filepath.Join(b.in.User.Home, ownPrefix, "bin")}, b.path...)
	} else if !slices.Contains(b.path, own) {
		b.path = append([]string{own}, b.path...)
	}
}

// mountPrefix mounts the whole installation that a bin directory belongs to,
// where it is one: node and python find their libraries beside it.
func (b *builder) mountPrefix(dir string) bool {
	prefix := filepath.Dir(dir)
	n, ok := b.stands(prefix)
	local := filepath.Join(b.in.User.Home, ".local")
	if filepath.Base(dir) != "bin" || !ok || n.Kind != Dir || prefix == local || b.forbidden(n.Real) != "" {
		return false
	}
	if _, working := b.stands(filepath.Join(prefix, ".git")); working {
		return false // a project, not an installation: only its bin
	}
	if len(b.in.Host.matches(prefix, prefixMarks)) == 0 {
		return false
	}
	return b.mountTool(prefix, n, prefixHide)
}

// pip refuses to install for the person where a system's packages are not its
// own, so as not to harm the system. Nothing of the system can be harmed here.
const pipAllowed = "PIP_BREAK_SYSTEM_PACKAGES=1"

// installers point programs that install for the person to a directory that
// can be written, where their usual one is the host's.
func (b *builder) installers() []string {
	home := b.in.User.Home
	own := filepath.Join(home, ownPrefix)
	env := []string{pipAllowed}
	set := func(frozen string, vars ...string) {
		if b.frozen[filepath.Join(home, frozen)] {
			env = append(env, vars...)
		}
	}
	set(".local/bin", "PYTHONUSERBASE="+own)
	set("go/bin", "GOBIN="+own+"/bin")
	set(".cargo/bin", "CARGO_INSTALL_ROOT="+own)
	set(".local/share/uv", "UV_TOOL_BIN_DIR="+own+"/bin", "UV_TOOL_DIR="+own+"/uv")
	return env
}
