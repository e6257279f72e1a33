package native

import (
	"fmt"

	landlock "github.com/landlock-lsm/go-landlock/landlock/syscall"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/sandbox/native/child"
)

// minABI is the least that is accepted: before it a file that may not be
// written could still be truncated.
const minABI = 3

// A KernelError says that the kernel lacks what a sandbox stands on.
type KernelError struct{ Wanted, Found string }

func (e *KernelError) Error() string { return "the kernel lacks " + e.Wanted + ": " + e.Found }

// Hint says which kernel has it.
func (e *KernelError) Hint() string {
	return "use Linux 6.2 or newer with Landlock among its security modules (lsm=landlock,… at boot)"
}

// landlockABI asks the kernel itself; no file tells it.
func landlockABI() (int, error) {
	abi, err := landlock.LandlockGetABIVersion()
	if err != nil {
		return 0, &KernelError{Wanted: fmt.Sprintf("Landlock ABI %d", minABI), Found: err.Error()}
	}
	if abi < minABI {
		return abi, &KernelError{Wanted: fmt.Sprintf("Landlock ABI %d", minABI), Found: fmt.Sprintf("it has ABI %d", abi)}
	}
	return abi, nil
}

const (
	look = landlock.AccessFSReadFile | landlock.AccessFSReadDir
	run  = landlock.AccessFSExecute
	// onFile are the rights that a rule on a file may name.
	onFile = landlock.AccessFSExecute | landlock.AccessFSWriteFile | landlock.AccessFSReadFile |
		landlock.AccessFSTruncate | landlock.AccessFSIoctlDev
	// change is everything that a writable directory allows: no devices.
	change = look | landlock.AccessFSWriteFile | landlock.AccessFSTruncate | landlock.AccessFSRefer |
		landlock.AccessFSRemoveDir | landlock.AccessFSRemoveFile | landlock.AccessFSMakeDir | landlock.AccessFSMakeReg |
		landlock.AccessFSMakeSock | landlock.AccessFSMakeFifo | landlock.AccessFSMakeSym
	device = landlock.AccessFSReadFile | landlock.AccessFSWriteFile | landlock.AccessFSTruncate | landlock.AccessFSIoctlDev
)

// handled are the file rights that a kernel knows.
func handled(abi int) uint64 {
	all := uint64(landlock.AccessFSTruncate)<<1 - 1
	if abi >= 5 {
		all |= landlock.AccessFSIoctlDev
	}
	if abi >= 9 {
		all |= landlock.AccessFSResolveUnix
	}
	return all
}

func scopes(abi int) uint64 {
	if abi < 6 {
		return 0
	}
	return landlock.ScopeAbstractUnixSocket | landlock.ScopeSignal
}

// rulesetOps begins the rules that every command takes on, with those of what
// each sandbox has from the engine. There is no rule for "/" with more than
// the right to list it: what a mount does not grant is refused, whatever is
// found there later.
func rulesetOps(m machine) []child.Op {
	ops := []child.Op{
		{Code: child.Ruleset, A: handled(m.abi)},
		ruleOp("/", landlock.AccessFSReadDir, 0, m),
		// Programs write to files of their own there (oom_score_adj, comm).
		ruleOp("/proc", look|landlock.AccessFSWriteFile|landlock.AccessFSTruncate, 0, m),
	}
	for _, d := range devices {
		ops = append(ops, ruleOp(d, device, 0, m))
	}
	return append(ops,
		ruleOp("/dev/pts", device|look, 0, m),
		ruleOp("/dev/shm", change|run|landlock.AccessFSResolveUnix, 0, m),
	)
}

// ruleOps are the rules of mounts.
func ruleOps(mounts []sandbox.Mount, m machine) []child.Op {
	var ops []child.Op
	for _, mount := range mounts {
		if rights, ok := rightsOf(mount); ok {
			var flags child.Flags
			if mount.Optional {
				flags = child.Optional
			}
			ops = append(ops, ruleOp(mount.Target, rights, flags, m))
		}
	}
	return ops
}

func ruleOp(p string, rights uint64, flags child.Flags, m machine) child.Op {
	all := handled(m.abi)
	return child.Op{Code: child.Rule, Flags: flags, First: p, A: rights & all, B: onFile & all}
}

func rightsOf(m sandbox.Mount) (uint64, bool) {
	rights := uint64(look)
	switch {
	case m.Kind == sandbox.Link, m.Kind == sandbox.Seed: // what it lies in has a rule
		return 0, false
	case m.Kind == sandbox.Text:
		return landlock.AccessFSReadFile | run, true
	case m.Access == sandbox.ReadWrite:
		rights = change
	}
	if m.Kind == sandbox.Scratch {
		// From ABI 9 on a socket of the host in a mounted directory is out of
		// reach; those in scratch are the session's own.
		rights |= landlock.AccessFSResolveUnix
	}
	if !m.NoExec {
		rights |= run
	}
	return rights, true
}

// firstDomainOps is pid 1's own domain, in which those of all commands nest.
// The scopes are its only purpose: a signal or an abstract socket between two
// commands stays possible. But a domain that handles no file right would deny
// every rename between directories once another one below it handles some, so
// it handles just that right and grants it everywhere.
func firstDomainOps(m machine) []child.Op {
	const refer = landlock.AccessFSRefer
	return []child.Op{
		{Code: child.Ruleset, A: refer, B: scopes(m.abi)},
		{Code: child.Rule, First: "/", A: refer, B: 0},
		{Code: child.Restrict},
	}
}
