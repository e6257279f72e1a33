package terminal

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// filtered is what passes, written in pieces of so many bytes.
func filtered(t *testing.T, in string, piece int) string {
	t.Helper()
	var out bytes.Buffer
	c := NewClipboard(&out)
	for p := []byte(in); len(p) > 0; {
		n := min(piece, len(p))
		if got, err := c.Write(p[:n]); err != nil || got != n {
			t.Fatalf("wrote %d of %d: %v", got, n, err)
		}
		p = p[n:]
	}
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestB89_ClipboardStaysThePersons(t *testing.T) {
	const gone = "\x1b\\"
	for name, c := range map[string]struct{ in, want string }{
		"set":                 {"a\x1b]52;c;aGk=\x07b", "a" + gone + "b"},
		"ends with ST":        {"a\x1b]52;c;aGk=\x1b\\b", "a" + gone + "b"},
		"ends with C1 ST":     {"a\x1b]52;c;aGk=\u009cb", "a" + gone + "b"},
		"asks":                {"\x1b]52;c;?\x07", gone},
		"no fields":           {"\x1b]52\x07", gone},
		"leading zeros":       {"\x1b]00052;c;aGk=\x07", gone},
		"too many digits":     {"\x1b]00000000000000052;c;aGk=\x07", gone},
		"controls between":    {"\x1b\x00]\x015\x7f2\x02;c;aGk=\x07", gone},
		"C1 as UTF-8":         {"a\u009d52;c;aGk=\x07b", "a" + gone + "b"},
		"C1 as a byte":        {"a\x9d52;c;aGk=\x07b", "a" + gone + "b"},
		"for tmux":            {"\x1bPtmux;\x1b\x1b]52;c;aGk=\x07\x1b\\b", "\x1bPtmux;\x1b" + gone + "\x1b\\b"},
		"for screen":          {"\x1bP\x1b]52;c;aGk=\x07\x1b\\b", "\x1bP" + gone + "\x1b\\b"},
		"kitty's":             {"\x1b]5522;type=write;x\x07", gone},
		"iTerm2's":            {"\x1b]1337;Copy=:aGk=\x07b", gone + "b"},
		"iTerm2's, long":      {"\x1b]1337;CopyToClipboard=\x07hi", gone + "hi"},
		"joined by a cut":     {"\x1b\x1b]52;c;x\x07]52;c;y\x07", "\x1b" + gone + "]52;c;y\x07"},
		"joined character":    {"\xc2\x1b]52;c;x\x07\x9d52;c;y\x07", "\xc2" + gone + gone},
		"cut by another":      {"\x1b]52;c;x\x1b]52;c;y\x07z", gone + gone + "z"},
		"cut by CAN":          {"\x1b]52;c;x\x18z", gone + "z"},
		"unfinished":          {"z\x1b]52;c;x", "z"},
		"title passes":        {"\x1b]0;52;c\x07z", "\x1b]0;52;c\x07z"},
		"other iTerm2 passes": {"\x1b]1337;CurrentDir=/x\x07", "\x1b]1337;CurrentDir=/x\x07"},
		"colours pass":        {"\x1b[31;52mred\x1b[0m", "\x1b[31;52mred\x1b[0m"},
		"text passes":         {"\u201d52; \u209d52; \u4e9d52;é", "\u201d52; \u209d52; \u4e9d52;é"},
		"a lone ESC passes":   {"\x1b", "\x1b"},
		"other numbers pass":  {"\x1b]520;x\x07\x1b]5;2\x07\x1b]8;;http://x\x07", "\x1b]520;x\x07\x1b]5;2\x07\x1b]8;;http://x\x07"},
		"eight-bit text":      {"\xff\xfe\x00\x80ok", "\xff\xfe\x00\x80ok"},
	} {
		t.Run(name, func(t *testing.T) {
			for piece := 1; piece <= len(c.in); piece++ {
				if diff := cmp.Diff(c.want, filtered(t, c.in, piece)); diff != "" {
					t.Fatalf("in pieces of %d (-want +got):\n%s", piece, diff)
				}
			}
		})
	}
}

// FuzzClipboard: however output is cut, the same passes; what passed passes
// again unchanged, so nothing that is left out leaves one behind; and no plain
// spelling of OSC 52 is in it.
func FuzzClipboard(f *testing.F) {
	for _, seed := range []string{
		"", "plain", "\x1b]52;c;aGk=\x07", "\x1b\x1b]52;c;x\x07]52;c;y\x07", "\xc2\x9d52;\xc2\x9c", "\x1bPtmux;\x1b\x1b]52;c;x\x07\x1b\\",
		"\x1b]1337;Copy=:x\x07", "\xe2\x80\x9d52;", "\x1b]0;t\x1b\\", "\x1b]\x005\x002;x\x18",
	} {
		f.Add([]byte(seed), byte(1))
	}
	f.Fuzz(func(t *testing.T, in []byte, piece byte) {
		whole := filtered(t, string(in), max(len(in), 1))
		if diff := cmp.Diff(whole, filtered(t, string(in), int(piece)+1)); diff != "" {
			t.Fatalf("in pieces of %d (-whole +pieces):\n%s", int(piece)+1, diff)
		}
		if again := filtered(t, whole, max(len(whole), 1)); again != whole {
			t.Fatalf("%q passed as %q, and that as %q", in, whole, again)
		}
		if strings.Contains(whole, "\x1b]52;") || strings.Contains(whole, "\x1b]052;") {
			t.Fatalf("%q passed as %q", in, whole)
		}
		if bytes.IndexByte(in, esc) < 0 && bytes.IndexByte(in, osc) < 0 && whole != string(in) {
			t.Fatalf("%q passed as %q", in, whole)
		}
	})
}

func TestTerminalIsGivenBack(t *testing.T) {
	for name, c := range map[string]struct{ in, restore, set string }{
		"nothing":      {"hello é\r\n\x1b[31mred\x1b[0m", "", ""},
		"vim":          {"\x1b[?1049h\x1b[?2004h\x1b[?1h\x1b=\x1b[?25l", "\x1b>\x1b[?2004l\x1b[?25h\x1b[?1l\x1b[?1049l", "\x1b[?1049h\x1b[?1h\x1b[?25l\x1b[?2004h\x1b="},
		"vim has left": {"\x1b[?1049h\x1b=\x1b[?25l\x1b>\x1b[?25h\x1b[?1049l", "", ""},
		"several":      {"\x1b[?1000;1006h", "\x1b[?1006l\x1b[?1000l", "\x1b[?1000h\x1b[?1006h"},
		"keyboard":     {"\x1b[>1u\x1b[>4;2m\x1b[>1u\x1b[<u", "\x1b[<1u\x1b[>4m", ""},
		"margin":       {"\x1b[2;20r", "\x1b7\x1b[r\x1b8", ""},
		"reset":        {"\x1b[?1000h\x1bc", "", ""},
		"within one":   {"\x1b]0;tit", "\x1b\\", ""},
		"in a title":   {"\x1b]0;\x1b[?1000h\x07", "\x1b[?1000l", "\x1b[?1000h"},
		"cut by ESC":   {"\xe2\x1b[?25l", "\x1b[?25h", "\x1b[?25l"},
	} {
		t.Run(name, func(t *testing.T) {
			var m Modes
			_, _ = m.Write([]byte(c.in))
			if diff := cmp.Diff([]string{c.restore, c.set}, []string{string(m.Restore()), string(m.Set())}); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// FuzzModes: a terminal that was given back needs nothing more.
func FuzzModes(f *testing.F) {
	for _, seed := range []string{"", "\x1b[?1049h\x1b[?25l", "\x1b[>1u\x1b=\x1b(0", "\x1b[?;h", "\x1b[<99999999999u", "\x1b[!p\x1b[?7l"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		var m Modes
		_, _ = m.Write(in)
		_, _ = m.Write(m.Restore())
		if left := m.Restore(); len(left) > 0 {
			t.Errorf("after %q and its end still %q", in, left)
		}
		if q := Quiet(in); !bytes.Equal(Quiet(q), q) {
			t.Errorf("%q is quiet as %q, and that as %q", in, q, Quiet(q))
		}
	})
}

func TestReplayAsksNothing(t *testing.T) {
	in := "a\x1b[c\x1b[6nb\x1b[>q\x1b]11;?\x07c\x1b[?2026$p\x1b[?u\x1bP+q544e\x1b\\\x05\x1b[14td\x1b[31me\x1b[?25l"
	if diff := cmp.Diff("abcd\x1b[31me\x1b[?25l", string(Quiet([]byte(in)))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestDetachKeys(t *testing.T) {
	for name, c := range map[string]struct {
		typed []string
		pass  string
		found bool
	}{
		"bytes":            {[]string{"ls\x1dd"}, "ls", true},
		"apart":            {[]string{"\x1d", "d"}, "", true},
		"another key":      {[]string{"\x1d", "x"}, "\x1dx", false},
		"twice the first":  {[]string{"\x1d\x1dd"}, "\x1d", true},
		"kitty":            {[]string{"\x1b[93;5u", "d"}, "", true},
		"kitty, all keys":  {[]string{"\x1b[93;5:1u\x1b[93;5:3u\x1b[57442;1:3u", "\x1b[100;1u"}, "", true},
		"kitty, num lock":  {[]string{"\x1b[93;133ud"}, "", true},
		"modifyOtherKeys":  {[]string{"\x1b[27;5;93~d"}, "", true},
		"alt is another":   {[]string{"\x1b[93;7ud"}, "\x1b[93;7ud", false},
		"escape":           {[]string{"\x1b", "\x1d", "\x1b"}, "\x1b\x1d\x1b", false},
		"arrows":           {[]string{"\x1b[A\x1bOB\x1dd"}, "\x1b[A\x1bOB", true},
		"after it nothing": {[]string{"\x1ddrm -rf x\n"}, "", true},
		"text":             {[]string{"é\x1dé"}, "é\x1dé", false},
	} {
		t.Run(name, func(t *testing.T) {
			keys, err := ParseKeys("ctrl-],d")
			if err != nil {
				t.Fatal(err)
			}
			var pass []byte
			found := false
			for _, typed := range c.typed {
				var out []byte
				out, found = keys.Feed([]byte(typed))
				pass = append(pass, out...)
			}
			pass = append(pass, keys.Release()...)
			if string(pass) != c.pass || found != c.found {
				t.Errorf("passed %q, found %v; want %q, %v", pass, found, c.pass, c.found)
			}
		})
	}
	for _, bad := range []string{"ctrl-", "ctrl-1", "dd", ",", "ctrl-]d", " ", "é"} {
		if _, err := ParseKeys(bad); err == nil {
			t.Errorf("%q is taken for keys", bad)
		}
	}
	none, err := ParseKeys("")
	if err != nil {
		t.Fatal(err)
	}
	if pass, found := none.Feed([]byte("\x1dd")); string(pass) != "\x1dd" || found {
		t.Errorf("no keys: passed %q, found %v", pass, found)
	}
}
