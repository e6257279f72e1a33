// Package trial promises answers to what package capability asks about an
// OpenShell gateway and its Docker, each found out by doing it: whether a mount of
// this machine is taken, whether a container sees this node's files and reaches
// its listener. Nothing of a trial outlives it.
package trial
