// Package engine promises sandboxes of an OpenShell gateway that behave as
// those of the node itself do: the same Spec, the same suite, the same end.
//
// The gateway makes a container of an image and confines it; its policy lets
// one program out, to one port. The node's helper is the container's main
// process: it connects back through a socket in a staged directory, adds this
// node's own system call filter and Landlock rules beneath OpenShell's, and
// starts every command with exactly the arguments, environment and streams
// that were given. What OpenShell's own exec cannot do (signals, other bytes
// than text, a terminal's size, how a command ended) it so need not do.
//
//	Prepare                          gateway                 container
//	 | hold, stage, listen              |
//	 |-- create ----------------------->|-- image, mounts ----->| supervisor
//	 |   (Docker: which container?)     |                       |   policy, Landlock, seccomp
//	 |-- arrange, as its root ----------------------------------| host name, links
//	 |<- connects ----------------------------------------------| helper
//	 |-- seal --------------------------------------------------| filter, Landlock
//	 |-- start -------------------------------------------------| forwarder
//
// A sandbox is deleted by the id that the gateway gave it, and waited for. What
// a dead node left is found by name and labels, and belongs to it only if both
// say so.
package engine
