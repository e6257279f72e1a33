package repo

import (
	"path/filepath"
	"regexp"
	"strings"
)

// commitID is how git spells one: SHA-1 or SHA-256.
var commitID = regexp.MustCompile(`^(?:[0-9a-f]{40}|[0-9a-f]{64})$`)

// Head is the commit at which the work tree stands, or "" where there is none
// yet or git keeps it in a way that is not read here (reftable). Where the
// files lie is git's gitrepository-layout(5).
func (r Repository) Head() string {
	if r.GitDir == "" {
		return ""
	}
	text, err := readSmall(filepath.Join(r.GitDir, "HEAD"), 4<<10)
	if err != nil {
		return ""
	}
	line := strings.TrimSpace(string(text))
	ref, symbolic := strings.CutPrefix(line, "ref: ")
	if !symbolic {
		return commit(line)
	}
	if !strings.HasPrefix(ref, "refs/") || !filepath.IsLocal(ref) {
		return ""
	}
	if text, err := readSmall(filepath.Join(r.CommonDir, ref), 4<<10); err == nil {
		return commit(strings.TrimSpace(string(text)))
	}
	return r.packed(ref)
}

func (r Repository) packed(ref string) string {
	text, err := readSmall(filepath.Join(r.CommonDir, "packed-refs"), 16<<20)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if id, name, ok := strings.Cut(strings.TrimSpace(line), " "); ok && name == ref {
			return commit(id)
		}
	}
	return ""
}

func commit(s string) string {
	if commitID.MatchString(s) {
		return s
	}
	return ""
}
