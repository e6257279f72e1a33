//go:build !linux

package cli

import "context"

func buildImage(context.Context, Process, imageOptions) error { return supported() }

func checkImage(context.Context, Process, string, bool) error { return supported() }
