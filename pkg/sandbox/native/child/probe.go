package child

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"syscall"
)

// MaxProbes is how many probes one call may hold.
const MaxProbes = 4096

// Kinds of a probe's argument, as in protocol.h.
const (
	argNumber uint8 = iota
	argData
	argResult
	argBuffer
)

// An Arg is one argument of a probed system call.
type Arg struct {
	kind  uint8
	value uint64
	data  []byte
}

// Number is an argument as it is.
func Number(n int) Arg { return Arg{kind: argNumber, value: uint64(n)} }

// Data is a pointer to these bytes.
func Data(b []byte) Arg { return Arg{kind: argData, data: b} }

// Path is a pointer to a path.
func Path(s string) Arg { return Data(append([]byte(s), 0)) }

// Result is what the probe with that index has returned.
func Result(index int) Arg { return Arg{kind: argResult, value: uint64(index)} }

// Buffer is a pointer to room for n bytes, at most 4096, which come back.
func Buffer(n int) Arg { return Arg{kind: argBuffer, value: uint64(n)} }

// A Probe is one system call, carried out inside by a process that is sealed
// as every command is.
type Probe struct {
	Number uintptr
	Args   []Arg
	// After is one more than the index of an earlier probe, without whose
	// success this one is left out, as ECANCELED; 0 for always.
	After int
}

// A Finding is what came of a probe.
type Finding struct {
	Result int64         // of the system call, where Errno is zero
	Errno  syscall.Errno // zero where the call succeeded
	Data   []byte        // of its Buffer, where it succeeded
}

func encodeProbes(probes []Probe) ([]byte, error) {
	if len(probes) > MaxProbes {
		return nil, fmt.Errorf("BUG: %d probes at once", len(probes))
	}
	const perCall = 64 // number, six values, their kinds
	calls, data := make([]byte, 0, len(probes)*perCall), make([]byte, 0, 16<<10)
	for _, p := range probes {
		var values [6]uint64
		var kinds [6]uint8
		for i, a := range p.Args {
			values[i], kinds[i] = a.value, a.kind
			if a.kind == argData {
				values[i] = uint64(len(data))
				data = append(data, a.data...)
				data = append(data, padding[:-len(data)&7]...)
			}
		}
		calls = binary.LittleEndian.AppendUint64(calls, uint64(p.Number))
		for _, v := range values {
			calls = binary.LittleEndian.AppendUint64(calls, v)
		}
		calls = append(calls, kinds[:]...)
		calls = binary.LittleEndian.AppendUint16(calls, uint16(p.After))
	}
	out := make([]byte, 0, 8+len(calls)+len(data))
	out = binary.LittleEndian.AppendUint32(out, uint32(len(probes)))
	out = binary.LittleEndian.AppendUint32(out, uint32(len(data)))
	return append(append(out, calls...), data...), nil
}

// readFindings reads until all are there: to wait for the end would be to wait
// for that of the process.
func readFindings(r io.Reader, want int) ([]Finding, error) {
	raw, found := make([]byte, 0, 64<<10), make([]Finding, 0, want)
	for {
		var whole bool
		found, whole = decodeFindings(raw, found[:0])
		if len(found) == want && whole {
			return found, nil
		}
		if len(raw) == cap(raw) {
			raw = slices.Grow(raw, len(raw))
		}
		n, err := r.Read(raw[len(raw):cap(raw)])
		raw = raw[:len(raw)+n]
		switch {
		case errors.Is(err, io.EOF):
			return found, fmt.Errorf("the check ended after %d of %d attempts", len(found), want)
		case err != nil:
			return found, fmt.Errorf("%s: %w", StageProtocol, err)
		}
	}
}

// decodeFindings appends what has come so far, and says whether nothing of it is
// left over.
func decodeFindings(raw []byte, out []Finding) (_ []Finding, whole bool) {
	for len(raw) >= 16 {
		result := int64(binary.LittleEndian.Uint64(raw))
		size := binary.LittleEndian.Uint64(raw[8:])
		raw = raw[16:]
		if size > uint64(len(raw)) {
			break
		}
		f := Finding{Result: result, Data: raw[:size]}
		if result < 0 && result > -4096 {
			f.Result, f.Errno = -1, syscall.Errno(-result)
		}
		raw = raw[size:]
		out = append(out, f)
	}
	return out, len(raw) == 0
}
