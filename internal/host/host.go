// Package host promises the facts of this machine that a plan needs: what
// stands at the paths that package plan names, and the few files whose content
// matters. It reads as the uid of the process and changes nothing.
package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/mojoup/mojoup-node/internal/plan"
	"github.com/mojoup/mojoup-node/internal/repo"
)

// maxFile bounds each file that is read whole: bundles are 200 to 500 KiB.
const maxFile = 8 << 20

// Gather looks at the machine for a person with that home, whose environment
// holds env (KEY=VALUE; PATH, the variables that name certificate authorities
// and those that say where packages come from are read). What cannot be read
// counts as not there. trust keeps what takes long to read; nil keeps nothing.
func Gather(ctx context.Context, trust *Trust, home string, env []string) (plan.Host, error) {
	h := plan.Host{OS: runtime.GOOS, At: map[string]plan.Node{}}
	for _, path := range plan.Wanted(home, variable(env, "PATH")) {
		if err := ctx.Err(); err != nil {
			return plan.Host{}, fmt.Errorf("looking at the machine: %w", context.Cause(ctx))
		}
		for _, path := range expand(path) {
			if n, ok := look(path); ok {
				h.At[path] = n
			}
		}
	}
	trust.gather(&h, home, variable(env, "SSL_CERT_FILE"), variable(env, "NODE_EXTRA_CA_CERTS"))
	h.Ignore = ignore(home, env)
	h.Settings = map[string][]byte{}
	for _, file := range plan.SettingsFiles(home) {
		if b, err := readFile(file); err == nil {
			h.Settings[file] = b
		}
	}
	for _, name := range plan.ClientVariables {
		if v := variable(env, name); v != "" {
			h.Variables = append(h.Variables, name+"="+v)
		}
	}
	return h, nil
}

func expand(pattern string) []string {
	if !strings.Contains(pattern, "*") {
		return []string{pattern}
	}
	matches, _ := filepath.Glob(pattern) // only a malformed pattern fails, and ours are constants
	return matches
}

// look says what stands at one path.
func look(path string) (plan.Node, bool) {
	info, err := os.Lstat(path)
	if err != nil {
		return plan.Node{}, false
	}
	n := plan.Node{Real: path, Links: repo.Links(path)}
	if info.Mode()&fs.ModeSymlink != 0 {
		if n.Text, err = os.Readlink(path); err != nil {
			return plan.Node{}, false
		}
	}
	if info, err = os.Stat(path); err != nil {
		return n, true // a link that points nowhere is still a link
	}
	if len(n.Links) > 0 {
		if n.Real, err = filepath.EvalSymlinks(path); err != nil {
			return plan.Node{}, false
		}
	}
	switch {
	case info.IsDir():
		n.Kind = plan.Dir
	case info.Mode().IsRegular():
		n.Kind = plan.File
	}
	return n, true
}

// ignore reads the person's global gitignore from its default place.
func ignore(home string, env []string) []byte {
	dir := variable(env, "XDG_CONFIG_HOME")
	if dir == "" {
		dir = filepath.Join(home, ".config")
	}
	b, _ := readFile(filepath.Join(dir, "git", "ignore"))
	return b
}

func variable(env []string, name string) string {
	for _, kv := range slices.Backward(env) {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			return v
		}
	}
	return ""
}

// readFile reads a regular file, and waits for nothing.
func readFile(path string) ([]byte, error) {
	if !filepath.IsAbs(path) {
		return nil, fs.ErrNotExist
	}
	f, err := os.OpenFile(path, os.O_RDONLY|nonblock, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxFile {
		return nil, errors.New("not a regular file of acceptable size")
	}
	return io.ReadAll(io.LimitReader(f, maxFile))
}

// Person is the user of a uid, as this machine knows them. A uid without an
// entry has its numbers only; gid is then taken for its group.
func Person(uid, gid int, groups []int) plan.User {
	u := plan.User{UID: uid, GID: gid, Groups: groups}
	passwd, _ := readFile("/etc/passwd")
	if entry, err := user.LookupId(strconv.Itoa(uid)); err == nil {
		u.Name, u.Home = entry.Username, entry.HomeDir
	}
	if group, err := user.LookupGroupId(strconv.Itoa(gid)); err == nil {
		u.Group = group.Name
	}
	for line := range strings.Lines(string(passwd)) {
		fields := strings.Split(strings.TrimSpace(line), ":")
		if len(fields) >= 7 && fields[2] == strconv.Itoa(uid) {
			u.Shell = fields[6]
			break
		}
	}
	return u
}

// Places are the directories of this machine that may not be a session's
// repository: private are the node's own.
func Places(home string, env, private []string) repo.Places {
	passwd, _ := readFile("/etc/passwd")
	p := repo.Places{Home: home, Homes: repo.Homes(passwd), Node: private}
	for _, name := range []string{
		"ANTHROPIC_CONFIG_DIR", "CLAUDE_CONFIG_DIR", "CLAUDE_SECURESTORAGE_CONFIG_DIR", "CODEX_HOME", "COPILOT_HOME", "DOCKER_CONFIG", "GH_CONFIG_DIR", "GNUPGHOME",
	} {
		if dir := variable(env, name); filepath.IsAbs(dir) {
			p.SignIns = append(p.SignIns, dir)
		}
	}
	return p
}
