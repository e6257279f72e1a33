package plan

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// rootDirs are what a system has in its root beside /usr: links into it on
// merged systems, directories on others.
var rootDirs = []string{"/bin", "/lib", "/lib32", "/lib64", "/libx32", "/nix", "/opt", "/sbin"}

// etcEntries are the only parts of /etc that exist inside. Left out on
// purpose: gitconfig, npmrc, pip.conf and their like (they may hold
// credentials and name programs of the host), environment and profile (they
// reset PATH), ssl/private and pki/tls/private, everything about users.
var etcEntries = []string{
	"ImageMagick-*", "OpenCL", "alternatives", "bash.bashrc", "bash_completion.d", "bashrc", "ca-certificates", "ca-certificates.conf",
	"crypto-policies", "debian_version", "fedora-release", "fonts", "gai.conf", "glvnd", "host.conf", "inputrc", "java", "java-*", "jvm", "ld-musl-*.path",
	"ld.so.cache", "ld.so.conf", "ld.so.conf.d", "locale.alias", "locale.conf", "localtime", "lsb-release", "magic", "magic.mime",
	"mime.types", "networks", "os-release", "perl", "pki/ca-trust", "pki/java", "pki/tls/cert.pem", "pki/tls/certs", "pki/tls/ct_log_list.cnf",
	"pki/tls/openssl.cnf", "protocols", "python3", "python3.*", "redhat-release", "rpc", "services", "shells", "ssl/ca-bundle.pem",
	"ssl/cert.pem", "ssl/certs", "ssl/openssl.cnf", "static", "system-release", "terminfo", "timezone", "vim", "wgetrc", "xattr.conf", "zsh",
}

// system is the minimal root: programs and libraries, read-only.
func (b *builder) system() {
	if b.in.Image {
		return
	}
	b.add(sandbox.Mount{Kind: sandbox.Bind, Source: "/usr", Target: "/usr"})
	for _, dir := range rootDirs {
		n, ok := b.stands(dir)
		switch {
		case !ok:
		case n.Text != "":
			b.add(sandbox.Mount{Kind: sandbox.Link, Source: n.Text, Target: dir})
		default:
			b.add(sandbox.Mount{Kind: sandbox.Bind, Source: dir, Target: dir, Optional: true})
		}
	}
	for _, path := range b.in.Host.matches("/etc", etcEntries) {
		n := b.in.Host.At[path]
		if n.Text != "" {
			b.add(sandbox.Mount{Kind: sandbox.Link, Source: n.Text, Target: path})
			continue
		}
		b.add(sandbox.Mount{Kind: sandbox.Bind, Source: path, Target: path, Optional: true})
	}
}

// matches are the paths below dir that exist and match one of the patterns,
// sorted.
func (h Host) matches(dir string, patterns []string) []string {
	var out []string
	for path, n := range h.At {
		rel, ok := strings.CutPrefix(path, dir+"/")
		if !ok || n.Kind == Absent && n.Text == "" {
			continue
		}
		if slices.ContainsFunc(patterns, func(p string) bool { m, _ := filepath.Match(p, rel); return m }) {
			out = append(out, path)
		}
	}
	slices.Sort(out)
	return out
}

// profile replaces the system's: those set PATH anew for every login shell,
// and agents do start login shells.
const profile = `# The environment of this session is complete as it is: PATH is not set anew.
if [ -n "$BASH_VERSION" ] && [ -n "$PS1" ]; then
	for f in /etc/bash.bashrc /etc/bashrc; do
		if [ -r "$f" ]; then . "$f"; fi
	done
	unset f
fi
`

// identity is who exists inside: root, the person, nobody. Other accounts of
// the machine are none of a session's business.
func (b *builder) identity() {
	u := b.in.User
	passwd, group := "", ""
	if u.UID != 0 {
		passwd += "root:x:0:0:root:/root:/bin/sh\n"
	}
	if u.GID != 0 {
		group += "root:x:0:\n"
	}
	passwd += u.Name + ":x:" + itoa(u.UID) + ":" + itoa(u.GID) + "::" + u.Home + ":" + b.shell() + "\n"
	group += u.Group + ":x:" + itoa(u.GID) + ":\n"
	if u.UID != 65534 {
		passwd += "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
	}
	if u.GID != 65534 {
		group += "nogroup:x:65534:\n"
	}
	b.text("/etc/passwd", passwd)
	b.text("/etc/group", group)
	if !b.in.Image { // a container has its own
		b.text("/etc/hostname", hostname+"\n")
		b.text("/etc/hosts", "127.0.0.1 localhost "+hostname+"\n::1 localhost ip6-localhost\n")
	}
	b.text("/etc/nsswitch.conf", "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nservices: files\nprotocols: files\n")
	b.text("/etc/profile", profile)
	if !b.in.Image {
		b.text("/etc/resolv.conf", "# Names are resolved by the proxy, by policy.\noptions timeout:1 attempts:1\n")
	}
}

// shell is the person's, where it exists inside.
func (b *builder) shell() string {
	if b.in.Image {
		return "/bin/bash" // which every image is looked at for
	}
	if underAny(b.in.User.Shell, []string{"/bin", "/usr", "/sbin", "/opt", "/nix"}) {
		return b.in.User.Shell
	}
	return "/bin/sh"
}

// scratch is everything that a session may write beside the repository.
func (b *builder) scratch() {
	dirs := []sandbox.Mount{
		{Kind: sandbox.Scratch, Target: b.runtimeDir(), Mode: 0o700},
		{Kind: sandbox.Scratch, Target: "/tmp", Mode: 0o1777},
		{Kind: sandbox.Scratch, Target: "/var/tmp", Mode: 0o1777},
		{Kind: sandbox.Scratch, Target: b.home, Mode: 0o700},
	}
	if !b.in.Image { // a container's own holds more than is ours
		dirs = append([]sandbox.Mount{{Kind: sandbox.Scratch, Target: "/run", Mode: 0o755}}, dirs...)
	}
	for i := range dirs {
		dirs[i].Access = sandbox.ReadWrite
	}
	// A home below /tmp must come after it.
	slices.SortStableFunc(dirs, func(a, c sandbox.Mount) int { return strings.Count(a.Target, "/") - strings.Count(c.Target, "/") })
	b.add(dirs...)
	b.links(b.in.Host.At[b.in.User.Home].Links)
	if !b.in.Image {
		b.add(sandbox.Mount{Kind: sandbox.Link, Source: "/run", Target: "/var/run"})
	}
}

func (b *builder) runtimeDir() string { return "/run/user/" + itoa(b.in.User.UID) }
