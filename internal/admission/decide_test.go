package admission

import (
	"strings"
	"testing"
	"time"
)

const gibi = 1 << 30

func TestDecide(t *testing.T) {
	two := Limits{Max: 2, One: "script task", Many: "script tasks", Setting: "node.tasks.max_running"}
	free := Limits{One: "session", Many: "sessions"}
	rich := machine{reading: Reading{Available: 8 * gibi, Total: 16 * gibi, Where: thisMachine}, known: true}
	poor := machine{reading: Reading{Available: 700 * mebi, Total: 16 * gibi, Where: thisMachine}, known: true}
	hard := machine{reading: Reading{Available: 3 * gibi, Total: 16 * gibi, Pressure: 34, Where: thisMachine}, known: true}
	bomb := machine{reading: Reading{Available: 8 * gibi, Total: 16 * gibi, Pressure: 90, Where: thisMachine}, known: true}
	rule := memoryRule{need: 128 * mebi}
	for _, tt := range []struct {
		name   string
		l      Limits
		now    load
		m      machine
		need   int64
		cause  Cause // "" is admitted
		reason string
	}{
		{"room", two, load{all: 1, kind: 1}, rich, 128 * mebi, "", ""},
		{"no slot", two, load{all: 2, kind: 2}, rich, 128 * mebi, CauseSlots, "2 script tasks are running and node.tasks.max_running allows no more"},
		{"others' slots do not count", two, load{all: 9, kind: 1}, rich, 128 * mebi, "", ""},
		{"idle, however poor the machine", two, load{}, poor, 64 * gibi, "", ""},
		{"idle, under pressure", free, load{}, hard, 1, "", ""},
		{"no memory", free, load{all: 1, kind: 1}, poor, 256 * mebi, CauseMemory, "700 MiB of the memory of this machine is free, 512 MiB stays free and this needs 256 MiB"},
		{"just enough memory", free, load{all: 1, kind: 1}, poor, 188 * mebi, "", ""},
		{"memory promised to others", free, load{all: 1, kind: 1, held: mebi}, poor, 188 * mebi, CauseMemory, "700 MiB of the memory of this machine is free, 1 MiB of it is promised to others that start, 512 MiB stays free and this needs 188 MiB"},
		{"pressure", free, load{all: 1, kind: 1}, hard, 1, CausePressure, "this machine is short of memory: processes waited for it in 34 % of the last ten seconds"},
		{"pressure of one that thrashes within its limit", free, load{all: 1, kind: 1}, bomb, 1, "", ""},
		{"unknown memory, a few", free, load{all: blind - 1, kind: blind - 1}, machine{}, 1, "", ""},
		{"unknown memory, too many", free, load{all: blind, kind: blind}, machine{}, 1, CauseSlots, "the memory of this machine cannot be read, so that only 4 sessions run at once"},
		{"unknown memory, but a count", Limits{Max: 10}, load{all: 8, kind: 8}, machine{}, 1, "", ""},
		{"slots before memory", two, load{all: 2, kind: 2}, poor, gibi, CauseSlots, "2 script tasks are running and node.tasks.max_running allows no more"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := decide(tt.l, tt.now, tt.m, rule, tt.need)
			if v.admit != (tt.cause == "") || v.cause != tt.cause || v.reason != tt.reason {
				t.Errorf("got %+v\nwant %q %q", v, tt.cause, tt.reason)
			}
		})
	}
	if (verdict{}).admit {
		t.Error("the zero verdict admits")
	}
}

func TestHeldBackShrinks(t *testing.T) {
	rule := memoryRule{warm: 10 * time.Second}
	for age, want := range map[time.Duration]int64{-1: 1000, 0: 1000, 5 * time.Second: 500, 9 * time.Second: 100, 10 * time.Second: 0, time.Hour: 0} {
		if got := rule.held(1000, age); got < want-1 || got > want+1 {
			t.Errorf("after %v %d is held back, want %d", age, got, want)
		}
	}
	if (memoryRule{}).held(1000, 1) != 0 {
		t.Error("without warm something is held back")
	}
}

func TestWhatStaysFree(t *testing.T) {
	for total, want := range map[int64]int64{1 * gibi: 128 * mebi, 16 * gibi: 512 * mebi, 256 * gibi: gibi} {
		if got := (memoryRule{}).left(total); got != want {
			t.Errorf("of %s %s stays free, want %s", size(total), size(got), size(want))
		}
	}
	if got := (memoryRule{keep: 7}).left(gibi); got != 7 {
		t.Errorf("keep 7 gives %d", got)
	}
}

func TestWords(t *testing.T) {
	p := Place{Number: 2, Of: 3, Reason: slotsReason(Limits{One: "session"}, 1)}
	if got, want := p.String(), "place 2 of 3 in the queue: 1 session is running and no more may; nobody can say yet how long that takes"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	p.Estimate = time.Millisecond
	if got := p.String(); !strings.HasSuffix(got, "; any moment now, by what earlier ones took") {
		t.Error(got)
	}
	p.Estimate = 95 * time.Second
	if got := p.String(); !strings.HasSuffix(got, "; about 2 min by what earlier ones took") {
		t.Error(got)
	}
	for d, want := range map[time.Duration]string{
		time.Millisecond: "less than a second", 20 * time.Second: "20 s", 89 * time.Second: "89 s", 10 * time.Minute: "10 min",
		2 * time.Hour: "2 h", 150 * time.Minute: "2.5 h",
	} {
		if got := span(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
	for n, want := range map[int64]string{-5: "0 MiB", 700 * mebi: "700 MiB", 3 * gibi / 2: "1.5 GiB"} {
		if got := size(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}
