// Package recording promises that what a terminal showed is kept as others can
// replay it, within a bound, and that what was typed is not.
//
//	w, err := recording.Begin(file, recording.About{Columns: 80, Rows: 24})
//	w.Output(p)             // whatever the terminal showed
//	w.Resize(100, 30)
//	err = w.Close()         // why it is not whole, if it is not
//
// The format is asciicast, version 2: a line with a header, then a line for
// each event. It holds text: bytes that are no UTF-8 become U+FFFD, as a
// terminal would show them, and no character is cut in two. A file whose writer
// was killed lacks its end and can be read all the same.
//
// A password that a program asks for is not shown and so not kept; what is
// typed where it can be seen is.
package recording

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
	"unicode/utf8"
)

// Limit is how large a recording gets, in bytes.
const Limit = 32 << 20

// ErrFull says that a recording has reached its limit and ended there.
var ErrFull = fmt.Errorf("it has reached %d MiB", Limit>>20)

// About says what is recorded.
type About struct {
	Columns, Rows uint16
	Title         string
	Terminal      string           // value of TERM
	Limit         int64            // zero means Limit
	Now           func() time.Time // nil means time.Now
}

// header is the first line.
type header struct {
	Version   int               `json:"version"`
	Width     uint16            `json:"width"`
	Height    uint16            `json:"height"`
	Timestamp int64             `json:"timestamp,omitempty"`
	Title     string            `json:"title,omitempty"`
	Env       map[string]string `json:"env,omitempty"`
}

// Kinds of Event.
const (
	Output = "o" // the terminal showed this
	Resize = "r" // it has this size now, as 80x24
	Marker = "m" // a remark of the recorder's own
)

// A Writer records one terminal. Its methods may be called concurrently.
type Writer struct {
	to    io.WriteCloser
	now   func() time.Time
	begun time.Time
	limit int64

	mu      sync.Mutex // guards what follows
	written int64
	rest    []byte // the beginning of a character
	err     error  // why nothing more is recorded
}

// Begin writes the header.
func Begin(to io.WriteCloser, a About) (*Writer, error) {
	w := &Writer{to: to, now: a.Now, limit: a.Limit}
	if w.now == nil {
		w.now = time.Now
	}
	if w.limit == 0 {
		w.limit = Limit
	}
	w.begun = w.now()
	h := header{Version: 2, Width: a.Columns, Height: a.Rows, Timestamp: w.begun.Unix(), Title: a.Title}
	if a.Terminal != "" {
		h.Env = map[string]string{"TERM": a.Terminal}
	}
	w.line(h)
	if w.err != nil {
		return nil, fmt.Errorf("beginning a recording: %w", w.err)
	}
	return w, nil
}

// piece is how much of a long output makes one event.
const piece = 16 << 10

// Output records what the terminal showed.
func (w *Writer) Output(p []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(p) > 0 {
		n := min(len(p), piece)
		text := append(w.rest, p[:n]...)
		p = p[n:]
		whole := len(text) - unfinished(text)
		w.event(Output, string(text[:whole]))
		w.rest = append([]byte(nil), text[whole:]...)
	}
}

// unfinished is how many bytes at the end of p are the beginning of a character.
func unfinished(p []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(p); n++ {
		if tail := p[len(p)-n:]; utf8.RuneStart(tail[0]) {
			if utf8.FullRune(tail) {
				return 0
			}
			return n
		}
	}
	return 0
}

// Resize records another size of the terminal.
func (w *Writer) Resize(columns, rows uint16) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.event(Resize, fmt.Sprintf("%dx%d", columns, rows))
}

// Close ends the recording and says why it is not whole, if it is not.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.rest) > 0 {
		w.event(Output, string(w.rest))
		w.rest = nil
	}
	return errors.Join(w.err, w.to.Close())
}

// event writes one event, and where there is room for nothing else the remark
// that the recording ends.
func (w *Writer) event(kind, text string) {
	if w.err != nil || text == "" {
		return
	}
	at := float64(w.now().Sub(w.begun).Microseconds()) / 1e6
	if w.written+int64(len(text)) > w.limit { // the marker itself may pass it
		w.line([]any{at, Marker, "the recording ends here: " + ErrFull.Error()})
		w.err = ErrFull
		return
	}
	w.line([]any{at, kind, text})
}

// line writes one line, whole or not at all but for a disk that fills.
func (w *Writer) line(v any) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if w.err = enc.Encode(v); w.err != nil {
		return
	}
	var n int
	n, w.err = w.to.Write(b.Bytes())
	w.written += int64(n)
}

// An Event is one of a recording's.
type Event struct {
	At   time.Time
	Kind string // Output, Resize, Marker; others may be skipped
	Text string
}

// ErrFormat says that something is no recording.
var ErrFormat = errors.New("it is no recording of a terminal")

// Read gives each event to each, until one is refused or the end is reached,
// which may be cut off.
func Read(r io.Reader, each func(Event) error) error {
	in := bufio.NewReaderSize(r, 64<<10)
	first, err := in.ReadBytes('\n')
	var h header
	if json.Unmarshal(first, &h) != nil || h.Version != 2 {
		return errors.Join(ErrFormat, ioError(err))
	}
	begun := time.Unix(h.Timestamp, 0)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return ioError(err) // a line without its end is what a killed writer leaves
		}
		var parts [3]json.RawMessage
		var e Event
		var at float64
		if json.Unmarshal(line, &parts) != nil || json.Unmarshal(parts[0], &at) != nil ||
			json.Unmarshal(parts[1], &e.Kind) != nil || json.Unmarshal(parts[2], &e.Text) != nil {
			return ErrFormat
		}
		e.At = begun.Add(time.Duration(at * float64(time.Second)))
		if err := each(e); err != nil {
			return err
		}
	}
}

// ioError is err where it is more than the end.
func ioError(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
