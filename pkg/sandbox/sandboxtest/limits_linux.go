package sandboxtest

import (
	"testing"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// hold keeps 200 MB until its reader reads, ten seconds on, and ends as the
// process that keeps them did: a limit that somebody watches, and the kernel
// does not keep, is late by a moment.
const hold = `mkfifo /tmp/held
{ sleep 10; cat; } </tmp/held >/dev/null & reader=$!
head -c 200000000 /dev/zero | tail -c 199999999 >/tmp/held & wait $!; code=$?
kill $reader; exit $code`

// fill writes more than the limit, and if nobody minds at once stays for somebody
// who looks now and then.
const fill = "head -c 9000000 /dev/zero > /tmp/big && sleep 300"

// testLimits lets bombs go off where the engine says that they are bounded. An
// engine that cannot bound something passes by saying so.
func testLimits(t *testing.T, s *suite) {
	p := s.newPlace(t)
	spec := s.spec(t, p)
	spec.Limits = sandbox.Limits{Processes: 64, Files: 100, Memory: 96 << 20, Disk: 8 << 20}
	b := s.open(t, spec)
	facts, err := b.Check(deadline(t))
	must(t, err)
	strength := map[string]sandbox.Strength{}
	for _, f := range facts {
		strength[f.Name] = f.Strength
	}
	for _, bomb := range []struct {
		fact, script string
		bounded      func(result) bool
	}{
		{"process limit", "i=0; while [ $i -lt 100 ]; do sleep 30 & i=$((i+1)); done", failed},
		{"open files limit", "test $(ulimit -n) -le 100", func(r result) bool { return r.Code == 0 }},
		{"memory limit", hold, failed},
		{"disk limit", fill, failed},
	} {
		switch got, ok := strength[bomb.fact]; {
		case !ok:
			t.Errorf("nothing is said of the %s", bomb.fact)
		case got == sandbox.Absent:
			t.Logf("%s: not enforced, as the engine says", bomb.fact)
		default:
			own := spec // what one bomb leaves would hinder the next
			own.ID += "b"
			b := s.open(t, own)
			r, err := b.try(shell("/", bomb.script), nil)
			if ended := b.ended(); ended != "" {
				t.Logf("%s: the sandbox ended: %s", bomb.fact, ended) // all of it, and the command
			} else if err != nil {
				t.Errorf("%s: %v", bomb.script, err)
			} else if !bomb.bounded(r) {
				t.Errorf("%s is said to be %s, but %s ended with %+v", bomb.fact, got, bomb.script, r)
			}
			must(t, b.Remove(deadline(t)))
		}
	}
}

// ended is why the sandbox has ended by itself, or "".
func (b *box) ended() string {
	e, ok := b.Sandbox.(sandbox.Ender)
	if !ok {
		return ""
	}
	if why := e.Why(deadline(b.t)); why != nil {
		return why.Error()
	}
	return ""
}

func failed(r result) bool { return r.Code != 0 }
