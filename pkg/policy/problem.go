package policy

import (
	"fmt"
	"strconv"
	"strings"
)

// A Position is a place in a policy's source. Both numbers start at 1; columns
// count characters, not bytes. The zero value means that there is none.
type Position struct {
	Line, Column int
}

// A Problem is one thing that is wrong in a document.
type Problem struct {
	// File is the name that was given to [Parse].
	File string `json:"file"`
	// Line and Column start at 1; columns count characters.
	Line   int `json:"line"`
	Column int `json:"column"`
	// Path leads to the value: "network.rules[2].hosts[0]"; empty for the
	// document as a whole.
	Path string `json:"path,omitempty"`
	// Message says what is wrong and what would be valid.
	Message string `json:"message"`
	// Hint says what to write instead, where that can be guessed.
	Hint string `json:"hint,omitempty"`
}

// String is the line that a compiler would print: file:line:column: path: message.
func (p Problem) String() string {
	var b strings.Builder
	if p.File != "" {
		b.WriteString(p.File + ":")
	}
	if p.Line > 0 {
		fmt.Fprintf(&b, "%d:%d: ", p.Line, p.Column)
	} else if p.File != "" {
		b.WriteString(" ")
	}
	if p.Path != "" {
		b.WriteString(p.Path + ": ")
	}
	b.WriteString(p.Message)
	return b.String()
}

// maxProblems bounds what a hostile document can make a person read.
const maxProblems = 50

// Errors is every problem of a document, in the order of the source. It is the
// type of the errors of [Parse] and [Compile].
type Errors struct {
	Problems []Problem
	// More counts the problems beyond the first fifty, which are not listed.
	More int
}

// Error is one line per problem, each with its hint.
func (e *Errors) Error() string {
	lines := make([]string, 0, len(e.Problems)+1)
	for _, p := range e.Problems {
		line := p.String()
		if p.Hint != "" {
			line += " (" + p.Hint + ")"
		}
		lines = append(lines, line)
	}
	if e.More > 0 {
		lines = append(lines, "and "+strconv.Itoa(e.More)+" more")
	}
	return strings.Join(lines, "\n")
}

// Hint is the next step for a person whose policy does not load. What to write
// instead stands in [Errors.Error] already.
func (e *Errors) Hint() string {
	return "correct the policy, then look at it with `mojoup-node policy check`"
}

func (e *Errors) add(p Problem) {
	if len(e.Problems) >= maxProblems {
		e.More++
		return
	}
	e.Problems = append(e.Problems, p)
}

// orNil keeps a nil *Errors from becoming an error that is not nil.
func (e *Errors) orNil() error {
	if len(e.Problems) == 0 {
		return nil
	}
	return e
}

// nearest returns the name that somebody who wrote got probably meant, or "".
func nearest(got string, names []string) string {
	if len(got) > 64 {
		return ""
	}
	best, bestAt := "", 1+max(1, min(3, len(got)/2))
	for _, name := range names {
		if strings.EqualFold(got, name) {
			return name
		}
		if d := distance(strings.ToLower(got), strings.ToLower(name)); d < bestAt {
			best, bestAt = name, d
		}
	}
	return best
}

// distance counts the letters to insert, delete, change or swap with their
// neighbour to turn a into b.
func distance(a, b string) int {
	before, prev, cur := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			change := prev[j-1]
			if a[i-1] != b[j-1] {
				change++
			}
			cur[j] = min(change, prev[j]+1, cur[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], before[j-2]+1)
			}
		}
		before, prev, cur = prev, cur, before
	}
	return prev[len(b)]
}

func didYouMean(got string, names []string) string {
	if near := nearest(got, names); near != "" {
		return "did you mean " + strconv.Quote(near) + "?"
	}
	return ""
}

// list writes names as people do: a, b or c.
func list(names []string, last string) string {
	switch len(names) {
	case 0:
		return ""
	case 1:
		return names[0]
	}
	return strings.Join(names[:len(names)-1], ", ") + " " + last + " " + names[len(names)-1]
}

func quoteAll(names []string) []string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = strconv.Quote(n)
	}
	return out
}
