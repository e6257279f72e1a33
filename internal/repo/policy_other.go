//go:build !linux

package repo

import "context"

// ReadPolicy answers [ErrUnsupported].
func ReadPolicy(context.Context, string) ([]byte, error) { return nil, ErrUnsupported }
