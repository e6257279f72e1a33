//go:build !linux

package inside

// Main does nothing: containers are Linux.
func Main([]string) int { return 1 }
