package api

import (
	"bytes"
	"errors"
	"io"
	"testing"
)

// FuzzReadFrame: whatever is read can be written to the same bytes, and what
// is refused gives no payload.
func FuzzReadFrame(f *testing.F) {
	for _, seed := range [][]byte{{}, {'1', 0, 0, 0, 0}, {'1', 0, 0, 0, 3, 'a', 'b', 'c'}, {'1', 0, 0, 0, 9, 'a'}, {'1', 255, 255, 255, 255}} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		var buf []byte
		kind, payload, err := ReadFrame(bytes.NewReader(in), &buf)
		if err != nil {
			if payload != nil {
				t.Errorf("refused with a payload of %d bytes", len(payload))
			}
			return
		}
		var out bytes.Buffer
		if err := WriteFrame(&out, kind, payload); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(out.Bytes(), in[:out.Len()]) {
			t.Errorf("read %x, wrote %x", in[:out.Len()], out.Bytes())
		}
	})
}

func TestFrameLimits(t *testing.T) {
	if err := WriteFrame(io.Discard, FrameStdout, make([]byte, MaxFrame+1)); !errors.Is(err, ErrFrameTooLarge) {
		t.Errorf("too large to write: %v", err)
	}
	var buf []byte
	if _, _, err := ReadFrame(bytes.NewReader([]byte{'1', 255, 0, 0, 0}), &buf); !errors.Is(err, ErrFrameTooLarge) || buf != nil {
		t.Errorf("too large to read: %v, %d bytes reserved", err, cap(buf))
	}
	if _, _, err := ReadFrame(bytes.NewReader(nil), &buf); err != io.EOF {
		t.Errorf("the end between two frames: %v", err)
	}
	if _, _, err := ReadFrame(bytes.NewReader([]byte{'1', 0, 0, 0, 2, 'a'}), &buf); err != io.ErrUnexpectedEOF {
		t.Errorf("the end within one: %v", err)
	}
}
