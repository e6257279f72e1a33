//go:build cgo

package native

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"

	seccomp "github.com/seccomp/libseccomp-golang"
	"golang.org/x/sys/unix"
)

// askNode is a bit in the errno of a call that the node is to hear of: libseccomp gives
// a call that asks a listener no errno, and the helper needs one for where
// there can be no listener. No errno has this bit, nor has one as many others.
const askNode = 0x800

// buildFilter compiles the table, once per node: half a millisecond there,
// and the bytes are all that a helper needs.
func buildFilter(rows []refusal) ([]byte, error) {
	f, err := seccomp.NewFilter(seccomp.ActAllow)
	if err != nil {
		return nil, fmt.Errorf("making a system call filter: %w", err)
	}
	defer f.Release()
	// A 32-bit or x32 call has other numbers: none of the table would apply.
	if err := f.SetBadArchAction(seccomp.ActKillProcess); err != nil {
		return nil, fmt.Errorf("refusing foreign system calls: %w", err)
	}
	if err := f.SetOptimize(2); err != nil { // a tree instead of a list
		return nil, fmt.Errorf("arranging the system call filter: %w", err)
	}
	for _, row := range fewer(rows) {
		if err := addRow(f, row); err != nil {
			return nil, err
		}
	}
	body, err := export(f)
	if err != nil {
		return nil, fmt.Errorf("compiling the system call filter: %w", err)
	}
	askTheNode(body)
	return append(tooNew(), body...), nil
}

// askTheNode turns answers that are marked so into questions to the listener,
// which keep the errno: the kernel does not look at it there.
func askTheNode(program []byte) {
	const size = 8 // of struct sock_filter: code, two jumps, k
	for at := 0; at+size <= len(program); at += size {
		code, k := binary.NativeEndian.Uint16(program[at:]), binary.NativeEndian.Uint32(program[at+4:])
		if code != unix.BPF_RET|unix.BPF_K || k&unix.SECCOMP_RET_ACTION_FULL != unix.SECCOMP_RET_ERRNO || k&askNode == 0 {
			continue
		}
		binary.NativeEndian.PutUint32(program[at+4:], unix.SECCOMP_RET_USER_NOTIF|k&unix.SECCOMP_RET_DATA&^askNode)
	}
}

// toldCalls are the rows that the node is told of, by the number of the call.
func toldCalls(rows []refusal) (map[int][]toldCall, error) {
	out := map[int][]toldCall{}
	for _, row := range rows {
		if row.tried == untold {
			continue
		}
		for _, name := range row.calls {
			call, err := number(name)
			if err != nil {
				return nil, err
			}
			if call >= 0 {
				out[int(call)] = append(out[int(call)], toldCall{name, row.when, row.answer, row.tried})
			}
		}
	}
	return out, nil
}

func addRow(f *seccomp.ScmpFilter, row refusal) error {
	var conditions []seccomp.ScmpCondition
	for _, c := range row.when {
		made, err := seccomp.MakeCondition(c.arg, seccomp.CompareMaskedEqual, c.mask, c.value)
		if c.another {
			made, err = seccomp.MakeCondition(c.arg, seccomp.CompareNotEqual, c.value)
		}
		if err != nil {
			return fmt.Errorf("BUG: filter row %v: %w", row.calls, err)
		}
		conditions = append(conditions, made)
	}
	answer := int16(row.answer)
	if row.tried != untold {
		answer |= askNode
	}
	action := seccomp.ActErrno.SetReturnCode(answer)
	for _, name := range row.calls {
		call, err := number(name)
		if err != nil {
			return err
		}
		if call < 0 {
			continue
		}
		if err := f.AddRuleConditionalExact(call, action, conditions); err != nil {
			return fmt.Errorf("adding %s to the system call filter: %w", name, err)
		}
	}
	return nil
}

// others are calls that arm64 never had.
var others = map[string]bool{
	"chmod": true, "creat": true, "mknod": true, "open": true, "modify_ldt": true, "iopl": true, "ioperm": true,
}

// fresh are calls that an older libseccomp does not know by name. Their
// numbers are the same everywhere.
var fresh = map[string]seccomp.ScmpSyscall{"fchmodat2": 452}

// number finds a call's number; negative where this machine has no such call.
func number(name string) (seccomp.ScmpSyscall, error) {
	if n, ok := fresh[name]; ok {
		return n, nil
	}
	call, err := seccomp.GetSyscallFromName(name)
	if err != nil {
		// Left out silently, a refusal would be missing.
		return 0, fmt.Errorf("libseccomp does not know %s: %w", name, err)
	}
	if call < 0 && !others[name] {
		return 0, fmt.Errorf("BUG: %s has no number on this machine", name)
	}
	return call, nil
}

// export goes through a file of memory, because libseccomp 2.5 has no other way.
func export(f *seccomp.ScmpFilter) ([]byte, error) {
	fd, err := unix.MemfdCreate("filter", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), "filter")
	defer file.Close()
	if err := f.ExportBPF(file); err != nil {
		return nil, err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	return io.ReadAll(file)
}

// tooNew stands before the filter and answers "no such call" to numbers above
// the newest, which libseccomp cannot say. A foreign call, and one with x32's
// high bit, it leaves to the filter.
func tooNew() []byte {
	const x32 = 0x40000000
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 4}, // the architecture
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: auditArch, Jf: 4},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // the number
		{Code: unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, K: x32, Jt: 2},
		{Code: unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K, K: newest, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)},
	}
	var out []byte
	for _, i := range program {
		out = binary.NativeEndian.AppendUint16(out, i.Code)
		out = append(out, i.Jt, i.Jf)
		out = binary.NativeEndian.AppendUint32(out, i.K)
	}
	return out
}
