// Package bench promises honest figures: what a start, an end and a
// connection of ours cost beside bare floors and peers, measured in turn in
// one run, so that a busy machine is busy for all of them.
package bench

import (
	"context"
	"slices"
	"time"
)

// A Row is one thing that was measured.
type Row struct {
	Name string  `json:"name"`
	Runs int     `json:"runs"`
	P50  float64 `json:"p50ms"` // milliseconds
	P95  float64 `json:"p95ms"`
	// Peer names the row that this one is compared with, empty for none;
	// Ratio is P50 over the peer's P50, Ratio95 the same of P95.
	Peer    string  `json:"peer,omitempty"`
	Ratio   float64 `json:"ratio,omitempty"`
	Ratio95 float64 `json:"ratio95,omitempty"`
	Note    string  `json:"note,omitempty"`
}

// A measure does its thing once and says how long it took.
type measure struct {
	name, peer string
	once       func(ctx context.Context) (time.Duration, error)
}

// inTurn runs every measure runs times, one after the other in each round,
// after one round that does not count.
func inTurn(ctx context.Context, runs int, ms []measure) ([]Row, error) {
	took := make([][]time.Duration, len(ms))
	for round := range runs + 1 {
		for i, m := range ms {
			d, err := m.once(ctx)
			if err != nil {
				return nil, &Error{What: m.name, Err: err}
			}
			if round > 0 {
				took[i] = append(took[i], d)
			}
		}
	}
	rows := make([]Row, len(ms))
	for i, m := range ms {
		rows[i] = rowOf(m.name, m.peer, took[i])
	}
	compare(rows)
	return rows, nil
}

func rowOf(name, peer string, took []time.Duration) Row {
	slices.Sort(took)
	return Row{Name: name, Runs: len(took), Peer: peer, P50: quantile(took, 50), P95: quantile(took, 95)}
}

// A Figure is an amount of memory.
type Figure struct {
	Name string `json:"name"`
	KiB  int64  `json:"kib"`
	// AtMost is what is aimed at, 0 for nothing.
	AtMost int64 `json:"atMostKib,omitempty"`
}

// quantile of a sorted list, in milliseconds.
func quantile(d []time.Duration, percent int) float64 {
	return float64(d[min(len(d)-1, len(d)*percent/100)].Nanoseconds()) / 1e6
}

// compare fills in the ratios.
func compare(rows []Row) {
	for i := range rows {
		for _, p := range rows {
			if p.Name == rows[i].Peer && p.P50 > 0 {
				rows[i].Ratio, rows[i].Ratio95 = rows[i].P50/p.P50, rows[i].P95/p.P95
			}
		}
	}
}

// An Error says what could not be measured.
type Error struct {
	What string
	Err  error
}

func (e *Error) Error() string { return "measuring " + e.What + ": " + e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }
