//go:build !cgo

package native

import "errors"

func toldCalls([]refusal) (map[int][]toldCall, error) { return nil, nil }

// buildFilter needs libseccomp, which is C.
func buildFilter([]refusal) ([]byte, error) {
	return nil, errors.New("this build has no system call filter: build with CGO_ENABLED=1 and libseccomp")
}
