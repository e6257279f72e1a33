//go:build !linux

package repo

import (
	"io/fs"
	"time"
)

const openFlags = 0

func identity(fs.FileInfo) (device, inode, links uint64) { return 0, 0, 0 }

func writable(string, fs.FileInfo) bool { return true }

func closed(string) bool { return false }

func held(string, fs.FileInfo) (bool, error) { return false, nil }

func changed(fs.FileInfo) int64 { return 0 }

func bornAfter(string, time.Time) bool { return true }
