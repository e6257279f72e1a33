//go:build !linux

package node

func ownDirectory(string, int) bool { return false }
