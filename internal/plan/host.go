package plan

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/mojoup/mojoup-node/internal/repo"
)

// Host is what a plan has to know of the machine: what stands at each path
// that [Wanted] names, and the content of a few files.
type Host struct {
	OS string // as Go spells it
	At map[string]Node
	// Bundles are the system's files of certificate authorities, by their real
	// paths, the one that programs look for first first.
	Bundles []Bundle
	// ExtraCAs are PEM files of authorities that the person's environment
	// names (SSL_CERT_FILE, NODE_EXTRA_CA_CERTS).
	ExtraCAs [][]byte
	// Joined is JoinCertificates of the first bundle and the extra ones, Extra
	// that of the extra ones alone. To read them takes longer than all the rest
	// of a plan, and they hardly ever change: whoever keeps them gives them
	// here. Nil means that Make joins them itself.
	Joined, Extra []byte
	// Java is what Joined makes for Java. Nil means that Make makes it itself.
	Java *JavaStore
	// Settings are the contents of those of [SettingsFiles] that exist.
	Settings map[string][]byte
	// Variables are those of [ClientVariables] that are set, KEY=VALUE.
	Variables []string
	// Ignore is the person's global gitignore.
	Ignore []byte
}

// A Bundle is one file of certificate authorities.
type Bundle struct {
	Path    string
	Content []byte
}

// NodeKind is what stands at a path, links followed.
type NodeKind uint8

const (
	Absent NodeKind = iota // nothing, or a link that leads nowhere
	File                   // a regular file
	Dir                    // a directory
)

// A Node is what stands at one path of the host.
type Node struct {
	Kind NodeKind
	Real string // with every link resolved
	// Text is what the path itself links to, as written; empty for no link.
	Text string
	// Links are the links that the path leads through, itself included.
	Links []repo.Link
}

// Wanted names the paths whose Node a plan needs, for a person with that home
// and PATH. Those with a '*' stand for all that match.
func Wanted(home, path string) []string {
	want := append([]string{home, "/usr"}, rootDirs...)
	for _, name := range etcEntries {
		want = append(want, filepath.Join("/etc", name))
	}
	for _, m := range managers {
		root := m.in(home)
		want = append(want, root)
		for _, rel := range append(slices.Clone(m.hide), m.scratch...) {
			want = append(want, filepath.Join(root, rel))
		}
	}
	for _, dir := range searchPath(path) {
		want = append(want, dir)
		prefix := filepath.Dir(dir)
		for _, rel := range append(slices.Clone(prefixMarks), prefixHide...) {
			want = append(want, filepath.Join(prefix, rel))
		}
		want = append(want, prefix, filepath.Join(prefix, ".git"))
	}
	slices.Sort(want)
	return slices.Compact(want)
}

// searchPath is the directories of a PATH that can mean the same inside:
// absolute ones, each once.
func searchPath(path string) []string {
	var out []string
	for _, dir := range strings.Split(path, ":") {
		if !filepath.IsAbs(dir) {
			continue
		}
		if dir = filepath.Clean(dir); !slices.Contains(out, dir) {
			out = append(out, dir)
		}
	}
	return out
}

// BundlePaths are where systems keep the file of certificate authorities, in
// the order in which Go's crypto/x509 looks.
var BundlePaths = []string{
	"/etc/ssl/certs/ca-certificates.crt",                // Debian, Ubuntu, Gentoo, Arch
	"/etc/pki/tls/certs/ca-bundle.crt",                  // Fedora, RHEL
	"/etc/ssl/ca-bundle.pem",                            // openSUSE
	"/etc/pki/tls/cacert.pem",                           // OpenELEC
	"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", // CentOS, RHEL
	"/etc/ssl/certs/ca-bundle.crt",                      // NixOS
	"/etc/ssl/cert.pem",                                 // Alpine
}
