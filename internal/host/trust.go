package host

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/mojoup/mojoup-node/internal/plan"
)

// Trust keeps the certificates of this machine between two looks: to read and
// join them takes longer than everything else. It is asked for with the files'
// identity each time, so that a changed file is read anew. The zero value is
// empty; it may be used concurrently.
type Trust struct {
	mu   sync.Mutex // guards what follows
	kept plan.Host  // its certificates
	of   []identity
	java javas
}

// javas are the installations of Java that one person sees.
type javas struct {
	roots []identity
	at    map[string]plan.Node
}

// identity tells one state of one file from another.
type identity struct {
	path    string
	size    int64
	changed time.Time
	file    fs.FileInfo // for os.SameFile
}

func (i identity) same(j identity) bool {
	return i.path == j.path && i.size == j.size && i.changed.Equal(j.changed) && (i.file == nil) == (j.file == nil) &&
		(i.file == nil || os.SameFile(i.file, j.file))
}

func identify(path string) identity {
	id := identity{path: path}
	if info, err := os.Stat(path); err == nil {
		id.size, id.changed, id.file = info.Size(), info.ModTime(), info
	}
	return id
}

// gather fills in the certificates of h: the system's bundles, and the files
// that extra names; and where a person with that home has Java, which wants
// them in a file of its own.
func (t *Trust) gather(h *plan.Host, home string, extra ...string) {
	if t == nil {
		t = &Trust{}
	}
	var now []identity
	for _, path := range slices.Concat(plan.BundlePaths, extra) {
		now = append(now, identify(path))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of == nil || !slices.EqualFunc(t.of, now, identity.same) {
		t.kept, t.of = readTrust(extra), now
	}
	t.java.look(home)
	maps.Copy(h.At, t.java.at)
	if len(t.java.at) > 0 && t.kept.Java == nil {
		t.kept.Java = plan.NewJavaStore(t.kept.Joined)
	}
	h.Bundles, h.ExtraCAs, h.Joined, h.Extra, h.Java = t.kept.Bundles, t.kept.ExtraCAs, t.kept.Joined, t.kept.Extra, t.kept.Java
}

// look looks anew where a directory of installations has changed, or a file that
// was found is no more.
func (j *javas) look(home string) {
	var now []identity
	for _, root := range plan.JavaRoots(home) {
		now = append(now, identify(root))
	}
	if slices.EqualFunc(j.roots, now, identity.same) && !j.gone() {
		return
	}
	j.roots, j.at = now, map[string]plan.Node{}
	for _, pattern := range plan.WantedOfJava(home) {
		for _, path := range expand(pattern) {
			if n, ok := look(path); ok {
				j.at[path] = n
			}
		}
	}
}

func (j *javas) gone() bool {
	for path := range j.at {
		if _, err := os.Stat(path); err != nil {
			return true
		}
	}
	return false
}

func readTrust(extra []string) (h plan.Host) {
	h.Bundles = bundles(plan.BundlePaths)
	for _, path := range extra {
		if b, err := readFile(path); err == nil {
			h.ExtraCAs = append(h.ExtraCAs, b)
		}
	}
	all := h.ExtraCAs
	if len(h.Bundles) > 0 {
		all = slices.Concat([][]byte{h.Bundles[0].Content}, all)
	}
	h.Joined, h.Extra = plan.JoinCertificates(all...), plan.JoinCertificates(h.ExtraCAs...)
	if h.Joined == nil {
		h.Joined = []byte{}
	}
	return h
}

// bundles reads the certificate files that exist, each once by its real path.
func bundles(paths []string) []plan.Bundle {
	var out []plan.Bundle
	for _, path := range paths {
		real, err := filepath.EvalSymlinks(path)
		if err != nil || slices.ContainsFunc(out, func(b plan.Bundle) bool { return b.Path == real }) {
			continue
		}
		if content, err := readFile(real); err == nil {
			out = append(out, plan.Bundle{Path: real, Content: content})
		}
	}
	return out
}
