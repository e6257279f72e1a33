package api

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Protocol is what POST /v1/run, /v1/sessions/{id}/attach and
// /v1/sessions/{id}/exec are upgraded to. After the switch both sides write
// frames: one byte of kind, four bytes of length (big endian), payload.
//
//	client                          node
//	  | -- FrameRun, -Attach, -Exec > |
//	  | <------- FrameNotice (0..n) - |
//	  | <--------------- FrameStarted |   or FrameEnded with a Problem
//	  | -- FrameStdin (0..n) -------> |   empty payload: end of file
//	  | <------ FrameCredit (0..n) -- |   so many bytes of stdin were used up
//	  | -- FrameResize, FrameSignal > |
//	  | <------ FrameStdout, -Stderr  |
//	  | -- FrameDetach (0..1) ------> |   the client leaves, the session goes on
//	  | <------------------ FrameEnded|   of the session, or with Detached
//
// A client has at most StdinWindow bytes of stdin under way that the node has
// not given credit for: so the node always reads on, and signals, sizes and
// the client's going are never stuck behind input that nobody takes.
//
// A client of run or exec that closes the connection earlier has gone: the
// command gets SIGHUP and the session, or that one command, ends with it. One
// of attach was only looking. A client that asked to be detached from the
// beginning is told FrameEnded right after FrameStarted.
const Protocol = "mojoup-session/1"

// FrameKind tells what a frame carries.
type FrameKind byte

const (
	FrameRun     FrameKind = 'r' // JSON RunRequest
	FrameAttach  FrameKind = 'a' // JSON AttachRequest
	FrameExec    FrameKind = 'x' // JSON ExecRequest
	FrameDiff    FrameKind = 'f' // JSON DiffRequest
	FrameDetach  FrameKind = 'd' // empty
	FrameStarted FrameKind = 's' // JSON Started
	FrameNotice  FrameKind = 'n' // one line for the person, UTF-8
	FrameStdin   FrameKind = '0' // bytes
	FrameStdout  FrameKind = '1' // bytes; of a terminal too
	FrameStderr  FrameKind = '2' // bytes
	FrameResize  FrameKind = 'w' // JSON Size
	FrameSignal  FrameKind = 'k' // the number, one byte
	FrameCredit  FrameKind = 'c' // bytes, four, big endian
	FrameEnded   FrameKind = 'e' // JSON Ended
)

// MaxFrame is the largest payload either side accepts, in bytes.
const MaxFrame = 4 << 20

// StdinWindow is how much stdin a client may have under way, in bytes.
const StdinWindow = 256 << 10

// ErrFrameTooLarge refuses a frame beyond MaxFrame.
var ErrFrameTooLarge = errors.New("frame is larger than 4 MiB")

// WriteFrame writes one frame in one call of w.Write.
func WriteFrame(w io.Writer, kind FrameKind, payload []byte) error {
	if len(payload) > MaxFrame {
		return ErrFrameTooLarge
	}
	buf := make([]byte, 5+len(payload))
	buf[0] = byte(kind)
	binary.BigEndian.PutUint32(buf[1:], uint32(len(payload)))
	copy(buf[5:], payload)
	_, err := w.Write(buf)
	return err
}

// WriteJSON writes one frame whose payload is v as JSON.
func WriteJSON(w io.Writer, kind FrameKind, v any) error {
	payload, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encoding frame %q: %w", kind, err)
	}
	return WriteFrame(w, kind, payload)
}

// ReadFrame reads one frame into buf, growing it where needed; the payload is
// valid until the next call with the same buffer. io.EOF means that the other
// side closed between two frames.
func ReadFrame(r io.Reader, buf *[]byte) (FrameKind, []byte, error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := int(binary.BigEndian.Uint32(head[1:]))
	if n > MaxFrame {
		return 0, nil, ErrFrameTooLarge
	}
	if cap(*buf) < n {
		*buf = make([]byte, n)
	}
	payload := (*buf)[:n]
	if _, err := io.ReadFull(r, payload); err != nil {
		return 0, nil, io.ErrUnexpectedEOF
	}
	return FrameKind(head[0]), payload, nil
}
