//go:build !linux

package engine
