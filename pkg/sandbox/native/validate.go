package native

import (
	"fmt"
	"net/netip"
	"os"
	"path"
	"strings"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// A SpecError says what is wrong with a Spec, and where in it.
type SpecError struct {
	Field   string // "mount /usr", "protection /r/.git", "proxy"
	Problem string
}

func (e *SpecError) Error() string { return "sandbox: " + e.Field + ": " + e.Problem }

func wrong(field, format string, args ...any) error {
	return &SpecError{Field: field, Problem: fmt.Sprintf(format, args...)}
}

// validate refuses what cannot be made or would not mean what it says. It
// looks at values only; what stands on the host is the helper's to refuse.
func validate(s sandbox.Spec) error {
	for _, check := range []func(sandbox.Spec) error{
		validateNames, validateDirect, validateEnv, validateMounts, validateProtections, validateChecks,
	} {
		if err := check(s); err != nil {
			return err
		}
	}
	return nil
}

func validateNames(s sandbox.Spec) error {
	if !validID(s.ID) {
		return wrong("id", "%q is not 1 to 32 characters of a-z, 0-9 and '-'", s.ID)
	}
	if id := s.Identity; id.UID < 0 || id.GID < 0 {
		return wrong("identity", "user %d and group %d cannot be negative", id.UID, id.GID)
	}
	if len(s.Hostname) > 64 || strings.ContainsAny(s.Hostname, "\x00/ \n") {
		return wrong("host name", "%q is no host name", s.Hostname)
	}
	if l := s.Limits; l.Memory < 0 || l.Processes < 0 || l.Files < 0 || l.Disk < 0 || l.CPUs < 0 {
		return wrong("limits", "none may be negative")
	}
	if _, err := proxyAddress(s); err != nil {
		return err
	}
	return clean("working directory", s.WorkDir)
}

func validID(id string) bool {
	return id != "" && len(id) <= 32 && strings.Trim(id, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

func proxyAddress(s sandbox.Spec) (netip.AddrPort, error) {
	at, err := netip.ParseAddrPort(s.Proxy)
	if err != nil || !at.Addr().IsLoopback() || at.Addr().Zone() != "" || at.Port() == 0 {
		return at, wrong("proxy", "%q is not a loopback address with a port", s.Proxy)
	}
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port()), nil
}

// validateDirect wants names that stand in a hosts file as what they are.
func validateDirect(s sandbox.Spec) error {
	proxy, _ := proxyAddress(s) // looked at before
	at := map[string]string{}
	seen := map[netip.AddrPort]bool{}
	for _, d := range s.Direct {
		field := fmt.Sprintf("direct host %q", d.Host)
		addr, err := netip.ParseAddr(d.Address)
		switch here := netip.AddrPortFrom(addr, d.Port); {
		case len(d.Host) > 253 || strings.Trim(d.Host, "abcdefghijklmnopqrstuvwxyz0123456789-._") != "" || strings.Trim(d.Host, "0123456789.") == "":
			return wrong(field, "it is no name in lower case")
		case err != nil || !addr.Is4() || !addr.IsLoopback() || addr == proxy.Addr():
			return wrong(field, "%q is not a loopback address beside the proxy's", d.Address)
		case d.Port == 0 || seen[here]:
			return wrong(field, "port %d of %s is none, or taken", d.Port, d.Address)
		case at[d.Host] != "" && at[d.Host] != d.Address:
			return wrong(field, "it has two addresses")
		default:
			at[d.Host], seen[here] = d.Address, true
		}
	}
	return nil
}

func validateEnv(s sandbox.Spec) error { return checkEnv(s.Env) }

func checkEnv(env []string) error {
	for _, kv := range env {
		if strings.IndexByte(kv, '=') < 1 || strings.IndexByte(kv, 0) >= 0 {
			name, _, _ := strings.Cut(kv, "=") // a value may be a secret
			return wrong("environment", "%q is not NAME=VALUE", name)
		}
	}
	return nil
}

// clean wants an absolute path in its shortest form.
func clean(field, p string) error {
	switch {
	case strings.IndexByte(p, 0) >= 0:
		return wrong(field, "path %q holds a zero byte", p)
	case !path.IsAbs(p) || path.Clean(p) != p:
		return wrong(field, "%q is not a clean absolute path", p)
	}
	return nil
}

// textName is where the helper makes a text before it is mounted elsewhere, and
// begins the names of those that are begun.
const textName = "/.text"

// own are the directories that every sandbox gets from the engine itself.
var own = []string{"/proc", "/dev"}

func validateMounts(s sandbox.Spec) error {
	if s.Shared < 0 || s.Shared > len(s.Mounts) {
		return wrong("shared mounts", "there are %d mounts, not %d", len(s.Mounts), s.Shared)
	}
	for i, m := range s.Mounts {
		field := "mount " + m.Target
		if err := clean(field, m.Target); err != nil {
			return err
		}
		if m.Target == "/" {
			return wrong(field, "the root is the engine's own")
		}
		for _, dir := range own {
			if under(m.Target, dir) {
				return wrong(field, "%s is the engine's own", dir)
			}
		}
		if strings.HasPrefix(m.Target, textName) {
			return wrong(field, "names that begin with %s are the engine's own", textName)
		}
		if len(m.Begin) > 0 && m.Kind != sandbox.Text {
			return wrong(field, "only a text has a beginning")
		}
		if m.Access > sandbox.ReadWrite {
			return wrong(field, "unknown access %d", m.Access)
		}
		if err := validateMount(s, i, m); err != nil {
			return err
		}
	}
	return nil
}

func validateMount(s sandbox.Spec, i int, m sandbox.Mount) error {
	field := "mount " + m.Target
	cover := covering(s.Mounts[:i], m.Target)
	switch m.Kind {
	case sandbox.Bind:
		if m.Access == sandbox.ReadWrite && under(s.WorkDir, m.Source) {
			return wrong(field, "%s is writable and contains the node's own %s", m.Source, s.WorkDir)
		}
		return clean(field, m.Source)
	case sandbox.Scratch:
		if m.Size < 0 {
			return wrong(field, "negative size")
		}
	case sandbox.Text:
		if m.Access != sandbox.ReadOnly {
			return wrong(field, "a text is read-only")
		}
	case sandbox.Link:
		if cover != nil && cover.Kind == sandbox.Bind {
			return wrong(field, "a link cannot be made in %s, which is the host's", cover.Target)
		}
		if m.Source == "" || strings.IndexByte(m.Source, 0) >= 0 {
			return wrong(field, "a link to nothing")
		}
	case sandbox.Seed:
		if cover == nil || cover.Kind != sandbox.Scratch || cover.Access != sandbox.ReadWrite || cover.Target == m.Target {
			return wrong(field, "a file for the session to change can be made in a writable scratch directory only")
		}
	default:
		return wrong(field, "unknown kind %d", m.Kind)
	}
	return nil
}

func validateProtections(s sandbox.Spec) error {
	seen := map[string]bool{}
	for _, p := range s.Protect {
		field := "protection " + p.Path
		if err := clean(field, p.Path); err != nil {
			return err
		}
		if p.Guard > sandbox.Shelter {
			return wrong(field, "unknown guard %d", p.Guard)
		}
		m := covering(s.Mounts, p.Path)
		if m == nil || m.Access != sandbox.ReadWrite {
			return wrong(field, "it is in no writable mount")
		}
		for earlier := range seen {
			if under(earlier, p.Path) && earlier != p.Path {
				return wrong(field, "%s below it is protected before it", earlier)
			}
		}
		seen[p.Path] = true
	}
	return nil
}

func validateChecks(s sandbox.Spec) error {
	for _, c := range s.Checks {
		if c.Kind > sandbox.MustWrite {
			return wrong("check "+c.Path, "unknown kind %d", c.Kind)
		}
		if err := clean("check "+c.Path, c.Path); err != nil {
			return err
		}
	}
	return nil
}

// validateIdentity wants what this process can give.
func validateIdentity(id sandbox.Identity) error {
	if os.Geteuid() == 0 {
		return nil
	}
	if id.UID != os.Geteuid() || id.GID != os.Getegid() {
		return wrong("identity", "only a node that is root can run as user %d and group %d; this one is %d and %d",
			id.UID, id.GID, os.Geteuid(), os.Getegid())
	}
	groups, err := os.Getgroups()
	if err != nil {
		return fmt.Errorf("reading own groups: %w", err)
	}
	for _, g := range id.Groups {
		if g != id.GID && !contains(groups, g) {
			return wrong("identity", "only a node that is root can give group %d", g)
		}
	}
	return nil
}

func contains(list []int, n int) bool {
	for _, v := range list {
		if v == n {
			return true
		}
	}
	return false
}

// under reports whether p is dir or lies below it. A start asks some thousand
// times: no text is made for it.
func under(p, dir string) bool {
	if dir == "/" {
		return true
	}
	return strings.HasPrefix(p, dir) && (len(p) == len(dir) || p[len(dir)] == '/')
}

// covering is the mount in which path lies: the last one at or above it.
func covering(mounts []sandbox.Mount, p string) *sandbox.Mount {
	for i := len(mounts) - 1; i >= 0; i-- {
		m := &mounts[i]
		if (m.Kind == sandbox.Bind || m.Kind == sandbox.Scratch) && under(p, m.Target) {
			return m
		}
	}
	return nil
}
