package native

import (
	"slices"
	"testing"
)

// TestFewerRowsRefuseTheSame: for each call the filter's table refuses by the
// same errno, and tells the node or not, just as the whole one does, for every
// argument that a row knows of and those beside it.
func TestFewerRowsRefuseTheSame(t *testing.T) {
	whole := refusals()
	short := fewer(whole)
	if len(short) >= len(whole) {
		t.Errorf("%d rows of %d are left", len(short), len(whole))
	}
	names := map[string]bool{}
	for _, r := range whole {
		for _, name := range r.calls {
			names[name] = true
		}
	}
	for name := range names {
		for args := range argumentsOf(whole, name) {
			if was, is := answersTo(whole, name, args), answersTo(short, name, args); !slices.Equal(was, is) {
				t.Fatalf("%s(%#x): %v, and by the filter's table %v", name, args, was, is)
			}
		}
	}
}

// argumentsOf are all combinations of what the rows of a call compare its
// arguments with, what differs from that in one bit, and nothing.
func argumentsOf(rows []refusal, name string) func(yield func([6]uint64) bool) {
	var values [6][]uint64
	for i := range values {
		values[i] = []uint64{0}
	}
	for _, r := range rows {
		if !slices.Contains(r.calls, name) {
			continue
		}
		for _, c := range r.when {
			values[c.arg] = append(values[c.arg], c.value)
			for bit := uint64(1); bit < 1<<40 && len(r.when) == 1; bit <<= 1 {
				values[c.arg] = append(values[c.arg], c.value^bit)
			}
		}
	}
	return func(yield func([6]uint64) bool) {
		var args [6]uint64
		var each func(i int) bool
		each = func(i int) bool {
			if i == len(args) {
				return yield(args)
			}
			slices.Sort(values[i])
			for _, v := range slices.Compact(values[i]) {
				if args[i] = v; !each(i + 1) {
					return false
				}
			}
			return true
		}
		each(0)
	}
}

// answersTo are the different answers of all rows that hold.
func answersTo(rows []refusal, name string, args [6]uint64) (out []int) {
	for _, r := range rows {
		if slices.Contains(r.calls, name) && !slices.ContainsFunc(r.when, func(c condition) bool { return !c.holds(args) }) {
			answer := int(r.answer)
			if r.tried == untold {
				answer = -answer
			}
			out = append(out, answer)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
