package store

import (
	"context"
	"database/sql"

	"github.com/mojoup/mojoup-node/internal/session"
	"github.com/mojoup/mojoup-node/pkg/console/api"
)

// PutRefusals writes which system calls of a session were refused so far. Those
// from the from-th on are new or have changed; the others stay. Of a session
// that does not exist nothing is kept.
func (s *Store) PutRefusals(ctx context.Context, id session.ID, all []api.Refusal, from int) error {
	if from >= len(all) {
		return nil
	}
	return s.inTime(ctx, "recording refused calls", func(tx *sql.Tx) error {
		stmt, err := tx.PrepareContext(ctx, `INSERT INTO refusals (session, seq, program, pid, call, tried, answer, count, first, last)
			SELECT id, ?, ?, ?, ?, ?, ?, ?, ?, ? FROM sessions WHERE id = ?
			ON CONFLICT (session, seq) DO UPDATE SET count = excluded.count, last = excluded.last`)
		if err != nil {
			return err
		}
		defer stmt.Close()
		for i, r := range all[from:] {
			_, err := stmt.ExecContext(ctx, from+i, r.Program, r.PID, r.Call, r.Tried, r.Answer, r.Count, r.First.UnixNano(), r.Last.UnixNano(), string(id))
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// Refusals returns the refused system calls of a session, in the order of their
// first.
func (s *Store) Refusals(ctx context.Context, id session.ID) ([]api.Refusal, error) {
	rows, err := s.read.QueryContext(ctx, `SELECT program, pid, call, tried, answer, count, first, last FROM refusals WHERE session = ? ORDER BY seq`, string(id))
	if err != nil {
		return nil, s.fail("reading refused calls", err)
	}
	defer rows.Close()
	var out []api.Refusal
	for rows.Next() {
		var r api.Refusal
		var first, last int64
		if err := rows.Scan(&r.Program, &r.PID, &r.Call, &r.Tried, &r.Answer, &r.Count, &first, &last); err != nil {
			return nil, s.fail("reading refused calls", err)
		}
		r.First, r.Last = instant(first), instant(last)
		out = append(out, r)
	}
	if err := rows.Err(); err != nil {
		return nil, s.fail("reading refused calls", err)
	}
	return out, nil
}
