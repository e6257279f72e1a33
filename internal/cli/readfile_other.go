//go:build !linux

package cli

import "os"

func readBounded(path string) ([]byte, error) { return os.ReadFile(path) }
