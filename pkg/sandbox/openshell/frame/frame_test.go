package frame_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/frame"
)

func TestThroughAndBack(t *testing.T) {
	for _, size := range []int{0, 1, 5, frame.Most - 1, frame.Most, frame.Most + 1, 300_000} {
		in := make([]byte, size)
		for i := range in {
			in[i] = byte(rand.N(256))
		}
		for name, slow := range map[string]func(io.Reader) io.Reader{
			"whole": func(r io.Reader) io.Reader { return r }, "bytes": iotest.OneByteReader, "halves": iotest.HalfReader, "end with data": iotest.DataErrReader,
		} {
			out, err := io.ReadAll(frame.Decode(slow(frame.Encode(slow(bytes.NewReader(in))))))
			if err != nil || !bytes.Equal(out, in) {
				t.Errorf("%s, %d bytes: %d came back, %v", name, size, len(out), err)
			}
		}
	}
}

// What stands behind the end is not read: it is the next one's.
func TestEndIsEnd(t *testing.T) {
	in := strings.NewReader("\x00\x00\x00\x02ab\x00\x00\x00\x00rest")
	if out, err := io.ReadAll(frame.Decode(in)); string(out) != "ab" || err != nil {
		t.Errorf("%q %v", out, err)
	}
	if rest, _ := io.ReadAll(in); string(rest) != "rest" {
		t.Errorf("%q is left", rest)
	}
}

func TestBroken(t *testing.T) {
	for _, in := range []string{"", "\x00", "\x00\x00\x00\x02a", "\x00\x00\x00\x02ab", "\x00\x00\x00\x01a\x00\x00"} {
		if _, err := io.ReadAll(frame.Decode(strings.NewReader(in))); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%q: %v", in, err)
		}
	}
	if _, err := io.ReadAll(frame.Decode(strings.NewReader("\xff\xff\xff\xffa"))); err == nil || errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("too long: %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x02ab\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, in []byte) {
		out, _ := io.ReadAll(frame.Decode(bytes.NewReader(in)))
		if len(out) > len(in) {
			t.Fatalf("%d bytes came of %d", len(out), len(in))
		}
	})
}
