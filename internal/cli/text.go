package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode"

	"github.com/charmbracelet/lipgloss"
	"github.com/charmbracelet/lipgloss/table"
	"github.com/muesli/termenv"
	"golang.org/x/term"
)

// talk is the conversation: lines on stderr under the program's name, no
// capital, no full stop.
type talk struct{ w io.Writer }

func (t talk) line(format string, args ...any) {
	fmt.Fprintf(t.w, "mojoup-node: %s\n", visible(fmt.Sprintf(format, args...)))
}

func (t talk) hint(format string, args ...any) {
	fmt.Fprintf(t.w, "hint: %s\n", visible(fmt.Sprintf(format, args...)))
}

// visible shows what could draw on a terminal as what it is: control bytes,
// line breaks, and the marks that nobody sees or that turn the direction of
// text.
func visible(s string) string {
	var b strings.Builder
	for _, r := range strings.ToValidUTF8(s, "\uFFFD") {
		switch {
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp):
			if r > 0xffff {
				fmt.Fprintf(&b, `\U%08x`, r)
				continue
			}
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// cell is text fit for one cell of a table: visible, and on a terminal short.
// What reads a pipe or a file gets all of it.
func (p pen) cell(s string) string {
	s = visible(s)
	if r := []rune(s); p.screen && len(r) > 120 {
		return string(r[:117]) + "..."
	}
	return s
}

// printJSON writes one document.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return unwritten(err)
	}
	return nil
}

// pen writes for people: colour only on a terminal, and never as the only
// carrier of a meaning.
type pen struct {
	w      io.Writer
	r      *lipgloss.Renderer
	screen bool // w is a terminal
}

func newPen(p Process) pen {
	r := lipgloss.NewRenderer(io.Discard)
	r.SetColorProfile(termenv.Ascii)
	screen := isTerminal(p.Stdout)
	if screen && p.Getenv("NO_COLOR") == "" && p.Getenv("TERM") != "dumb" {
		r.SetColorProfile(termenv.ANSI)
	}
	return pen{w: p.Stdout, r: r, screen: screen}
}

func (p pen) paint(colour, s string) string {
	return p.r.NewStyle().Foreground(lipgloss.Color(colour)).Render(s)
}

func (p pen) printf(format string, args ...any) { fmt.Fprintf(p.w, format, args...) }

// rows prints aligned columns under their heads, nothing where there are none.
func (p pen) rows(heads []string, lines [][]string) {
	if len(lines) == 0 {
		return
	}
	t := table.New().Border(lipgloss.HiddenBorder()).BorderTop(false).BorderBottom(false).
		BorderLeft(false).BorderRight(false).BorderHeader(false).BorderColumn(false).
		StyleFunc(func(_, col int) lipgloss.Style {
			if col == len(heads)-1 {
				return p.r.NewStyle()
			}
			return p.r.NewStyle().PaddingRight(2)
		}).Headers(heads...)
	for _, l := range lines {
		clean := make([]string, len(l))
		for i, c := range l {
			clean[i] = p.cell(c)
		}
		t.Row(clean...)
	}
	for line := range strings.Lines(t.String() + "\n") {
		fmt.Fprintln(p.w, strings.TrimRight(line, " \n"))
	}
}

// isTerminal reports whether w or r is a terminal.
func isTerminal(v any) bool {
	if a, ok := v.(*answer); ok {
		v = a.w
	}
	f, ok := v.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// ago is a time as people say it.
func ago(t, now time.Time) string {
	switch d := now.Sub(t); {
	case d < time.Minute:
		return fmt.Sprintf("%ds", max(0, int(d.Seconds())))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	default:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
}
