package node

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/mojoup/mojoup-node/pkg/console/api"
	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// refusedLines is how many refused calls the closing lines name.
const refusedLines = 3

// told follows which system calls of a session are refused: each one that is
// new is noted, at once, and how often it was made is at the end.
type told struct {
	l       *life
	teller  sandbox.Teller // nil where nobody tells
	stop    chan struct{}
	noting  sync.WaitGroup
	written int // how many are in the store
}

func (l *life) follow(ctx context.Context, box sandbox.Sandbox) *told {
	t := &told{l: l, stop: make(chan struct{})}
	teller, tells := box.(sandbox.Teller)
	if !tells {
		return t
	}
	t.teller = teller
	l.told.Store(t)
	t.noting.Go(func() {
		for {
			list, news := teller.Refusals()
			t.note(context.WithoutCancel(ctx), list)
			select {
			case <-news:
			case <-t.stop:
				return
			}
		}
	})
	return t
}

// note notes what is new. It is written at once, so that it is known of a
// session whose node is killed; there is a bounded number of kinds.
func (t *told) note(ctx context.Context, list []sandbox.Refusal) {
	if len(list) == t.written {
		return
	}
	for _, r := range list[t.written:] {
		who := programName(r.Program)
		if r.PID > 0 {
			who += fmt.Sprintf(" (process %d)", r.PID)
		}
		t.l.diary.note(api.EventRefusal, fmt.Sprintf("%s tried to %s (%s): refused by %s", who, r.Tried, r.Call, r.Answer))
	}
	t.write(ctx, list, t.written)
	t.written = len(list)
}

func (t *told) write(ctx context.Context, list []sandbox.Refusal, from int) {
	if err := t.l.n.store.PutRefusals(ctx, t.l.id, shownRefusals(list), from); err != nil {
		t.l.n.log.Error("writing refused calls down", "session", t.l.id, "err", err)
	}
}

// end is called once the sandbox has gone, and returns the closing lines.
func (t *told) end(ctx context.Context) []string {
	if t.teller == nil {
		return nil
	}
	close(t.stop)
	t.noting.Wait()
	list, _ := t.teller.Refusals()
	ctx = context.WithoutCancel(ctx)
	t.note(ctx, list)
	t.write(ctx, list, 0) // their numbers
	var lines []string
	for _, r := range list {
		line := refusedLine(r)
		if r.Count > 1 {
			t.l.diary.note(api.EventRefusal, line)
		}
		lines = append(lines, line)
	}
	if more := len(lines) - refusedLines; more > 1 {
		lines = append(lines[:refusedLines], fmt.Sprintf("%d more kinds of system calls were refused: mojoup-node session show %s", more, t.l.id))
	}
	return lines
}

// refusedLine says in words what was refused and how often.
func refusedLine(r sandbox.Refusal) string {
	tried := "tried"
	if r.Count > 1 {
		tried = fmt.Sprintf("tried %d times", r.Count)
	}
	return fmt.Sprintf("%s %s to %s (%s): refused", programName(r.Program), tried, r.Tried, r.Call)
}

// programName is a process' name, which is its own choice, where there is one.
func programName(name string) string {
	if strings.TrimSpace(name) == "" {
		return "some program"
	}
	return name
}

// refused are the refused calls of a session that lives.
func (l *life) refused() []api.Refusal {
	t := l.told.Load()
	if t == nil {
		return nil
	}
	list, _ := t.teller.Refusals()
	return shownRefusals(list)
}

func shownRefusals(list []sandbox.Refusal) []api.Refusal {
	var out []api.Refusal
	for _, r := range list {
		out = append(out, api.Refusal{
			Program: r.Program, PID: r.PID, Call: r.Call, Tried: r.Tried, Answer: r.Answer, Count: r.Count, First: r.First, Last: r.Last,
		})
	}
	return out
}
