//go:build !linux

package repo

import "io/fs"

const openFlags = 0

func identity(fs.FileInfo) (device, inode, links uint64) { return 0, 0, 0 }

func writable(string, fs.FileInfo) bool { return true }

func closed(string) bool { return false }

func held(string, fs.FileInfo) bool { return false }
