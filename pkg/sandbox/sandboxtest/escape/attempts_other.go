//go:build !linux

package escape

func fileAttempts() []Attempt       { return nil }
func repositoryAttempts() []Attempt { return nil }
func networkAttempts() []Attempt    { return nil }
func processAttempts() []Attempt    { return nil }
func privilegeAttempts() []Attempt  { return nil }
func kernelAttempts() []Attempt     { return nil }
