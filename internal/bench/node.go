package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// What is aimed at, in KiB: of a node that has carried a session, and of each
// session more that idles.
const (
	nodeAtMost    = 40 << 10
	sessionAtMost = 1 << 10
)

// still is for how long a node's memory has to stay as it is to count: longer
// than a node waits before it gives memory back.
const still = 5 * time.Second

// NodeMemory says what the own memory of the node that runs as process pid is
// while nothing happens, and by how much it grows for each of n sessions that
// start begins and leaves running.
func NodeMemory(ctx context.Context, pid, n int, start func(context.Context) error) ([]Figure, error) {
	const what = "the memory of a node"
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	before, err := settled(ctx, dir)
	if err != nil {
		return nil, &Error{What: what, Err: err}
	}
	for range n {
		if err := start(ctx); err != nil {
			return nil, &Error{What: what, Err: err}
		}
	}
	after, err := settled(ctx, dir)
	if err != nil {
		return nil, &Error{What: what, Err: err}
	}
	return []Figure{
		{Name: "a node, idle after its first session", KiB: before, AtMost: nodeAtMost},
		{Name: fmt.Sprintf("a node, each of %d idle sessions", n), KiB: (after - before) / int64(n), AtMost: sessionAtMost},
	}, nil
}

// settled is a process' own memory once it stays as it is, give or take one in
// fifty; or as it is after twelve times that long.
func settled(ctx context.Context, dir string) (int64, error) {
	at, since := anonymous(dir), time.Now()
	for begun := since; time.Since(since) < still && time.Since(begun) < 12*still; {
		select {
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-time.After(still / 20):
		}
		if now := anonymous(dir); max(now-at, at-now) > at/50 {
			at, since = now, time.Now()
		}
	}
	if at = anonymous(dir); at == 0 {
		return 0, fmt.Errorf("process %s has ended", filepath.Base(dir))
	}
	return at, nil
}

// anonymous is a process' own memory, RssAnon, in KiB.
func anonymous(dir string) int64 {
	text, _ := os.ReadFile(filepath.Join(dir, "status"))
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "RssAnon:" {
			n, _ := strconv.ParseInt(f[1], 10, 64)
			return n
		}
	}
	return 0
}
