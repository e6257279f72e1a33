//go:build !linux

package store

import "io/fs"

// Sandboxes need Linux, so a node of another system has nothing to keep; the
// package is there to compile.

func fileSystem(string) (int64, error) { return 0, nil }

func diskFull(string) bool { return false }

func networkFileSystem(int64) (name string, remote bool) { return "", false }

func onlyOurs(string, fs.FileInfo) error { return nil }
