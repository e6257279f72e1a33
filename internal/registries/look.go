package registries

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/idna"
)

// maxSettings bounds one settings file, in bytes.
const maxSettings = 1 << 20

// A look is one search: what was looked at, and what came out.
type look struct {
	registry string
	env      Env
	vars     map[string]string // of env.Vars
	pass     []string          // what a client is given, see clientEnv
	key      string            // of the caches
	inputs   []input           // every path whose content or absence decided
	hosts    map[hostKey]map[string]bool
	notes    []string
	// unsettled says that a later search may find more although no input
	// changed: the answer is not kept.
	unsettled bool
}

type hostKey struct {
	name string
	port uint16
	tls  bool
}

func newLook(registry string, env Env) (*look, error) {
	if !filepath.IsAbs(env.Home) {
		return nil, errNoHome
	}
	l := &look{registry: registry, env: env, vars: map[string]string{}, hosts: map[hostKey]map[string]bool{}}
	for _, kv := range env.Vars {
		if k, v, ok := strings.Cut(kv, "="); ok && k != "" {
			l.vars[k] = v
		}
	}
	l.pass = l.clientEnv()
	l.key = l.cacheKey()
	return l, nil
}

func (l *look) note(format string, args ...any) {
	if n := fmt.Sprintf(format, args...); !slices.Contains(l.notes, n) {
		l.notes = append(l.notes, n)
	}
}

// addURL adds the host of a URL that source names. Schemes that no network is
// needed for are passed over. What is not a URL becomes a note that names the
// source and never the text.
func (l *look) addURL(raw, source string) {
	u, err := url.Parse(strings.TrimSpace(raw))
	if err != nil || u.Scheme == "" {
		l.note("what %s says is not a URL and was left out", source)
		return
	}
	switch strings.ToLower(u.Scheme) {
	case "https":
		l.addHost(u.Hostname(), cmp.Or(u.Port(), "443"), true, source)
	case "http":
		l.addHost(u.Hostname(), cmp.Or(u.Port(), "80"), false, source)
	case "file", "cdrom", "copy":
	default:
		l.note("%s asks for a %s connection, which a registry preset does not open", source, printable(u.Scheme))
	}
}

func (l *look) addHost(name, port string, tls bool, source string) {
	n, ok := normalHost(name)
	p, err := strconv.ParseUint(port, 10, 16)
	if !ok || err != nil || p == 0 {
		l.note("what %s says has no valid host and was left out", source)
		return
	}
	k := hostKey{n, uint16(p), tls}
	if l.hosts[k] == nil {
		l.hosts[k] = map[string]bool{}
	}
	l.hosts[k][source] = true
}

// hasHost reports whether the host of raw was added already, on any port.
func (l *look) hasHost(raw string) bool {
	u, err := url.Parse(raw)
	if err != nil {
		return false
	}
	n, ok := normalHost(u.Hostname())
	for k := range l.hosts {
		if ok && k.name == n {
			return true
		}
	}
	return false
}

func (l *look) found() Found {
	f := Found{Registry: l.registry, Notes: slices.Clone(l.notes)}
	for k, sources := range l.hosts {
		h := Host{Name: k.name, Port: k.port, TLS: k.tls}
		for s := range sources {
			h.Sources = append(h.Sources, s)
		}
		slices.Sort(h.Sources)
		f.Hosts = append(f.Hosts, h)
	}
	slices.SortFunc(f.Hosts, func(a, b Host) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Port, b.Port), cmp.Compare(fmt.Sprint(a.TLS), fmt.Sprint(b.TLS)))
	})
	return f
}

// normalHost returns a name as the policy compares it, or false for what is
// none. Wildcards are none: a settings file must not open a domain.
func normalHost(h string) (string, bool) {
	h = strings.TrimSuffix(strings.ToLower(h), ".")
	if a, err := netip.ParseAddr(h); err == nil {
		return a.String(), a.Zone() == ""
	}
	if strings.ContainsFunc(h, func(r rune) bool { return r > 127 }) {
		ascii, err := idna.Lookup.ToASCII(h)
		if err != nil {
			return "", false
		}
		h = ascii
	}
	if h == "" || len(h) > 253 {
		return "", false
	}
	labels := strings.Split(h, ".")
	for _, label := range labels {
		if !validLabel(label) {
			return "", false
		}
	}
	// A last label of digits is an address in one of its odd forms.
	last := labels[len(labels)-1]
	return h, strings.Trim(last, "0123456789") != "" && !strings.HasPrefix(last, "0x")
}

func validLabel(s string) bool {
	if s == "" || len(s) > 63 || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for _, c := range []byte(s) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return true
}

var (
	errNotRegular = errors.New("not a regular file")
	errTooLarge   = fmt.Errorf("larger than %d bytes", maxSettings)
)

// read returns a settings file, nil where there is none, and writes down that
// it was looked at.
func (l *look) read(path string) ([]byte, error) {
	l.saw(path)
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, l.failed(path, err)
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return nil, l.failed(path, errNotRegular)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxSettings+1))
	if err != nil {
		return nil, l.failed(path, err)
	}
	if len(b) > maxSettings {
		return nil, l.failed(path, errTooLarge)
	}
	return b, nil
}

func (l *look) failed(asked string, err error) error {
	return &ClientError{Registry: l.registry, Asked: asked, Err: err}
}

// at names a line of a file as a source.
func at(path string, line int) string { return path + ":" + strconv.Itoa(line) }

// variable names an environment variable as a source.
func variable(name string) string { return name + " in the environment" }

func joinWords(words []string) string { return strings.Join(words, ", ") }

// printable keeps a foreign word fit for a sentence.
func printable(s string) string {
	if len(s) > 40 {
		s = s[:40]
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
}
