// Package gitpush promises to read what a git push asks for exactly as git's
// own server would, or not at all.
//
// A push over HTTP is two requests (gitprotocol-http, gitprotocol-pack):
//
//	GET  …/info/refs?service=git-receive-pack   what the server has: [Advertisement]
//	POST …/git-receive-pack                     what is to change: [Read]
//
// The second begins with a list of commands and goes on with a pack, which is
// not looked at. What is read is bounded, and only forms that every server
// reads in the same way are taken.
package gitpush

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

const (
	// maxHead is how long the list of commands may be, in bytes; maxCommands how
	// many there may be. A person's push changes a handful of references.
	maxHead     = 256 << 10
	maxCommands = 1000
	// maxPacket is the longest that git writes (LARGE_PACKET_MAX).
	maxPacket = 65520
)

// A Command changes one reference. An id is 40 or 64 hexadecimal digits.
type Command struct {
	Old, New, Ref string
}

// Creates reports whether the reference is said not to be there.
func (c Command) Creates() bool { return isZero(c.Old) }

// Deletes reports whether the reference is to go.
func (c Command) Deletes() bool { return isZero(c.New) }

// A Request is what a push asks for, without its pack.
type Request struct {
	Commands []Command
	// Head is what was read: it is to be sent on in front of the rest.
	Head []byte
	// Options are what the push asks of the server beside its commands.
	Options []string

	report, sideBand, sideBand64k, options bool
}

// A malformedError says what of a request is not as git writes it.
type malformedError struct{ reason string }

func (e *malformedError) Error() string { return "the push is not as git writes one: " + e.reason }

func malformed(format string, a ...any) error { return &malformedError{fmt.Sprintf(format, a...)} }

// packets reads pkt-lines and keeps what it has read.
type packets struct {
	from io.Reader
	kept []byte
}

// next returns the payload of a packet, nil for a flush. Packets that end
// something else than the whole list (0001, 0002) have no place in a push.
func (p *packets) next() ([]byte, error) {
	head, err := p.take(4)
	if err != nil {
		return nil, err
	}
	n, ok := length(head)
	switch {
	case !ok:
		return nil, malformed("a packet has no length")
	case n == 0:
		return nil, nil
	case n <= 4 || n > maxPacket:
		return nil, malformed("a packet has the length %d", n)
	}
	return p.take(n - 4)
}

func (p *packets) take(n int) ([]byte, error) {
	at := len(p.kept)
	if at+n > maxHead {
		return nil, malformed("its list of commands is longer than %d bytes", maxHead)
	}
	p.kept = append(p.kept, make([]byte, n)...)
	if _, err := io.ReadFull(p.from, p.kept[at:]); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, malformed("it ends within its list of commands")
		}
		return nil, err
	}
	return p.kept[at : at+n : at+n], nil
}

// length reads four hexadecimal digits, of either case as git does.
func length(b []byte) (n int, ok bool) {
	for _, c := range b {
		v, ok := unhex(c)
		if !ok {
			return 0, false
		}
		n = n<<4 | v
	}
	return n, true
}

func unhex(c byte) (int, bool) {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0'), true
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10, true
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10, true
	}
	return 0, false
}

// Read reads the commands of a push up to its pack, of which it takes nothing.
// A push without any is a probe, by which git finds out whether it may.
func Read(from io.Reader) (*Request, error) {
	p := &packets{from: from}
	r := &Request{}
	var cert bytes.Buffer
	size := 0
	for {
		line, err := p.next()
		if err != nil {
			return nil, err
		}
		if line == nil {
			break
		}
		line = bytes.TrimSuffix(line, []byte("\n"))
		if bytes.HasPrefix(line, []byte("shallow ")) {
			if _, ok := id(string(line[len("shallow "):])); !ok {
				return nil, malformed("a line that begins with shallow names no commit")
			}
			continue
		}
		text, capabilities, listed := strings.Cut(string(line), "\x00")
		if listed != (size == 0) {
			return nil, malformed("its capabilities do not stand beside its first command")
		}
		if listed {
			if size, err = r.negotiate(capabilities); err != nil {
				return nil, err
			}
		}
		if listed && text == "push-cert" {
			if err := readCertificate(p, &cert); err != nil {
				return nil, err
			}
			continue
		}
		if cert.Len() > 0 {
			return nil, malformed("it has commands beside those that are signed")
		}
		if err := r.command(text, size); err != nil {
			return nil, err
		}
	}
	if cert.Len() > 0 {
		if err := r.signed(cert.String(), size); err != nil {
			return nil, err
		}
	}
	if err := r.readOptions(p); err != nil {
		return nil, err
	}
	r.Head = p.kept
	return r, nil
}

// negotiate reads what the client can do, and returns the length of its ids.
func (r *Request) negotiate(capabilities string) (size int, err error) {
	size = 40
	for _, c := range strings.Fields(capabilities) {
		switch c {
		case "report-status", "report-status-v2":
			r.report = true
		case "side-band":
			r.sideBand = true
		case "side-band-64k":
			r.sideBand64k = true
		case "push-options":
			r.options = true
		case "object-format=sha1":
		case "object-format=sha256":
			size = 64
		default:
			if strings.HasPrefix(c, "object-format=") {
				return 0, malformed("its ids are of a kind that nobody knows")
			}
		}
	}
	return size, nil
}

func (r *Request) command(text string, size int) error {
	old, rest, ok := strings.Cut(text, " ")
	fresh, ref, ok2 := strings.Cut(rest, " ")
	c := Command{Ref: ref}
	var okOld, okNew bool
	c.Old, okOld = id(old)
	c.New, okNew = id(fresh)
	switch {
	case !ok || !ok2 || !okOld || !okNew || len(c.Old) != size || len(c.New) != size || ref == "":
		return malformed("a command is not an old id, a new id and a reference")
	case c.Creates() && c.Deletes():
		return malformed("a command neither has nor leaves a reference")
	case len(r.Commands) == maxCommands:
		return malformed("it has more than %d commands", maxCommands)
	case slices.ContainsFunc(r.Commands, func(o Command) bool { return o.Ref == ref }):
		return malformed("it changes a reference twice")
	}
	r.Commands = append(r.Commands, c)
	return nil
}

// readCertificate reads the packets of a signed push.
func readCertificate(p *packets, to *bytes.Buffer) error {
	for {
		line, err := p.next()
		switch {
		case err != nil:
			return err
		case line == nil || bytes.IndexByte(line, 0) >= 0:
			return malformed("its certificate has no end")
		case string(line) == "push-cert-end\n":
			if to.Len() == 0 {
				return malformed("its certificate is empty")
			}
			return nil
		}
		to.Write(line)
	}
}

// signed reads the commands of a certificate: the lines between its head and
// its signature. git looks for the last line that could begin a signature;
// with more than one, two readers could find two lists.
func (r *Request) signed(cert string, size int) error {
	head, body, ok := strings.Cut(cert, "\n\n")
	if !ok || strings.Contains(head, "-----BEGIN ") || strings.Count(body, "-----BEGIN ") != 1 {
		return malformed("its certificate is not a head, commands and one signature")
	}
	commands, _, ok := strings.Cut("\n"+body, "\n-----BEGIN ")
	if !ok {
		return malformed("its certificate is not a head, commands and one signature")
	}
	for line := range strings.SplitSeq(strings.TrimPrefix(commands, "\n"), "\n") {
		if err := r.command(line, size); err != nil {
			return err
		}
	}
	return nil
}

func (r *Request) readOptions(p *packets) error {
	for r.options {
		line, err := p.next()
		if err != nil {
			return err
		}
		if line == nil {
			break
		}
		r.Options = append(r.Options, strings.TrimSuffix(string(line), "\n"))
	}
	return nil
}

// id brings an id into its one form.
func id(s string) (string, bool) {
	if len(s) != 40 && len(s) != 64 {
		return "", false
	}
	for i := range len(s) {
		if _, ok := unhex(s[i]); !ok {
			return "", false
		}
	}
	return strings.ToLower(s), true
}

func isZero(id string) bool { return strings.Trim(id, "0") == "" }
