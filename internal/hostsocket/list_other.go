//go:build !linux

package hostsocket

import "errors"

// List needs Linux.
func List() ([]Socket, error) { return nil, errors.ErrUnsupported }
