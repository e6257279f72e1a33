//go:build !unix

package hostsocket

import "io/fs"

func inodeOf(fs.FileInfo) uint64 { return 0 }
