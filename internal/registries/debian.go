package registries

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
)

// aptDir holds the files that decide, beside those that apt names itself.
const aptDir = "/etc/apt"

// findDebian asks apt, which reads its sources in both of their forms. The
// question takes no lists: those may never have been fetched.
func findDebian(ctx context.Context, l *look) error {
	apt, ok := l.program("apt-get")
	if !ok {
		return &MissingError{Registry: l.registry, Client: "apt-get"}
	}
	l.sawApt()
	asked := "apt-get indextargets"
	out, err := l.run(ctx, ask{args: []string{
		apt, "indextargets", "--no-release-info", "--format", "$(REPO_URI) $(SOURCESENTRY)",
	}})
	if err != nil {
		return l.failed(asked, err)
	}
	l.addApt(string(out), asked)
	if len(l.hosts) == 0 && len(l.notes) == 0 {
		return l.failed(asked, errors.New("apt has no package source"))
	}
	return nil
}

// sawApt writes down apt's settings. The time of a directory tells of files
// that come and go, each file's own of changes.
func (l *look) sawApt() {
	for _, p := range []string{"sources.list", "apt.conf", "sources.list.d", "apt.conf.d"} {
		p = filepath.Join(aptDir, p)
		l.saw(p)
		files, err := os.ReadDir(p)
		if err != nil {
			continue
		}
		for _, f := range files {
			l.saw(filepath.Join(p, f.Name()))
		}
	}
	if p := l.vars["APT_CONFIG"]; filepath.IsAbs(p) {
		l.saw(p)
	}
}

// addApt reads apt's answer: per line an address and the place that named it,
// "file:entry".
func (l *look) addApt(out, asked string) {
	seen := map[string]bool{}
	for line := range strings.Lines(out) {
		uri, entry, _ := strings.Cut(strings.TrimSpace(line), " ")
		if uri == "" {
			continue
		}
		source := asked
		if p, number, ok := cutLast(entry, ":"); ok && filepath.IsAbs(p) {
			source = p + ", entry " + printable(number)
			if !seen[p] {
				seen[p] = true
				l.saw(p)
				l.saw(filepath.Dir(p))
			}
		}
		// mirror+https://… names a list of mirrors, which only apt reads.
		if rest, ok := strings.CutPrefix(uri, "mirror+"); ok {
			uri = rest
			l.note("%s names a list of mirrors; the mirrors in it take rules of their own", source)
		}
		l.addURL(uri, source)
	}
}

func cutLast(s, sep string) (before, after string, ok bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}
