// Package lineage promises that one commit is said to come after another only
// where the commits themselves prove it, whoever wrote them down.
//
// The name of a commit is the hash of what it says, its parents among it. So a
// chain of commits whose hashes are right is a proof, and it does not matter
// that whoever is to be held to it keeps the store from which git reads them:
// git itself does not look at the hash of what it reads there.
package lineage

import (
	"bytes"
	"crypto/sha1" // #nosec: it is git's
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

const (
	// MaxCommits is how long a chain may be, with all that lies beside it.
	MaxCommits = 50_000
	// maxCommit is how long one commit may be, in bytes: a message with a
	// signature or two.
	maxCommit = 1 << 20
	maxHeader = 128
)

// Commits takes what `git cat-file --batch` writes about commits. The zero
// value knows none.
type Commits struct {
	parents map[string][]string
	part    []byte // of a header, or of a commit and the line break behind it
	id      string // of the commit under way
	size    int
	failed  error
}

// Write implements [io.Writer]. It takes everything, so that nobody who writes
// is held up, and stops reading at what is not in order.
func (c *Commits) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 && c.failed == nil {
		if c.id == "" {
			p = c.header(p)
		} else {
			p = c.content(p)
		}
	}
	return n, nil
}

// header reads "<id> commit <size>", or that something is missing.
func (c *Commits) header(p []byte) []byte {
	line, rest, whole := bytes.Cut(p, []byte("\n"))
	c.part = append(c.part, line[:min(len(line), maxHeader+1)]...)
	if len(c.part) > maxHeader {
		c.failed = errors.New("a line of git's answer is too long")
		return nil
	}
	if !whole {
		return nil
	}
	words := strings.Split(string(c.part), " ")
	c.part = c.part[:0]
	if len(words) == 2 && words[1] == "missing" {
		return rest
	}
	if len(words) != 3 || words[1] != "commit" {
		c.failed = errors.New("git's answer is not about a commit")
		return nil
	}
	size, err := strconv.Atoi(words[2])
	if err != nil || size < 0 || size > maxCommit {
		c.failed = fmt.Errorf("a commit is longer than %d bytes", maxCommit)
		return nil
	}
	c.id, c.size = words[0], size
	return rest
}

func (c *Commits) content(p []byte) []byte {
	n := min(c.size+1-len(c.part), len(p))
	c.part = append(c.part, p[:n]...)
	if len(c.part) == c.size+1 {
		c.take(c.id, c.part[:c.size])
		c.id, c.part = "", c.part[:0]
	}
	return p[n:]
}

// take keeps the parents of a commit that has the name which it is called by.
func (c *Commits) take(id string, text []byte) {
	switch {
	case hashOf(len(id), text) != id:
		c.failed = errors.New("a commit in the repository is not what its name says")
	case len(c.parents) == MaxCommits:
		c.failed = fmt.Errorf("there are more than %d commits in between", MaxCommits)
	default:
		if c.parents == nil {
			c.parents = map[string][]string{}
		}
		c.parents[id] = parentsOf(text)
	}
}

// hashOf names a commit with that many digits, or is "".
func hashOf(digits int, text []byte) string {
	whole := append([]byte("commit "+strconv.Itoa(len(text))+"\x00"), text...)
	switch digits {
	case 2 * sha1.Size:
		sum := sha1.Sum(whole) // #nosec: it is git's
		return hex.EncodeToString(sum[:])
	case 2 * sha256.Size:
		sum := sha256.Sum256(whole)
		return hex.EncodeToString(sum[:])
	}
	return ""
}

// parentsOf reads the lines behind the first, which names the tree.
func parentsOf(text []byte) (out []string) {
	line, rest, _ := bytes.Cut(text, []byte("\n"))
	for ok := bytes.HasPrefix(line, []byte("tree ")); ok; {
		if line, rest, ok = bytes.Cut(rest, []byte("\n")); ok {
			if line, ok = bytes.CutPrefix(line, []byte("parent ")); ok {
				out = append(out, string(line))
			}
		}
	}
	return out
}

// Leads reports whether the commits that were taken lead back from later to
// earlier. The error says why that could not be found out.
func (c *Commits) Leads(earlier, later string) (bool, error) {
	seen := map[string]bool{}
	for ahead := []string{later}; len(ahead) > 0; {
		id := ahead[len(ahead)-1]
		ahead = ahead[:len(ahead)-1]
		if id == earlier {
			return true, nil
		}
		if !seen[id] {
			seen[id] = true
			ahead = append(ahead, c.parents[id]...)
		}
	}
	return false, c.failed
}
