package capability

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"
)

const (
	// usualLimit bounds a probe whose host names no limit.
	usualLimit = 3 * time.Second
	// busy is what to do where a check did not end in time: the kernel makes and
	// removes network namespaces one after the other, so that where many come
	// and go one alone can take seconds.
	busy = "ask again: on a machine that is very busy, or where many sandboxes begin and end at this moment, it can take longer"
	// grace is how long a probe may still clean up after its time is over.
	grace = 500 * time.Millisecond
)

// both is for checks that either engine needs.
var both = []Engine{Native, Docker}

// A question is one row of the examination.
type question struct {
	name, title string
	engines     []Engine // that it decides
	needed      string
	ask         func(context.Context, *Host, facts) Check
}

// questions in the order of the report. The first one that fails gives an
// engine its reason, so the deeper causes stand first.
var questions = []question{
	{NameSystem, "Linux", both, "a Linux kernel", still(checkSystem)},
	{NameHelper, "Helper", []Engine{Native}, "", still(checkHelper)},
	{NameLandlock, "Landlock", both, "ABI 3 or later", still(checkLandlock)},
	{NameListener, "Seccomp user notification", both, "a listener of its own", checkListener},
	{NameNamespaces, "User namespaces", []Engine{Native}, "a namespace with every right in it", checkNamespaces},
	{NameLimits, "Limits", nil, "", still(checkLimits)},
	{NameTUN, "Tunnel device", nil, "", still(checkTUN)},
	{NameGroups, "Groups", nil, "", still(checkGroups)},
	{NameUser, "User of sessions", []Engine{Docker}, "an ordinary user", still(checkUser)},
	{NameDocker, "Docker", []Engine{Docker}, "", checkDocker},
	{NameCLI, "OpenShell command line", []Engine{Docker}, "", checkCLI},
	{NameGateway, "OpenShell gateway", []Engine{Docker}, "", still(checkGateway)},
	{NameAnswer, "The gateway's answer", []Engine{Docker}, "a gateway of 0.0.x or 0.1.x that runs sandboxes on Docker", checkAnswer},
	{NameImage, "Sandbox image", []Engine{Docker}, "an image with a shell, iproute2 and nftables", checkImage},
	{NameBinds, "Mounts of this machine", []Engine{Docker}, "a gateway that allows them", checkBinds},
	{NameReach, "Containers and this node", []Engine{Docker}, "a container that sees this node's files and reaches its port", checkReach},
	{NamePrivateTmp, "The gateway's /tmp", nil, "", still(checkPrivateTmp)},
	{NameTIOCSTI, "Terminal injection", nil, "", still(checkTIOCSTI)},
	{NameCore, "Core dumps", nil, "", still(checkCore)},
	{NameVsock, "Sockets to the hypervisor", nil, "", still(checkVsock)},
	{NameSession, "User session", nil, "", still(checkSession)},
}

// still adapts a check that has nothing to wait for.
func still(check func(*Host, facts) Check) func(context.Context, *Host, facts) Check {
	return func(_ context.Context, h *Host, f facts) Check { return check(h, f) }
}

// Examine asks every question about h, side by side, and decides for the
// configured engine. It takes no longer than the host's limit and half a
// second, whatever a probe does, and leaves nothing behind: a probe that does
// not end in time counts as "could not find out". So does everything once ctx
// ends.
func Examine(ctx context.Context, h Host, configured Engine) Report {
	start := time.Now()
	r := Report{At: start}
	if h.OS != "linux" {
		r.Checks = []Check{{Name: NameSystem, Title: "Linux", State: Fail, Found: plain(h.OS), Needed: "Linux",
			Reason: needLinux, Mend: "run the node on a Linux machine; WSL 2 is one", Engines: names(both)}}
	} else {
		r.Checks = ask(ctx, &h)
	}
	r.Engines, r.Verdict = Decide(r.Checks, configured)
	r.Took = time.Since(start)
	return r
}

func ask(ctx context.Context, h *Host) []Check {
	limit := h.Limit
	if limit <= 0 {
		limit = usualLimit
	}
	f := look(h)
	checks := make([]Check, len(questions))
	var wait sync.WaitGroup
	for i, q := range questions {
		wait.Go(func() { checks[i] = q.answer(ctx, h, f, limit) })
	}
	wait.Wait()
	return checks
}

// answer asks one question and waits at most limit and grace. A probe that is
// stuck in a system call, on a dead network file system in PATH for example,
// cannot be ended from outside: it alone is left to finish by itself.
func (q question) answer(ctx context.Context, h *Host, f facts, limit time.Duration) Check {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	done := make(chan Check, 1)
	go func() { done <- q.ask(ctx, h, f) }()
	select {
	case c := <-done:
		return q.sign(c)
	case <-ctx.Done():
	}
	late := time.NewTimer(grace)
	defer late.Stop()
	select {
	case c := <-done:
		return q.sign(c)
	case <-late.C:
		return q.sign(Check{State: Unknown, Found: "no answer in time",
			Reason: fmt.Sprintf("the check of %s did not end in time", strings.ToLower(q.title)), Mend: busy})
	}
}

// sign fills in what belongs to the question.
func (q question) sign(c Check) Check {
	c.Name, c.Title, c.Engines = q.name, q.title, names(q.engines)
	c.Needed = first(c.Needed, q.needed)
	return c
}

func names(engines []Engine) []string {
	list := make([]string, 0, len(engines))
	for _, e := range engines {
		list = append(list, string(e))
	}
	return list
}
