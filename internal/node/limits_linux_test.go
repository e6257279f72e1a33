package node

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mojoup/mojoup-node/internal/config"
	"github.com/mojoup/mojoup-node/pkg/console/api"
	"github.com/mojoup/mojoup-node/pkg/policy"
	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// The smaller one of a policy's and a setting's limit holds, each by itself.
func TestLimitsAreTheSmallerOnes(t *testing.T) {
	settings := func(environ ...string) *config.Config {
		t.Helper()
		for i := range environ {
			environ[i] = "MOJOUP_NODE_SANDBOX_LIMITS_" + environ[i]
		}
		c, err := config.Origin{Environ: append(environ, noPage...)}.Load()
		must(t, err)
		return c
	}
	for _, c := range []struct {
		name   string
		policy policy.Limits
		set    *config.Config
		want   sandbox.Limits
		from   map[string]string
	}{
		{"nothing", policy.Limits{}, settings(), sandbox.Limits{}, map[string]string{}},
		{"policy alone", policy.Limits{CPUs: 2, Memory: 1 << 30, Processes: 64, Wall: time.Hour}, settings(),
			sandbox.Limits{CPUs: 2, Memory: 1 << 30, Processes: 64, Wall: time.Hour}, map[string]string{}},
		{"settings alone", policy.Limits{}, settings("CPUS=0.5", "MEMORY=512MiB", "PROCESSES=100", "DISK=1GiB", "WALL=8h"),
			sandbox.Limits{CPUs: 0.5, Memory: 512 << 20, Processes: 100, Disk: 1 << 30, Wall: 8 * time.Hour},
			map[string]string{"processor limit": config.LimitCPUs, "memory limit": config.LimitMemory, "process limit": config.LimitProcesses, "disk limit": config.LimitDisk, "time limit": config.LimitWall}},
		{"each by itself", policy.Limits{CPUs: 2, Memory: 256 << 20, Processes: 64, Wall: time.Hour}, settings("CPUS=1", "MEMORY=512MiB", "PROCESSES=64", "WALL=30m"),
			sandbox.Limits{CPUs: 1, Memory: 256 << 20, Processes: 64, Wall: 30 * time.Minute},
			map[string]string{"processor limit": config.LimitCPUs, "time limit": config.LimitWall}},
	} {
		got, from := limits(c.policy, c.set)
		if diff := cmp.Diff(c.want, got) + cmp.Diff(c.from, from); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

// B69: a session that was killed for memory says so with the limit's value, at
// its end and afterwards; a child that was killed alone is noted, and its
// session goes on.
func TestB69_EndsSayWhichLimit(t *testing.T) {
	t.Parallel()
	const bomb = `BEGIN { s = "0123456789abcdef"; for (i = 0; i < 25; i++) s = s s; while (1) {} }`
	w := newWorld(t)
	o := w.options(t, nativeEngine(t))
	var err error
	o.Settings, err = config.Origin{Environ: append(noPage, "MOJOUP_NODE_SANDBOX_LIMITS_MEMORY=64MiB")}.Load()
	must(t, err)
	r := w.serve(t, o)
	const set = "the setting node.sandbox.limits.memory sets that limit, from the node's next start on"
	for name, c := range map[string]struct {
		argv   []string
		code   int
		closes string
		reason string
	}{
		"the command":      {[]string{"awk", bomb}, 137, "warning: the command was killed for memory: limit 64 MiB\n" + set, "the command was killed for memory: limit 64 MiB"},
		"a child of it":    {[]string{"sh", "-c", "awk '" + bomb + "'; exit 3"}, 3, "warning: a process that it started was killed for memory: limit 64 MiB\n" + set, ""},
		"nothing happened": {[]string{"true"}, 0, "", ""},
	} {
		a := w.ask(t, r.client, api.RunRequest{Command: c.argv, PolicyName: "own", Policy: `{"version": 1, "limits": {"memory": "1GiB"}}`})
		end, err := a.end(t)
		if err != nil || end.Problem != nil || end.Code != c.code || strings.Join(end.Notices, "\n") != c.closes {
			t.Errorf("%s: %+v, %v", name, end, err)
		}
		past, err := r.client.Sessions(t.Context(), true)
		must(t, err)
		last := past[0]
		for _, s := range past {
			if s.Since.After(last.Since) {
				last = s
			}
		}
		if last.Reason != c.reason || c.closes != "" && !strings.Contains(strings.Join(last.Notices, "\n"), c.closes) {
			t.Errorf("%s: afterwards %q, %q", name, last.Reason, last.Notices)
		}
		for _, f := range last.Enforced {
			if f.Name == "memory limit" && (!strings.HasPrefix(f.Detail, "64 MiB") || !strings.HasSuffix(f.Detail, "("+config.LimitMemory+")")) {
				t.Errorf("%s: shown as %+v", name, f)
			}
		}
	}
}
