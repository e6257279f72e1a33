//go:build !linux

package main

import (
	"errors"
	"os"
)

// keepOutput leaves a terminal as it is: no session runs on one here.
func keepOutput(*os.File) error { return nil }

func slayProcess(int) error { return errors.ErrUnsupported }
