// Package native promises sandboxes made of the Linux kernel alone:
// namespaces, mounts, Landlock, seccomp and resource limits, without a
// daemon, as root and as an ordinary user by the same way.
//
// What a sandbox is to be comes as a [sandbox.Spec]. compile turns it, purely,
// into the flat list of operations that package child carries out before the
// first command; what was really enforced is then asked from inside.
package native
