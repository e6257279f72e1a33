package store

import (
	"context"
	"database/sql"

	"github.com/mojoup/mojoup-node/internal/session"
	"github.com/mojoup/mojoup-node/pkg/console/api"
)

// AddEvents writes what happened to a session, in the order given. Those of a
// session that does not exist are left out.
func (s *Store) AddEvents(ctx context.Context, id session.ID, events []api.Event) error {
	if len(events) == 0 {
		return nil
	}
	return s.inTime(ctx, "recording events", func(tx *sql.Tx) error {
		stmt, err := tx.PrepareContext(ctx, `INSERT INTO events (session, time, kind, text) SELECT id, ?, ?, ? FROM sessions WHERE id = ?`)
		if err != nil {
			return err
		}
		defer stmt.Close()
		for _, e := range events {
			if _, err := stmt.ExecContext(ctx, e.Time.UnixNano(), e.Kind, e.Text, string(id)); err != nil {
				return err
			}
		}
		return nil
	})
}

// Events returns what happened to a session, in order, without its verdicts.
func (s *Store) Events(ctx context.Context, id session.ID) ([]api.Event, error) {
	rows, err := s.read.QueryContext(ctx, `SELECT time, kind, text FROM events WHERE session = ? ORDER BY seq`, string(id))
	if err != nil {
		return nil, s.fail("reading events", err)
	}
	defer rows.Close()
	var out []api.Event
	for rows.Next() {
		var e api.Event
		var at int64
		if err := rows.Scan(&at, &e.Kind, &e.Text); err != nil {
			return nil, s.fail("reading events", err)
		}
		e.Time = instant(at)
		out = append(out, e)
	}
	if err := rows.Err(); err != nil {
		return nil, s.fail("reading events", err)
	}
	return out, nil
}

// VerdictsAfter returns the verdicts of a session that were written after the
// one numbered seq, oldest first and at most limit, and the number of the last
// of them: the seq of the next call.
func (s *Store) VerdictsAfter(ctx context.Context, id session.ID, seq int64, limit int) ([]Verdict, int64, error) {
	rows, err := s.read.QueryContext(ctx, `SELECT `+verdictColumns+`, seq FROM verdicts WHERE session = ? AND seq > ? ORDER BY seq LIMIT ?`, string(id), seq, limit)
	if err != nil {
		return nil, seq, s.fail("reading verdicts", err)
	}
	defer rows.Close()
	var out []Verdict
	for rows.Next() {
		v, err := scanVerdict(withSeq{rows, &seq})
		if err != nil {
			return nil, seq, s.fail("reading verdicts", err)
		}
		out = append(out, v)
	}
	if err := rows.Err(); err != nil {
		return nil, seq, s.fail("reading verdicts", err)
	}
	return out, seq, nil
}

// withSeq scans one column more than scanVerdict knows.
type withSeq struct {
	rows *sql.Rows
	seq  *int64
}

func (w withSeq) Scan(to ...any) error { return w.rows.Scan(append(to, w.seq)...) }
