//go:build unix

package program

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"testing"
	"time"
)

// TestGivenUpWithWhatItStarted: what a program has started holds its output, and
// ends with it.
func TestGivenUpWithWhatItStarted(t *testing.T) {
	t.Parallel()
	ctx, giveUp := context.WithCancelCause(t.Context())
	cmd := Command(ctx, "/bin/sh", "-c", "sleep 1000 & echo begun; wait")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := out.(*os.File).SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	said := bufio.NewReader(out)
	if line, err := said.ReadString('\n'); line != "begun\n" {
		t.Fatalf("%q, %v", line, err)
	}
	enough := errors.New("enough")
	giveUp(enough)
	if rest, err := io.ReadAll(said); len(rest) > 0 || err != nil { // until nobody holds it
		t.Errorf("what it started still holds its output: %q, %v", rest, err)
	}
	if err := Ended(ctx, cmd.Wait()); !errors.Is(err, enough) {
		t.Errorf("it ended with %v", err)
	}
}

// TestLeftRunningIsNotWaitedFor: a program that has answered has, whatever it
// leaves behind.
func TestLeftRunningIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	cmd := Command(t.Context(), "/bin/sh", "-c", "sleep 1000 & echo done")
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := Ended(t.Context(), cmd.Run()); err != nil || out.String() != "done\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
	if err := End(cmd); err != nil {
		t.Errorf("what it left could not be ended: %v", err)
	}
}

// TestNeverStarted: there is nothing to end.
func TestNeverStarted(t *testing.T) {
	t.Parallel()
	cmd := Command(t.Context(), "/nonexistent/program")
	if err := cmd.Run(); err == nil {
		t.Error("it was run")
	}
	if err := End(cmd); err != nil {
		t.Error(err)
	}
}
