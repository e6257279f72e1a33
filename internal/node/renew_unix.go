//go:build unix

package node

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
)

// renewByProcess renews in a process of its own, in a session of its own: it
// brings to its end what it has begun, whatever becomes of this one. Between
// the service's answer and the line on the disk a death would lose the sign-in. Once
// ctx is over it is asked to end, which it does where it only waits.
func (n *Node) renewByProcess(ctx context.Context, what Renewal) error {
	said, err := json.Marshal(what)
	if err != nil {
		return err
	}
	program := "/proc/self/exe"
	if runtime.GOOS != "linux" {
		if program, err = os.Executable(); err != nil {
			return err
		}
	}
	var answer bytes.Buffer
	cmd := exec.CommandContext(ctx, program, "signin", "renew")
	cmd.Dir, cmd.Stdin, cmd.Stdout = "/", bytes.NewReader(said), &answer
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Run(); err != nil {
		return RenewalSaid(answer.String())
	}
	if odd := strings.TrimSpace(answer.String()); odd != "" {
		n.log.Warn("renewing a sign-in", "tool", what.Tool.Name, "said", odd)
	}
	return nil
}
