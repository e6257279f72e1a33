package cli

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/mojoup/mojoup-node/internal/client"
	"github.com/mojoup/mojoup-node/internal/fault"
	"github.com/mojoup/mojoup-node/internal/node"
	"github.com/mojoup/mojoup-node/internal/recording"
)

// terminalLogs shows what was recorded of a session's terminal.
func terminalLogs(ctx context.Context, p Process, id, as string, follow, asJSON bool) error {
	switch {
	case as != "text" && as != "cast":
		return fault.Usage("--terminal=%s is neither text nor cast", as)
	case follow:
		return fault.Usage("--terminal shows what was recorded so far, and does not follow it").WithHint("`mojoup-node session attach --read-only %s` shows it as it comes", id)
	case asJSON && as == "cast":
		return fault.Usage("--json and --terminal=cast cannot both be given").WithHint("--terminal=cast is JSON, a line for each event; --json with --terminal is one list")
	}
	h, err := look(p)
	if err != nil {
		return err
	}
	from, err := h.client().Recording(ctx, id)
	if errors.Is(err, client.ErrNotRunning) && supported() == nil {
		from, err = node.NewOffline(h.paths).Recording(ctx, id)
	}
	if err != nil {
		return fault.As(err)
	}
	defer from.Close()
	if as == "cast" {
		_, err = io.Copy(p.Stdout, from)
		return reading(err)
	}
	if asJSON {
		return printShown(p, from)
	}
	return showText(p, from)
}

// reading says what was being done when the node went away.
func reading(err error) error {
	if err == nil {
		return nil
	}
	return fault.Unknown("reading the recording: %w", err)
}

// showText writes a recording as text in which nothing draws. What is no text
// of the terminal's goes to stderr.
func showText(p Process, from io.Reader) error {
	out := &lineByLine{w: p.Stdout, terminal: true}
	err := recording.Read(from, func(e recording.Event) (err error) {
		switch e.Kind {
		case recording.Output:
			_, err = io.WriteString(out, e.Text)
		case recording.Marker:
			talk{p.Stderr}.line("%s", e.Text)
		}
		return err
	})
	return reading(errors.Join(err, out.flush()))
}

// shownEvent is one of a recording's, as JSON.
type shownEvent struct {
	Time time.Time `json:"time"`
	Kind string    `json:"kind"`
	Text string    `json:"text"`
}

// shownKinds are the words for the letters of the format.
var shownKinds = map[string]string{recording.Output: "output", recording.Resize: "size", recording.Marker: "remark"}

func printShown(p Process, from io.Reader) error {
	all := []shownEvent{}
	err := recording.Read(from, func(e recording.Event) error {
		if kind := shownKinds[e.Kind]; kind != "" {
			all = append(all, shownEvent{e.At, kind, e.Text})
		}
		return nil
	})
	if err != nil {
		return reading(err)
	}
	return printJSON(p.Stdout, all)
}
