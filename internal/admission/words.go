package admission

import (
	"fmt"
	"strings"
	"time"
)

// Place is where somebody stands in the queue.
type Place struct {
	Number   int // 1 is next
	Of       int // how many of the kind wait
	Cause    Cause
	Reason   string        // a clause without a full stop
	Estimate time.Duration // until it is let in; 0 means not known
}

// String is the place as one line for the person who waits.
func (p Place) String() string {
	return fmt.Sprintf("place %d of %d in the queue: %s; %s", p.Number, p.Of, p.Reason, p.When())
}

// When is the estimate in words.
func (p Place) When() string {
	switch {
	case p.Estimate <= 0:
		return "nobody can say yet how long that takes"
	case p.Estimate < time.Second:
		return "any moment now, by what earlier ones took"
	}
	return "about " + span(p.Estimate) + " by what earlier ones took"
}

// A FullError refuses at once: nobody may join the queue.
type FullError struct {
	Limits  Limits
	Running int
	Waiting int
}

func (e *FullError) Error() string {
	return fmt.Sprintf("no free slot for another %s: %s, %d already waiting", e.Limits.One, running(e.Limits, e.Running), e.Waiting)
}

// Code is for programs.
func (*FullError) Code() string { return "capacity" }

// Exit is that of a session which the node could not run.
func (*FullError) Exit() int { return 125 }

// Hint is the next step.
func (*FullError) Hint() string {
	return "try again later; `mojoup-node status` shows what runs and who waits"
}

// A WaitedError says that no slot became free in the time that one waits.
type WaitedError struct {
	Limits Limits
	Waited time.Duration
	Reason string // the last one
}

func (e *WaitedError) Error() string {
	return fmt.Sprintf("no free slot for another %s after waiting for %s: %s", e.Limits.One, span(e.Waited), e.Reason)
}

// Code is for programs.
func (*WaitedError) Code() string { return "no-free-slot" }

// Exit is that of a session which the node could not run.
func (*WaitedError) Exit() int { return 125 }

// Hint is the next step.
func (*WaitedError) Hint() string { return (*FullError)(nil).Hint() }

func slotsReason(l Limits, n int) string {
	what := "no more may"
	if l.Setting != "" {
		what = l.Setting + " allows no more"
	}
	return running(l, n) + " and " + what
}

func blindReason(l Limits) string {
	return fmt.Sprintf("the memory of this machine cannot be read, so that only %d %s run at once", blind, l.Many)
}

func pressureReason(r Reading) string {
	return fmt.Sprintf("%s is short of memory: processes waited for it in %.0f %% of the last ten seconds", r.Where, r.Pressure)
}

func memoryReason(r Reading, held, keep, need int64) string {
	s := fmt.Sprintf("%s of %s is free", size(r.Available), "the memory of "+r.Where)
	if held > 0 {
		s += fmt.Sprintf(", %s of it is promised to others that start", size(held))
	}
	return s + fmt.Sprintf(", %s stays free and this needs %s", size(keep), size(need))
}

const turnReason = "an earlier start that needs more memory goes first"

func running(l Limits, n int) string {
	if n == 1 {
		return "1 " + l.One + " is running"
	}
	return fmt.Sprintf("%d %s are running", n, l.Many)
}

// size is bytes in words.
func size(n int64) string {
	switch {
	case n < 0:
		return "0 MiB"
	case n < 1024*mebi:
		return fmt.Sprintf("%d MiB", n/mebi)
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1024*mebi))
}

// span is a duration in words, no finer than anybody plans by.
func span(d time.Duration) string {
	switch {
	case d < time.Second:
		return "less than a second"
	case d < 90*time.Second:
		return fmt.Sprintf("%d s", int(d.Round(time.Second)/time.Second))
	case d < 90*time.Minute:
		return fmt.Sprintf("%d min", int(d.Round(time.Minute)/time.Minute))
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", d.Hours()), ".0") + " h"
}
