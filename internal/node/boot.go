package node

import (
	"os"
	"strings"
)

// bootID names the start of the machine that this process lives in, "" where
// it has no name.
func bootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.ReplaceAll(strings.TrimSpace(string(id)), "-", "")
}

// keyOf names a start of a node, with the start of the machine before it.
func keyOf(boot, start string) string { return boot + "." + start }

// earlier reports whether the node of a key lived before the machine was last
// started. Where either is not known it is not said.
func earlier(key, boot string) bool {
	of, _, named := strings.Cut(key, ".")
	return named && of != "" && boot != "" && of != boot
}
