package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
)

// agreed asks on a terminal and reports whether the person said yes in full.
// What is asked for is more than a key pressed by habit should do.
func agreed(ctx context.Context, p Process, question string) bool {
	fmt.Fprintf(p.Stderr, "%s Type yes: ", question)
	return strings.EqualFold(typedLine(ctx, p.Stdin), "yes")
}

// typedLine is what the person types, or nothing where they interrupt it. The
// read itself cannot be ended and stays behind; the command ends soon after.
func typedLine(ctx context.Context, r io.Reader) string {
	typed := make(chan string, 1)
	go func() {
		line, err := bufio.NewReader(r).ReadString('\n')
		if err != nil {
			line = ""
		}
		typed <- strings.TrimSpace(line)
	}()
	select {
	case line := <-typed:
		return line
	case <-ctx.Done():
		return ""
	}
}
