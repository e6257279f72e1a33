//go:build !unix

package host

const nonblock = 0
