package egress

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"slices"
	"testing"
	"testing/iotest"

	"github.com/mojoup/mojoup-node/pkg/secrets"
)

func textFrame(s string) []byte {
	head := []byte{0x81, 127}
	switch {
	case len(s) < 126:
		head[1] = byte(len(s))
	case len(s) < 1<<16:
		head[1] = 126
		head = binary.BigEndian.AppendUint16(head, uint16(len(s)))
	default:
		head = binary.BigEndian.AppendUint64(head, uint64(len(s)))
	}
	return append(head, s...)
}

func readFrame(in *bufio.Reader) (string, error) {
	var head [14]byte
	if _, err := io.ReadFull(in, head[:2]); err != nil {
		return "", err
	}
	n := map[byte]int{126: 2, 127: 8}[head[1]&0x7f]
	if _, err := io.ReadFull(in, head[2:2+n]); err != nil {
		return "", err
	}
	_, length, _ := frameHead(head[:2+n])
	b := make([]byte, min(length, 1<<20))
	_, err := io.ReadFull(in, b)
	return string(b), err
}

// fragment is one frame of several that make a message.
func fragment(opcode byte, final bool, text string) []byte {
	f := append([]byte{opcode, byte(len(text))}, text...)
	if final {
		f[0] |= 0x80
	}
	return f
}

// A key that a server cuts in pieces over the fragments of one message is
// masked, however the bytes arrive and whatever stands between; two messages
// are not one.
func TestFragmentedMessagesAreMasked(t *testing.T) {
	ring := secrets.NewBook().Open("s")
	standIn, err := ring.Add(secrets.Secret{Name: "K", Value: secrets.NewValue([]byte(realKey)), Binding: bindAPI})
	if err != nil {
		t.Fatal(err)
	}
	const a, b, ping = 7, 12, "still there?"
	message := func(key string) []byte {
		return slices.Concat(
			fragment(1, false, "x "+key[:a]), fragment(0, false, ""), fragment(9, true, ping), fragment(0, false, key[a:b]), fragment(0, true, key[b:]+" y"),
			fragment(1, false, "begun "+key[:a]), fragment(0, true, ""), fragment(1, true, "other"),
		)
	}
	sent := message(realKey)
	want := append(message(standIn)[:len(sent)-len("other")-4-a], sent[len(sent)-len("other")-4-a:]...)
	for name, from := range map[string]io.Reader{"at once": bytes.NewReader(sent), "byte by byte": iotest.OneByteReader(bytes.NewReader(sent)), "in halves": iotest.HalfReader(bytes.NewReader(sent))} {
		got, err := io.ReadAll(&frames{mask: ring.Masker(), from: from})
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %v\n%q, want\n%q", name, err, got, want)
		}
	}
	endless := io.MultiReader(bytes.NewReader(fragment(1, false, realKey[:a])), bytes.NewReader(bytes.Repeat(fragment(0, false, ""), maxWaiting)))
	if _, err := io.Copy(io.Discard, &frames{mask: ring.Masker(), from: endless}); err != errFragments {
		t.Errorf("a message without end: %v", err)
	}
}

// FuzzFrames: whatever a server sends, everything comes out, as long as it was.
func FuzzFrames(f *testing.F) {
	f.Add(append(textFrame("a "+realKey), textFrame("s")...))
	f.Add([]byte{0x81, 127, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	ring := secrets.NewBook().Open("s")
	if _, err := ring.Add(secrets.Secret{Name: "K", Value: secrets.NewValue([]byte(realKey)), Binding: bindAPI}); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, from := range []io.Reader{bytes.NewReader(data), iotest.OneByteReader(bytes.NewReader(data))} {
			got, err := io.ReadAll(&frames{mask: ring.Masker(), from: from})
			if err != nil || len(got) != len(data) {
				t.Fatalf("%d bytes became %d: %v", len(data), len(got), err)
			}
		}
	})
}
