package signin

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"time"
	"unicode/utf8"
)

// maxDocument bounds a document; tokens of other services lie in it as well.
const maxDocument = 1 << 20

var errNotObject = errors.New("it is no JSON object")

// parse reads a document as programs do that read JSON: one object, the last
// of two equal keys counts.
func parse(text []byte, comments bool) (map[string]any, error) {
	if comments {
		text = withoutComments(text)
	}
	if !utf8.Valid(text) {
		return nil, errNotObject
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var out map[string]any
	if err := d.Decode(&out); err != nil || out == nil {
		return nil, errNotObject
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errNotObject
	}
	return out, nil
}

// withoutComments drops whole lines of comment, which is all that the tools
// write.
func withoutComments(text []byte) []byte {
	var out []byte
	for line := range bytes.Lines(text) {
		if !bytes.HasPrefix(bytes.TrimSpace(line), []byte("//")) {
			out = append(out, line...)
		}
	}
	return out
}

// at is the value that the path leads to, or nil.
func at(doc map[string]any, p Path) any {
	var v any = doc
	for _, name := range p {
		object, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = object[name]
	}
	if len(p) == 0 {
		return nil
	}
	return v
}

func text(doc map[string]any, p Path) string {
	s, _ := at(doc, p).(string)
	return s
}

// put sets the value that the path leads to.
func put(doc map[string]any, p Path, v any) {
	for _, name := range p[:len(p)-1] {
		next, ok := doc[name].(map[string]any)
		if !ok {
			next = map[string]any{}
			doc[name] = next
		}
		doc = next
	}
	doc[p[len(p)-1]] = v
}

// since1970 is a time that is written as a number, of which ms make one of its
// units; zero where it is none.
func since1970(v any, ms int64) time.Time {
	n, ok := v.(json.Number)
	if !ok {
		return time.Time{}
	}
	count, err := n.Int64()
	if err != nil {
		f, ferr := n.Float64()
		if ferr != nil || f < 0 || f > forever {
			return time.Time{}
		}
		count = int64(f)
	}
	if count <= 0 || count > forever/ms {
		return time.Time{}
	}
	return time.UnixMilli(count * ms)
}

// claims are those of a token that can be parsed, or nil.
func claims(token string) map[string]any {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return nil
	}
	b, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(parts[1], "="))
	if err != nil {
		return nil
	}
	out, err := parse(b, false)
	if err != nil {
		return nil
	}
	return out
}

// claimed is when a token expires by its own claim, or zero.
func claimed(token string) time.Time {
	n, ok := at(claims(token), Path{"exp"}).(json.Number)
	if !ok {
		return time.Time{}
	}
	s, err := n.Int64()
	if err != nil || s <= 0 || s > forever/1000 {
		return time.Time{}
	}
	return time.Unix(s, 0)
}

// A change sets one value of a document.
type change struct {
	path  Path
	value any
}

var errNoPlace = errors.New("there is no place for it in the document")

// replaced is the document with some of its values changed, and not a byte
// elsewhere: what other programs keep there stays as they wrote it.
func replaced(doc []byte, changes []change) ([]byte, error) {
	for _, c := range changes {
		from, to, err := span(doc, c.path)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(c.value)
		if err != nil {
			return nil, err
		}
		doc = append(append(append(make([]byte, 0, len(doc)+len(value)), doc[:from]...), value...), doc[to:]...)
	}
	return doc, nil
}

// span is where in the document the value of a path stands; of equal keys the
// last.
func span(doc []byte, p Path) (from, to int, err error) {
	to = len(doc)
	for _, name := range p {
		if from, to, err = member(doc, from, to, name); err != nil {
			return 0, 0, err
		}
	}
	return from, to, nil
}

// member is where the value of a name stands in the object doc[from:to].
func member(doc []byte, from, to int, name string) (int, int, error) {
	d := json.NewDecoder(bytes.NewReader(doc[from:to]))
	d.UseNumber()
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return 0, 0, errNoPlace
	}
	found, end := -1, -1
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return 0, 0, errNoPlace
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return 0, 0, errNoPlace
		}
		if key == name {
			end = from + int(d.InputOffset())
			found = end - len(value)
		}
	}
	if found < 0 {
		return 0, 0, errNoPlace
	}
	return found, end, nil
}
