//go:build !linux

package cgroup

// system is empty: there are no control groups to write to.
type system interface{}

type kernel struct{}
