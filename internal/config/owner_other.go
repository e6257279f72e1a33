//go:build !unix

package config

import (
	"io/fs"
	"os"
)

func lock(*os.File) error { return nil }

func keepOwner(*os.File, fs.FileInfo) error { return nil }

// nonBlocking keeps an open from waiting; there is no such thing there.
const nonBlocking = 0

// othersWrite: who may write is not in the mode there.
func othersWrite(fs.FileInfo) bool { return false }

func ownerOf(fs.FileInfo) (int, bool) { return -1, true } // as os.Getuid has it there
