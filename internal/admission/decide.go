package admission

import "time"

// Cause is why somebody waits, for programs.
type Cause string

// The causes.
const (
	CauseSlots    Cause = "slots"    // as many run as may
	CauseMemory   Cause = "memory"   // too little memory is free
	CausePressure Cause = "pressure" // processes already wait for memory
	CauseTurn     Cause = "turn"     // an earlier start that needs more goes first
)

const (
	// blind is how many of a kind without Max run where memory cannot be read.
	blind = 4
	// tooHard is the share of ten seconds, in percent, in which some process
	// waited for memory, from which on nothing more is started.
	tooHard = 20
	// scarce is the share of all memory, as a divisor, that must be free for
	// pressure to be disregarded: a session that thrashes within its own limit
	// counts in the machine's figure, and must not keep its neighbours out.
	scarce = 4
)

const mebi = 1 << 20

// Reading is what the machine says of its memory.
type Reading struct {
	Available int64 // what can be had without swapping, in bytes
	Total     int64
	Pressure  float64 // share of the last ten seconds in which some process waited for memory, in percent
	Where     string  // "this machine", or the closer limit
}

// machine is a Reading, or that there is none.
type machine struct {
	reading Reading
	known   bool
}

// load is what has been let in.
type load struct {
	all  int   // of every kind
	kind int   // of the kind that is asked about
	held int64 // memory that starts have been promised and do not use yet, in bytes
}

// memoryRule is [Memory] without its reader.
type memoryRule struct {
	need, keep int64
	warm       time.Duration
}

// left is what stays free of total.
func (m memoryRule) left(total int64) int64 {
	if m.keep > 0 {
		return m.keep
	}
	return min(max(total/32, 128*mebi), 1024*mebi)
}

// held is what is still held back, in bytes, for a start of that age that needs
// so much.
func (m memoryRule) held(need int64, age time.Duration) int64 {
	switch {
	case age <= 0:
		return need
	case age >= m.warm:
		return 0
	}
	return int64(float64(need) * (1 - float64(age)/float64(m.warm)))
}

// verdict is the answer to "may it start now?". Its zero value is no.
type verdict struct {
	admit  bool
	cause  Cause
	reason string // as a clause: "2 sessions are running and …"
}

// decide says whether something of a kind with limits l, that needs so much
// memory, may start now.
func decide(l Limits, now load, m machine, rule memoryRule, need int64) verdict {
	r := m.reading
	short := r.Available - now.held - rule.left(r.Total) - need
	switch {
	case now.all == 0:
		return verdict{admit: true}
	case l.Max > 0 && now.kind >= l.Max:
		return verdict{cause: CauseSlots, reason: slotsReason(l, now.kind)}
	case !m.known && l.Max == 0 && now.kind >= blind:
		return verdict{cause: CauseSlots, reason: blindReason(l)}
	case !m.known:
		return verdict{admit: true}
	case r.Pressure >= tooHard && r.Available < r.Total/scarce:
		return verdict{cause: CausePressure, reason: pressureReason(r)}
	case short < 0:
		return verdict{cause: CauseMemory, reason: memoryReason(r, now.held, rule.left(r.Total), need)}
	}
	return verdict{admit: true}
}
