package repo

import (
	"bufio"
	"bytes"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
)

// Places are the directories of this machine that no session's repository may
// be, contain or lie in.
type Places struct {
	// Home is the person's home, Homes those of others: a repository may lie
	// below one, but not be or contain one.
	Home  string
	Homes []string
	// Node are the node's own configuration, state and run directories.
	Node []string
	// SignIns are further sign-in directories or files, such as one that
	// CLAUDE_CONFIG_DIR names, beside those that [SignInDirs] knows.
	SignIns []string
}

// systemDirs may not be a repository, nor anything below them.
var systemDirs = []string{
	"/bin", "/boot", "/dev", "/efi", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/lost+found", "/nix/store",
	"/proc", "/run", "/sbin", "/sys", "/usr", "/var/cache", "/var/lib/docker", "/var/lib/dpkg", "/var/lib/containerd",
	"/var/lib/mojoup", "/var/lib/rpm", "/var/lib/systemd", "/var/log", "/var/run", "/var/spool",
}

// openBelow are parts of systemDirs where people do keep repositories.
var openBelow = []string{"/run/media", "/usr/local/src", "/usr/src"}

// topDirs may not be a repository themselves, but what is below them may.
var topDirs = []string{"/", "/home", "/media", "/mnt", "/nix", "/opt", "/srv", "/tmp", "/var", "/var/home", "/var/lib", "/var/tmp", "/run/media", "/usr/local/src", "/usr/src"}

// signInDirs hold credentials, by their path below a home. Neither they nor
// anything that contains them may be given to a session.
var signInDirs = []string{
	".aws", ".azure", ".claude", ".codex", ".config", ".config/anthropic", ".config/containers", ".config/doctl",
	".config/gcloud", ".config/gh", ".config/git", ".config/github-copilot", ".config/glab-cli", ".config/google-chrome",
	".config/chromium", ".config/BraveSoftware", ".config/heroku", ".config/hub", ".config/kilo", ".config/mojoup", ".config/op",
	".config/opencode", ".config/rclone", ".config/sops", ".copilot", ".docker", ".gemini", ".gnupg", ".kilocode", ".kube",
	".local/share/keyrings", ".local/share/kilo", ".local/share/mojoup", ".local/share/opencode", ".local/state/mojoup", ".mozilla",
	".password-store", ".ssh",
}

// parentsOnly are those of signInDirs that much else lives in as well: below
// them a repository may lie.
var parentsOnly = map[string]bool{".config": true}

// SignInDirs are the directories below home that hold sign-ins.
func SignInDirs(home string) []string {
	var out []string
	for _, dir := range signInDirs {
		out = append(out, filepath.Join(home, dir))
	}
	return out
}

// Allow refuses a repository that is a place where a session would reach what
// it must not: the machine itself, a home, a sign-in, the node. What holds for
// the work tree holds for the git directories, which are mounted as well. The
// refusal is an [*Error].
func (p Places) Allow(r Repository) error {
	for _, path := range []string{r.Top, r.GitDir, r.CommonDir} {
		if path == "" {
			continue
		}
		if err := p.allow(path); err != nil {
			return err
		}
		if err := p.allowSignIns(path); err != nil {
			return err
		}
	}
	return nil
}

func (p Places) allow(top string) error {
	for _, dir := range topDirs {
		if top == dir {
			return &Error{Path: top, Reason: "is a directory of the system, not a repository", Advice: "name a directory below it"}
		}
	}
	for _, dir := range systemDirs {
		if (under(top, dir) || under(top, real(dir))) && !underAny(top, openBelow) {
			return &Error{Path: top, Reason: "lies in the system directory " + dir, Advice: "copy or clone it to a directory of your own"}
		}
	}
	for _, home := range append([]string{p.Home}, p.Homes...) {
		if home = real(home); home != "" && home != "/" && under(home, top) {
			reason := "is a home directory"
			if home != top {
				reason = "contains the home directory " + printable(home)
			}
			return &Error{Path: top, Reason: reason + ", with everything that a session must not see", Advice: "name the project's directory below it"}
		}
	}
	for _, dir := range p.Node {
		if overlap(top, real(dir)) {
			return &Error{Path: top, Reason: "overlaps " + printable(dir) + ", which belongs to the node", Advice: "move the repository somewhere else"}
		}
	}
	return nil
}

func (p Places) allowSignIns(top string) error {
	refuse := func(dir string) error {
		return &Error{Path: top, Reason: "overlaps " + printable(dir) + ", where sign-ins are kept", Advice: "move the repository somewhere else"}
	}
	for _, name := range signInDirs {
		if p.Home == "" {
			break
		}
		dir := real(filepath.Join(p.Home, name))
		if under(dir, top) || under(top, dir) && !parentsOnly[name] {
			return refuse(dir)
		}
	}
	for _, dir := range p.SignIns {
		if dir = real(dir); overlap(top, dir) {
			return refuse(dir)
		}
	}
	return nil
}

// Homes reads the home directories of the people and services of this machine
// from a passwd file's content.
func Homes(passwd []byte) []string {
	var out []string
	lines := bufio.NewScanner(bytes.NewReader(passwd))
	for lines.Scan() {
		fields := strings.Split(lines.Text(), ":")
		if len(fields) < 7 || !filepath.IsAbs(fields[5]) || strings.HasSuffix(fields[6], "/nologin") || strings.HasSuffix(fields[6], "/false") {
			continue
		}
		if home := filepath.Clean(fields[5]); home != "/" {
			out = append(out, home)
		}
	}
	return out
}

// real follows links where the directory exists, so that a linked home is
// compared as what it is.
func real(dir string) string {
	if dir == "" {
		return ""
	}
	if r, err := filepath.EvalSymlinks(dir); err == nil {
		return r
	} else if !errors.Is(err, fs.ErrNotExist) {
		return filepath.Clean(dir)
	}
	// What does not exist yet is placed below the part that does.
	if parent := filepath.Dir(filepath.Clean(dir)); parent != dir {
		return filepath.Join(real(parent), filepath.Base(dir))
	}
	return filepath.Clean(dir)
}

func overlap(a, b string) bool { return b != "" && (under(a, b) || under(b, a)) }

func underAny(path string, roots []string) bool {
	for _, root := range roots {
		if under(path, root) {
			return true
		}
	}
	return false
}

// under reports whether path is root or lies below it.
func under(path, root string) bool {
	return root != "" && (path == root || root == "/" || strings.HasPrefix(path, root+"/"))
}
