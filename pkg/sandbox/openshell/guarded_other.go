//go:build !unix

package openshell

import "io/fs"

// guarded asks nothing where files have no owner that is a number.
func guarded(string, fs.FileInfo, int, secrecy) error { return nil }
