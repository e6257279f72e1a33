//go:build unix

package node

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"github.com/mojoup/mojoup-node/pkg/secrets/signin"
)

// renewByProcess renews in a process of its own, in a session of its own: it
// brings to its end what it has begun, whatever becomes of this one. Between
// the service's answer and the line on the disk a death would lose the sign-in.
func renewByProcess(_ context.Context, tool signin.Tool, path string) error {
	program := "/proc/self/exe"
	if runtime.GOOS != "linux" {
		var err error
		if program, err = os.Executable(); err != nil {
			return err
		}
	}
	var said bytes.Buffer
	cmd := exec.Command(program, "signin", "renew", tool.Name, tool.Service, path)
	cmd.Dir, cmd.Stdout = "/", &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Run(); err != nil {
		return RenewalSaid(said.String())
	}
	return nil
}
