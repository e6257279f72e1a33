package plan

import (
	"crypto/sha1" // #nosec: the seal of a Java key store is SHA-1, and keeps nothing secret
	"crypto/x509"
	"encoding"
	"encoding/binary"
	"encoding/pem"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf16"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// Java reads neither the system's bundle nor a variable. It has a store of
// authorities in a format of its own and its proxy in a file, both below the
// directory of each installation. Sessions have files of their own over these:
// JAVA_TOOL_OPTIONS would do too, and would print a line for every JVM.

// javaRoots hold one installation in each directory; those that are not
// absolute lie below the home.
var javaRoots = []string{
	"/opt", "/usr/java", "/usr/lib/jvm", "/usr/lib64/jvm",
	".asdf/installs/java", ".local/share/mise/installs/java", ".sdkman/candidates/java",
}

// Where an installation has its store and its properties, since version 9 and
// before.
var (
	javaStores     = []string{"lib/security/cacerts", "jre/lib/security/cacerts"}
	javaProperties = []string{"conf/net.properties", "jre/lib/net.properties"}
)

// JavaRoots are the directories that hold installations of Java for a person
// with that home, and WantedOfJava the paths below them whose Node a plan needs:
// the same from session to session, as long as the directories are.
func JavaRoots(home string) []string {
	var out []string
	for _, root := range javaRoots {
		if !filepath.IsAbs(root) {
			root = filepath.Join(home, root)
		}
		out = append(out, root)
	}
	return out
}

// WantedOfJava is as [Wanted].
func WantedOfJava(home string) []string {
	stores, properties := javaFiles(home)
	return slices.Concat(stores, properties)
}

// javaFiles are the patterns of these files, for a person with that home.
func javaFiles(home string) (stores, properties []string) {
	for _, root := range JavaRoots(home) {
		for i := range javaStores {
			stores = append(stores, filepath.Join(root, "*", javaStores[i]))
			properties = append(properties, filepath.Join(root, "*", javaProperties[i]))
		}
	}
	return stores, properties
}

// standing are the real paths of what is a file on the host, each once; all
// patterns end in the same name.
func (h Host) standing(patterns []string) []string {
	var out []string
	for path, n := range h.At {
		if n.Kind == File && filepath.Base(path) == filepath.Base(patterns[0]) && slices.ContainsFunc(patterns, func(p string) bool { m, _ := filepath.Match(p, path); return m }) {
			out = append(out, n.Real)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// javaProxy is net.properties as it comes with Java, with the way out in it.
var javaProxy = func() string {
	host, port, _ := strings.Cut(Proxy, ":")
	text := "java.net.useSystemProxies=false\n"
	for _, scheme := range []string{"http", "https"} {
		text += scheme + ".proxyHost=" + host + "\n" + scheme + ".proxyPort=" + port + "\n"
	}
	return text + "http.nonProxyHosts=localhost|127.*|[::1]\nftp.nonProxyHosts=localhost|127.*|[::1]\n" +
		"jdk.http.auth.tunneling.disabledSchemes=Basic\njdk.http.ntlm.transparentAuth=disabled\njdk.net.unixdomain.tmpdir=/tmp\n"
}()

// javaWayOut tells each Java that is there inside where the proxy is.
func (b *builder) javaWayOut() {
	_, properties := javaFiles(b.in.User.Home)
	for _, path := range b.seen(properties) {
		b.text(path, javaProxy)
	}
	for _, path := range b.imageFiles(javaProperties) {
		b.add(sandbox.Mount{Kind: sandbox.Text, Target: path, Content: []byte(javaProxy), Optional: true})
	}
}

// seen are the files of this machine that fit the patterns and are there inside.
func (b *builder) seen(patterns []string) []string {
	return slices.DeleteFunc(b.in.Host.standing(patterns), func(path string) bool {
		return !b.bound(path) || b.in.Image && underAny(path, imageDirs)
	})
}

// imageFiles are where an image may have one of these files of Java: nobody can
// look into it here, so these are the places of Debian's, Fedora's and of images
// that are made for Java.
func (b *builder) imageFiles(names []string) (out []string) {
	if !b.in.Image {
		return nil
	}
	for _, root := range imageJavas {
		name := names[0]
		if strings.Contains(root, "java-8-") || strings.HasSuffix(root, "openjdk-8") {
			name = names[1]
		}
		out = append(out, filepath.Join(root, name))
	}
	return out
}

// imageJavas are where images have their Java.
var imageJavas = func() []string {
	out := []string{"/opt/java/openjdk", "/usr/java/default", "/usr/lib/jvm/default-java", "/usr/lib/jvm/java", "/usr/lib/jvm/jre"}
	for _, version := range []string{"8", "11", "17", "21", "25"} {
		out = append(out, "/usr/local/openjdk-"+version)
		for _, arch := range []string{"amd64", "arm64"} {
			out = append(out, "/usr/lib/jvm/java-"+version+"-openjdk-"+arch, "/usr/lib/jvm/temurin-"+version+"-jdk-"+arch)
		}
	}
	return out
}()

// javaTrust gives each Java that is there inside a store with the session's
// authority.
func (b *builder) javaTrust(joined []byte) {
	patterns, _ := javaFiles(b.in.User.Home)
	stores, maybe := b.seen(patterns), b.imageFiles(javaStores)
	if len(stores)+len(maybe) == 0 {
		return
	}
	store := b.in.Host.Java
	if store == nil {
		store = NewJavaStore(joined)
	}
	block, _ := pem.Decode(b.in.SessionCA)
	if block == nil {
		return
	}
	end := store.end(block.Bytes)
	for i, path := range slices.Concat(stores, maybe) {
		b.add(sandbox.Mount{Kind: sandbox.Text, Target: path, Begin: store.begin, Content: end, Optional: i >= len(stores)})
	}
}

// A JavaStore is the beginning of a store of authorities that every version of
// Java reads (JKS), which wants one more entry and its seal. No library writes
// one in two parts, and what all sessions share is the long one: two hundred
// kilobytes, written anew for each, would be a good part of a start.
type JavaStore struct {
	begin []byte
	// seal is the state of the seal's hash behind begin.
	seal []byte
}

// javaPassword is what all the world gives a store of authorities: its seal is
// against accidents.
const javaPassword = "changeit"

// made is when an entry says that it came: nothing reads it.
var made = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)

// NewJavaStore makes the beginning of a store with the certificates of a PEM
// text. Those that Go cannot read are left out: one that Java cannot read
// would spoil the store.
func NewJavaStore(text []byte) *JavaStore {
	var entries []byte
	n := uint32(0)
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			continue
		}
		n++
		entries = append(entries, javaEntry(fmt.Sprintf("machine-%04d", n), block.Bytes)...)
	}
	s := &JavaStore{begin: binary.BigEndian.AppendUint32(nil, 0xfeedfeed)}
	s.begin = binary.BigEndian.AppendUint32(s.begin, 2) // the format's version
	s.begin = append(binary.BigEndian.AppendUint32(s.begin, n+1), entries...)
	h := sha1.New() // #nosec: see above
	for _, unit := range utf16.Encode([]rune(javaPassword)) {
		h.Write(binary.BigEndian.AppendUint16(nil, unit))
	}
	h.Write([]byte("Mighty Aphrodite")) // as the format has it
	h.Write(s.begin)
	s.seal, _ = h.(encoding.BinaryMarshaler).MarshalBinary() // SHA-1's does not fail
	return s
}

// end is the last entry, one more certificate, and the seal.
func (s *JavaStore) end(certificate []byte) []byte {
	out := javaEntry("session", certificate)
	h := sha1.New() // #nosec: see above
	if err := h.(encoding.BinaryUnmarshaler).UnmarshalBinary(s.seal); err != nil {
		panic("BUG: " + err.Error())
	}
	h.Write(out)
	return h.Sum(out)
}

// javaEntry is one trusted certificate as the format has it.
func javaEntry(alias string, certificate []byte) []byte {
	text := func(b []byte, s string) []byte {
		return append(binary.BigEndian.AppendUint16(b, uint16(len(s))), s...)
	}
	out := text(binary.BigEndian.AppendUint32(nil, 2), alias)
	out = text(binary.BigEndian.AppendUint64(out, uint64(made.UnixMilli())), "X.509")
	return append(binary.BigEndian.AppendUint32(out, uint32(len(certificate))), certificate...)
}
