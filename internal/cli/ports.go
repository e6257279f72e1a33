package cli

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/mojoup/mojoup-node/internal/fault"
)

func newSessionPorts(p Process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ports ID [PORT…]",
		Short: "reach a session's dev servers from this machine",
		Long: `Forward ports of 127.0.0.1 to servers inside a running session, until it ends:
those of its policy's "ports", and only when asked. A port that is taken here
gets a free one instead. Without a port, list what may be and what is forwarded.`,
		Example: "  mojoup-node session ports 5f1c2e 3000",
		Args:    withSessionID(atLeast("a session id")),
		RunE: func(cmd *cobra.Command, args []string) error {
			return ports(cmd.Context(), p, args[0], args[1:], wantsJSON(cmd))
		},
	}
	addJSON(cmd)
	return cmd
}

func ports(ctx context.Context, p Process, id string, words []string, asJSON bool) error {
	var open []uint16
	for _, w := range words {
		n, err := strconv.ParseUint(w, 10, 16)
		if err != nil || n == 0 {
			return fault.Usage("%q is not a port", w).WithHint("a port is a number from 1 to 65535")
		}
		open = append(open, uint16(n))
	}
	h, err := look(p)
	if err != nil {
		return err
	}
	all, err := h.client().Ports(ctx, id, open)
	if err != nil {
		return noNode(err)
	}
	if asJSON {
		return printJSON(p.Stdout, all)
	}
	pen := newPen(p)
	if len(all) == 0 {
		pen.printf("the policy of this session names no ports\n")
		return nil
	}
	for _, one := range all {
		where := "not forwarded"
		if one.Address != "" {
			where = "http://" + one.Address
		}
		pen.printf("%s %s\n", pad(strconv.Itoa(int(one.Port)), 5), where)
	}
	return nil
}
