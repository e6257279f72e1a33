package child

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"syscall"
)

// The conversation. One packet is one message; descriptors travel with it.
//
//	node                        outer process              pid 1
//	 | start, descriptor 3         |
//	 | (control groups)            |
//	 |-- namespaces uid gid ------>|
//	 |                             | unshare, maps
//	 |                             |-- fork ----------------->|
//	 |<- spawned pid [pidfd] ------|                          |
//	 |                             | waits                    |
//	 |-- operations [list], tell ---------------------------->|
//	 |                                                        | what all have in common
//	 |<- made ------------------------------------------------|
//	 |
//	 |-- operations [list] ---------------------------------->|
//	 |                                                        | the rest, limits, seals
//	 |                                                        | starts what was asked for ahead
//	 |<- ready which [listener, notifier] --------------------|
//	 |
//	 |-- exec tag [program, 0, 1, 2] ------------------------>|
//	 |<- started tag pid [terminal] --------------------------| after execve
//	 |-- signal tag number ---------------------------------->|
//	 |<- exited tag pid status -------------------------------|
//	 |
//	 |-- connect tag port six ------------------------------->|
//	 |<- started tag [socket that connects] ------------------|
//	 |
//	 |-- (end of the socket) -------------------------------->| leaves, all inside die
//
// A helper that joins a sandbox which somebody else has made is one process,
// and connects itself:
//
//	node                                                   helper
//	 |<- connects ------------------------------------------|
//	 |-- adopt [socket] ------------------------------------>| that one from now on
//	 |-- operations [list] --------------------------------->| as above
//
// Either side's "failed tag stage errno operand" may stand where an answer
// is awaited; tag 0 is the sandbox itself. A helper that is made in advance
// stops after "made" until somebody wants it; one that is wanted at once gets
// all three messages one after the other, and is not asked to tell. A node
// that only wants to know whether a listener can be installed sends
// "listener" first and is answered by the outer process.
const protocolVersion = 1

// Messages.
const (
	msgNamespaces uint32 = 1
	msgOperations uint32 = 2
	msgExec       uint32 = 3
	msgSignal     uint32 = 4
	msgListener   uint32 = 5
	msgConnect    uint32 = 6
	msgAdopt      uint32 = 7
	msgSpawned    uint32 = 16
	msgReady      uint32 = 17
	msgFailed     uint32 = 18
	msgStarted    uint32 = 19
	msgExited     uint32 = 20
	msgMade       uint32 = 21
)

// What follows a list of operations.
const (
	listLast int32 = 0
	listMore int32 = 1
	listTell int32 = 2
)

// What came with a ready.
const (
	readyListener int32 = 1
	readyNotifier int32 = 2
)

// Kinds of exec.
const (
	execTerminal int32 = 1
	execProbes   int32 = 2
	execBare     int32 = 4
	execSettled  int32 = 8
)

// A Code names an operation of pid 1.
type Code uint32

// The operations, with what their fields mean. First and Second are paths
// below the new root unless said otherwise.
const (
	opEnd      Code = 0
	Root       Code = 1  // all mounts private; a tmpfs on the host's First: A bytes, B files, mode C
	Dir        Code = 2  // make First with mode C
	File       Code = 3  // make First with mode C and Blob
	Link       Code = 4  // make First a symbolic link to Second
	Bind       Code = 5  // First, of the host or Inside, on Second; set attributes A, clear B
	Tmpfs      Code = 6  // A bytes, B files, mode C, on First
	Proc       Code = 7  // a fresh /proc on First
	Devpts     Code = 8  // a private devpts on First
	Text       Code = 9  // a file with Blob and mode C, or the one at Second with Blob at its end, over First, attributes A
	Pool       Code = 10 // A bytes, B files, mode C, on First of the host, below the root to come
	Pivot      Code = 11 // the new root becomes /
	Attributes Code = 12 // set attributes A on the one mount at First, once it is /
	Loopback   Code = 13 // lo up; A is a second address, in network order as the machine reads it
	Listen     Code = 14 // on port A of the address in Blob
	Hostname   Code = 15 // First
	Rlimit     Code = 16 // resource A: soft B, hard C, or the hard limit there is
	Write      Code = 17 // Second into the file First
	Ruleset    Code = 18 // a Landlock ruleset that handles A and scopes B
	Rule       Code = 19 // rights A, of which B apply to files, below First
	Restrict   Code = 20 // pid 1 takes the ruleset on
	Keep       Code = 21 // every command will take the ruleset on
	Seal       Code = 22 // no capabilities, no new privileges
	Filter     Code = 23 // load the system call filter in Blob
	Files      Code = 24 // every command may have A open files
	Here       Code = 25 // what is / already is the root: instead of Root and Pivot
	Title      Code = 26 // the sandbox's ID is First, not longer than the one it was started with
	Bound      Code = 27 // the part of Seal that needs not be last: nothing gets capabilities by being executed
)

// Flags change how an operation is done.
type Flags uint32

// The flags.
const (
	Optional Flags = 1  // what is missing is left out
	Make     Flags = 2  // the mount point may be made
	Inside   Flags = 4  // the source is a path below the new root
	Strict   Flags = 8  // the source may not pass through a symbolic link
	Single   Flags = 16 // a file with a second hard link is refused
	IfThere  Flags = 32 // a missing mount point is left out
	TheLink  Flags = 64 // source and target are a symbolic link, which itself is meant
	// Notify lets the node have the filter's questions. Where another filter
	// above has a listener already, the filter answers by itself.
	Notify Flags = 128
	// InPool means a directory of the pool by its name: to make it, or as a source.
	InPool Flags = 256
)

// An Op is one operation.
type Op struct {
	Code          Code
	Flags         Flags
	A, B, C       uint64
	First, Second string
	Blob          []byte
}

// Equal reports whether both are the same. What is the same slice is not read.
func (op Op) Equal(other Op) bool {
	same := len(op.Blob) == len(other.Blob) && (len(op.Blob) == 0 || &op.Blob[0] == &other.Blob[0] || bytes.Equal(op.Blob, other.Blob))
	return same && op.Code == other.Code && op.Flags == other.Flags && op.A == other.A && op.B == other.B && op.C == other.C &&
		op.First == other.First && op.Second == other.Second
}

// opHead is the size of an operation without its names and its blob.
const opHead = 48

func (op Op) size() int {
	return (opHead + len(op.First) + len(op.Second) + 2 + len(op.Blob) + 7) &^ 7
}

// appendOps appends operations as the helper reads them, and their end.
func appendOps(out []byte, ops []Op) []byte {
	all := append(ops[:len(ops):len(ops)], Op{Code: opEnd})
	size := 0
	for _, op := range all {
		size += op.size()
	}
	out = slices.Grow(out, size)
	for _, op := range all {
		size := op.size()
		end := len(out) + size
		out = binary.LittleEndian.AppendUint32(out, uint32(op.Code))
		out = binary.LittleEndian.AppendUint32(out, uint32(op.Flags))
		for _, v := range [...]uint64{op.A, op.B, op.C} {
			out = binary.LittleEndian.AppendUint64(out, v)
		}
		for _, n := range [...]int{len(op.First), len(op.Second), len(op.Blob), size} {
			out = binary.LittleEndian.AppendUint32(out, uint32(n))
		}
		out = append(append(out, op.First...), 0)
		out = append(append(out, op.Second...), 0)
		out = append(out, op.Blob...)
		out = append(out, padding[:end-len(out)]...)
	}
	return out
}

// padding is what an operation is filled up with.
var padding [8]byte

// Stages of a [StageError].
const (
	StageProtocol         = "speaking with the sandbox helper"
	StageUserNamespace    = "making a user namespace"
	StageMountNamespace   = "making a mount namespace"
	StagePIDNamespace     = "making a process namespace"
	StageNetworkNamespace = "making a network namespace"
	StageIPCNamespace     = "making an IPC namespace"
	StageUTSNamespace     = "making a host name namespace"
	StageCgroupNamespace  = "making a control group namespace"
	StageMaps             = "mapping user and group by"
	StageFork             = "starting a process"
	StagePrivate          = "making mounts private below"
	StageRoot             = "mounting the new root on"
	StageSource           = "opening"
	StageMake             = "making"
	StageMount            = "mounting"
	StageProc             = "mounting a fresh process list on"
	StageDevpts           = "mounting private terminals on"
	StagePool             = "mounting the memory of all scratch directories on"
	StagePivot            = "changing the root"
	StageAttributes       = "making read-only"
	StageLoopback         = "bringing the loopback interface up"
	StageListen           = "listening inside"
	StageHostname         = "setting the host name"
	StageRlimit           = "setting a resource limit"
	StageWrite            = "writing"
	StageLandlock         = "restricting by Landlock"
	StageRule             = "adding a Landlock rule for"
	StageCapabilities     = "dropping capabilities"
	StageNoNewPrivs       = "setting no_new_privs"
	StageSeccomp          = "loading the system call filter"
	StageTerminal         = "opening a terminal"
	StageStdio            = "connecting the standard streams"
	StageDir              = "changing to"
	StageProgram          = "running"
	StageNotify           = "installing a seccomp notification listener"
	StageBusy             = "starting one more command"
	StageConnect          = "connecting inside"
)

// stages is in the order of protocol.h; the numbers begin at one.
var stages = [...]string{
	"", StageProtocol, StageUserNamespace, StageMountNamespace, StagePIDNamespace,
	StageNetworkNamespace, StageIPCNamespace, StageUTSNamespace, StageCgroupNamespace,
	StageMaps, StageFork, StagePrivate, StageRoot, StageSource, StageMake, StageMount,
	StageProc, StageDevpts, StagePool, StagePivot, StageAttributes, StageLoopback,
	StageListen, StageHostname, StageRlimit, StageWrite, StageLandlock, StageRule,
	StageCapabilities, StageNoNewPrivs, StageSeccomp, StageTerminal, StageStdio,
	StageDir, StageProgram, StageNotify, StageBusy,
	StageConnect,
}

func stageError(stage, errno int32, operand string) *StageError {
	name := fmt.Sprintf("stage %d", stage)
	if stage > 0 && int(stage) < len(stages) {
		name = stages[stage]
	}
	return &StageError{Stage: name, Operand: operand, Errno: syscall.Errno(errno)}
}

// A message is the fixed part of a packet.
type message struct {
	kind    uint32
	tag     uint32
	a, b, c int32
	operand string
}

const messageSize = 24

func (m message) encode() []byte {
	out := make([]byte, 0, messageSize)
	for _, v := range []uint32{protocolVersion, m.kind, m.tag, uint32(m.a), uint32(m.b), uint32(m.c)} {
		out = binary.LittleEndian.AppendUint32(out, v)
	}
	return out
}

func decode(packet []byte) (message, error) {
	if len(packet) < messageSize {
		return message{}, fmt.Errorf("%s: packet of %d bytes", StageProtocol, len(packet))
	}
	at := func(i int) uint32 { return binary.LittleEndian.Uint32(packet[4*i:]) }
	if at(0) != protocolVersion {
		return message{}, fmt.Errorf("%s: it speaks version %d, this node %d", StageProtocol, at(0), protocolVersion)
	}
	return message{
		kind: at(1), tag: at(2), a: int32(at(3)), b: int32(at(4)), c: int32(at(5)),
		operand: string(packet[messageSize:]),
	}, nil
}

// program is what an exec message's memory file holds.
func program(dir string, candidates, argv, env []string) []byte {
	var out []byte
	for _, n := range []int{len(candidates), len(argv), len(env), 0} {
		out = binary.LittleEndian.AppendUint32(out, uint32(n))
	}
	out = append(append(out, dir...), 0)
	for _, list := range [][]string{candidates, argv, env} {
		for _, s := range list {
			out = append(append(out, s...), 0)
		}
	}
	return out
}
