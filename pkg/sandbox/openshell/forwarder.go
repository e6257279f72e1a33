package openshell

import (
	"embed"
	"fmt"
)

// The forwarder is one file per architecture; what is missing there is found
// when it is asked for, so that a fresh clone compiles.
//
//go:embed forwarder/bin
var forwarders embed.FS

// Forwarder is the program of package forwarder for an architecture.
func Forwarder(arch string) ([]byte, error) {
	program, err := forwarders.ReadFile("forwarder/bin/forwarder-" + arch)
	if err != nil {
		return nil, fmt.Errorf("this build has no forwarder for %s: build with make", arch)
	}
	return program, nil
}
