package node

import (
	"slices"
	"time"

	"github.com/mojoup/mojoup-node/internal/config"
	"github.com/mojoup/mojoup-node/pkg/policy"
	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// limits are those of a session: of the policy and of the node's settings
// the smaller one of each. from names the setting behind a fact where the
// smaller one is the node's.
func limits(p policy.Limits, s *config.Config) (l sandbox.Limits, from map[string]string) {
	from = map[string]string{}
	note := func(fact, setting string, theirs bool) {
		if theirs {
			from[fact] = setting
		}
	}
	var own bool
	l.CPUs, own = smaller(p.CPUs, s.Float(config.LimitCPUs))
	note("processor limit", config.LimitCPUs, own)
	l.Memory, own = smaller(p.Memory, s.Int(config.LimitMemory))
	note("memory limit", config.LimitMemory, own)
	l.Processes, own = smaller(p.Processes, int(s.Int(config.LimitProcesses)))
	note("process limit", config.LimitProcesses, own)
	l.Disk, own = smaller(0, s.Int(config.LimitDisk))
	note("disk limit", config.LimitDisk, own)
	l.Wall, own = smaller(p.Wall, s.Duration(config.LimitWall))
	note("time limit", config.LimitWall, own)
	return l, from
}

// smaller is the smaller one of two limits, where zero is none, and whether it
// is the second.
func smaller[T int | int64 | float64 | time.Duration](policy, setting T) (T, bool) {
	if setting > 0 && (policy == 0 || setting < policy) {
		return setting, true
	}
	return policy, false
}

// attributed adds to facts about limits which setting of the node they are of.
func attributed(facts []sandbox.Fact, from map[string]string) []sandbox.Fact {
	out := slices.Clone(facts)
	for i, f := range out {
		if setting := from[f.Name]; setting != "" {
			out[i].Detail += " (" + setting + ")"
		}
	}
	return out
}

// hit keeps what limits did to the session's own command: for the closing
// lines, and as the reason where one of them ended it. from is of [limits].
func (l *life) hit(e sandbox.Exit, from map[string]string) {
	if e.Limit != "" {
		l.cause = "the command was " + e.Limit
		l.closing = append(l.closing, "warning: "+l.cause)
	}
	if e.Noted != "" {
		l.closing = append(l.closing, "warning: "+e.Noted)
	}
	if e.HitMemory {
		l.closing = append(l.closing, raises(from["memory limit"], "limits.memory"))
	}
	if e.HitProcesses {
		l.closing = append(l.closing, raises(from["process limit"], "limits.processes"))
	}
}

// raises says where a limit that was hit is set: in a setting of the node, or in
// the policy, of which key is the place.
func raises(setting, key string) string {
	if setting == "" {
		return "the policy sets that limit: " + key
	}
	return "the setting " + setting + " sets that limit, from the node's next start on"
}
