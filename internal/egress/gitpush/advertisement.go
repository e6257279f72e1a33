package gitpush

import (
	"errors"
	"strings"
)

// What is kept of one advertisement at most.
const (
	maxKept      = 20_000  // references
	maxKeptBytes = 4 << 20 // of their names
)

// An Advertisement is what a server says that it has, read as it passes. Its
// zero value keeps nothing.
type Advertisement struct {
	// Keep says which references are worth keeping.
	Keep func(ref string) bool

	refs   map[string]string
	bytes  int
	part   []byte // of a packet that has not come whole
	lines  int
	flush  int // how many have come
	failed error
}

var errTooMany = errors.New("the server has more references than are kept")

// Write implements [io.Writer]; it never fails, so that what passes is not
// held up by what it means.
func (a *Advertisement) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 && a.failed == nil && a.flush < 2 {
		p = a.feed(p)
	}
	return n, nil
}

// feed takes from p what belongs to the packet under way, and returns the rest.
func (a *Advertisement) feed(p []byte) []byte {
	if missing := 4 - len(a.part); missing > 0 {
		n := min(missing, len(p))
		a.part, p = append(a.part, p[:n]...), p[n:]
		if len(a.part) < 4 {
			return p
		}
	}
	size, ok := length(a.part[:4])
	switch {
	case !ok || size > maxPacket || size > 0 && size <= 4:
		a.failed = malformed("a packet has no length")
		return nil
	case size == 0:
		a.part = a.part[:0]
		a.flush++
		return p
	}
	n := min(size-len(a.part), len(p))
	a.part, p = append(a.part, p[:n]...), p[n:]
	if len(a.part) == size {
		a.line(strings.TrimSuffix(string(a.part[4:]), "\n"))
		a.part = a.part[:0]
	}
	return p
}

func (a *Advertisement) line(text string) {
	a.lines++
	switch {
	case a.flush == 0:
		if a.lines != 1 || text != "# service=git-receive-pack" {
			a.failed = malformed("its answer is of another service")
		}
		return
	case strings.HasPrefix(text, "version ") || strings.HasPrefix(text, "shallow "):
		return
	}
	text, _, _ = strings.Cut(text, "\x00")
	hash, ref, _ := strings.Cut(text, " ")
	value, ok := id(hash)
	switch {
	case !ok || ref == "":
		a.failed = malformed("the server's list has a line that is none")
	case !strings.HasPrefix(ref, "refs/") || a.Keep == nil || !a.Keep(ref):
	case len(a.refs) == maxKept || a.bytes+len(ref) > maxKeptBytes:
		a.failed = errTooMany
	default:
		if a.refs == nil {
			a.refs = map[string]string{}
		}
		a.refs[ref] = value
		a.bytes += len(ref)
	}
}

// References are the ids of the references that were kept. The error says why
// they are not known.
func (a *Advertisement) References() (map[string]string, error) {
	if a.failed == nil && a.flush < 2 {
		return nil, malformed("the server's list has no end")
	}
	return a.refs, a.failed
}
