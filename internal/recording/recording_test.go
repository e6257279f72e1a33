package recording

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// kept is a recording in memory.
type kept struct {
	bytes.Buffer
	room   int // writes fail behind so many bytes, if positive
	closed bool
}

var errNoRoom = errors.New("no room")

func (k *kept) Write(p []byte) (int, error) {
	if k.room > 0 && k.Len()+len(p) > k.room {
		return 0, errNoRoom
	}
	return k.Buffer.Write(p)
}

func (k *kept) Close() error { k.closed = true; return nil }

// shown is the text of all output events, checked on the way.
func shown(t *testing.T, k *kept) string {
	t.Helper()
	var out strings.Builder
	if err := Read(bytes.NewReader(k.Bytes()), func(e Event) error {
		if e.Kind == Output {
			out.WriteString(e.Text)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func begin(t *testing.T, k *kept, a About) *Writer {
	t.Helper()
	a.Columns, a.Rows = 80, 24
	w, err := Begin(k, a)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// TestFormat: asciicast v2, as its readers want it.
func TestFormat(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	var k kept
	w := begin(t, &k, About{Terminal: "xterm", Title: "session x", Now: func() time.Time { return at }})
	at = at.Add(1500 * time.Millisecond)
	w.Output([]byte("a<b>\r\n\x1b[31m\"\u202e"))
	w.Resize(100, 30)
	if err := w.Close(); err != nil || !k.closed {
		t.Fatalf("closed %v, %v", k.closed, err)
	}
	want := `{"version":2,"width":80,"height":24,"timestamp":1700000000,"title":"session x","env":{"TERM":"xterm"}}
[1.5,"o","a<b>\r\n\u001b[31m\"` + "\u202e" + `"]
[1.5,"r","100x30"]
`
	if diff := cmp.Diff(want, k.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	var events []Event
	if err := Read(&k, func(e Event) error { events = append(events, e); return nil }); err != nil {
		t.Fatal(err)
	}
	if len(events) != 2 || !events[0].At.Equal(time.Unix(1_700_000_001, 5e8)) || events[1].Text != "100x30" {
		t.Errorf("read %+v", events)
	}
}

// TestB67_TextOfRecordings: however output is cut, the same text is kept; a
// character is whole in one event, and bytes that are none become U+FFFD.
func TestB67_TextOfRecordings(t *testing.T) {
	random := make([]byte, 1<<20)
	src := rand.NewChaCha8([32]byte{67})
	_, _ = src.Read(random)
	for name, in := range map[string]string{
		"two bytes": "\u00e9", "four bytes": "\U0001f600", "across a piece": strings.Repeat("a", piece-1) + "\u20ac" + strings.Repeat("b", piece),
		"NUL and CR LF": "a\x00b\r\nc\n", "controls": strings.Repeat("\x01", 1<<20), "random": string(random), "cut off": "ab\xe2\x82", "stray": "\x80\x80\x80\x80\xff",
	} {
		for _, cut := range []int{1, 2, 3, 1000, len(in)} {
			if len(in) > 1<<16 && cut < 1000 {
				continue
			}
			var k kept
			w := begin(t, &k, About{})
			for p := []byte(in); len(p) > 0; {
				n := min(cut, len(p))
				w.Output(p[:n])
				p = p[n:]
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			got := shown(t, &k)
			if utf8.ValidString(in) && got != in {
				t.Errorf("%s in pieces of %d: %d bytes kept of %d, %.60q", name, cut, len(got), len(in), got)
			}
			if !utf8.ValidString(got) || utf8.RuneCountInString(got) > len(in) {
				t.Errorf("%s in pieces of %d: %d characters of %d bytes", name, cut, utf8.RuneCountInString(got), len(in))
			}
			if k.Len() > 6*len(in)+(len(in)/min(cut, piece)+2)*64 {
				t.Errorf("%s in pieces of %d: %d bytes for %d", name, cut, k.Len(), len(in))
			}
		}
	}
}

// TestABoundIsKept: a recording ends at its limit, says so, and can be read.
func TestABoundIsKept(t *testing.T) {
	var k kept
	w := begin(t, &k, About{Limit: 10_000})
	for range 10_000 {
		w.Output([]byte("0123456789\r\n"))
	}
	if err := w.Close(); !errors.Is(err, ErrFull) {
		t.Errorf("ended with %v", err)
	}
	if k.Len() < 9_000 || k.Len() > 11_000 || strings.Count(k.String(), "the recording ends here") != 1 {
		t.Errorf("%d bytes, ending %q", k.Len(), k.String()[max(0, k.Len()-200):])
	}
	if !strings.HasPrefix(shown(t, &k), "0123456789\r\n0123") {
		t.Error("its beginning is not there")
	}
}

// TestADiskThatFills ends a recording, not the session, and leaves whole lines.
func TestADiskThatFills(t *testing.T) {
	k := kept{room: 500}
	w := begin(t, &k, About{})
	for range 100 {
		w.Output([]byte("0123456789\r\n"))
	}
	if err := w.Close(); !errors.Is(err, errNoRoom) {
		t.Errorf("ended with %v", err)
	}
	for line := range strings.Lines(k.String()) {
		if !json.Valid([]byte(line)) {
			t.Errorf("half a line: %q", line)
		}
	}
	if _, err := Begin(&kept{room: 1}, About{}); !errors.Is(err, errNoRoom) {
		t.Errorf("begun where there is no room: %v", err)
	}
}

// FuzzRead: what is read never fails otherwise than by a refusal, and a
// recording without its end gives what was whole.
func FuzzRead(f *testing.F) {
	for _, seed := range []string{"", "{}\n", `{"version":2}` + "\n" + `[0,"o","x"]` + "\n" + `[1,"o","y`, `{"version":2}` + "\n[1]\n", "null\n", `{"version":2}` + "\n" + `[1e308,"o","x"]` + "\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		n := 0
		err := Read(bytes.NewReader(in), func(Event) error { n++; return nil })
		if err != nil && !errors.Is(err, ErrFormat) {
			t.Errorf("%v", err)
		}
		if n > bytes.Count(in, []byte("\n")) {
			t.Errorf("%d events of %d lines", n, bytes.Count(in, []byte("\n")))
		}
	})
}
