//go:build !linux

package cli

import (
	"context"

	"github.com/spf13/cobra"
)

func hide() error { return nil }

func serveSystem(context.Context, Process) error { return supported() }

func tidyPeople(context.Context, Process, here) (did, left []string, err error) {
	return nil, nil, supported()
}

func newDeputy(Process) *cobra.Command {
	return &cobra.Command{Use: "deputy", Hidden: true, RunE: func(*cobra.Command, []string) error { return supported() }}
}
