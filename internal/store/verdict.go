package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/mojoup/mojoup-node/internal/session"
	"github.com/mojoup/mojoup-node/pkg/console/api"
)

// A Verdict is the outcome of one request of a session.
type Verdict struct {
	Session session.ID
	api.Outcome
}

// AddVerdicts writes verdicts in the order given and counts them on their
// sessions, in one transaction: callers gather some before they call. Those
// of sessions that do not exist are left out and named by the error, a
// [NotFoundError]; the others are written all the same.
func (s *Store) AddVerdicts(ctx context.Context, vs []Verdict) error {
	if len(vs) == 0 {
		return nil
	}
	var missing []error
	err := s.inWrite(ctx, "recording verdicts", func(tx *sql.Tx) error {
		counts := map[session.ID]*[2]int{} // denied, allowed
		for _, v := range vs {
			counts[v.Session] = &[2]int{}
		}
		var err error
		if missing, err = absent(ctx, tx, counts); err != nil {
			return err
		}
		if err := insertVerdicts(ctx, tx, vs, counts); err != nil {
			return err
		}
		for id, n := range counts {
			if _, err := tx.ExecContext(ctx, `UPDATE sessions SET denied = denied + ?, allowed = allowed + ? WHERE id = ?`, n[0], n[1], string(id)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := errors.Join(missing...); err != nil {
		return fmt.Errorf("recording verdicts: %w", err)
	}
	return nil
}

// absent takes the sessions that do not exist out of counts.
func absent(ctx context.Context, tx *sql.Tx, counts map[session.ID]*[2]int) (missing []error, err error) {
	for id := range counts {
		var is int
		err := tx.QueryRowContext(ctx, `SELECT 1 FROM sessions WHERE id = ?`, string(id)).Scan(&is)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			missing = append(missing, &NotFoundError{What: "session", ID: string(id)})
			delete(counts, id)
		case err != nil:
			return nil, err
		}
	}
	return missing, nil
}

// insertVerdicts writes those whose session is in counts, and counts them.
func insertVerdicts(ctx context.Context, tx *sql.Tx, vs []Verdict, counts map[session.ID]*[2]int) error {
	stmt, err := tx.PrepareContext(ctx, `INSERT INTO verdicts (session, id, time, allowed, host, port, method, path, rule, layer, reason)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`)
	if err != nil {
		return err
	}
	defer stmt.Close()
	for _, v := range vs {
		n := counts[v.Session]
		if n == nil {
			continue
		}
		_, err := stmt.ExecContext(ctx, string(v.Session), v.ID, v.Time.UnixNano(), v.Allowed, v.Host, v.Port, v.Method, v.Path, v.Rule, v.Layer, v.Reason)
		if err != nil {
			return err
		}
		if v.Allowed {
			n[1]++
		} else {
			n[0]++
		}
	}
	return nil
}

const verdictColumns = `session, id, time, allowed, host, port, method, path, rule, layer, reason`

// Verdicts returns the newest verdicts of a session, at most limit of them (0
// means all), the newest last.
func (s *Store) Verdicts(ctx context.Context, id session.ID, limit int) ([]Verdict, error) {
	if limit <= 0 {
		limit = -1 // SQLite's "no limit"
	}
	rows, err := s.read.QueryContext(ctx, `SELECT `+verdictColumns+` FROM verdicts WHERE session = ? ORDER BY seq DESC LIMIT ?`, string(id), limit)
	if err != nil {
		return nil, s.fail("reading verdicts", err)
	}
	defer rows.Close()
	out := []Verdict{}
	for rows.Next() {
		v, err := scanVerdict(rows)
		if err != nil {
			return nil, s.fail("reading verdicts", err)
		}
		out = append(out, v)
	}
	if err := rows.Err(); err != nil {
		return nil, s.fail("reading verdicts", err)
	}
	slices.Reverse(out)
	return out, nil
}

// Verdict returns the verdict with the ID that an agent was shown, or a
// [NotFoundError].
func (s *Store) Verdict(ctx context.Context, id string) (Verdict, error) {
	v, err := scanVerdict(s.read.QueryRowContext(ctx, `SELECT `+verdictColumns+` FROM verdicts WHERE id = ? ORDER BY seq DESC LIMIT 1`, id))
	if errors.Is(err, sql.ErrNoRows) {
		err = &NotFoundError{What: "verdict", ID: id}
	}
	if err != nil {
		return Verdict{}, s.fail("reading the verdict", err)
	}
	return v, nil
}

func scanVerdict(row interface{ Scan(...any) error }) (Verdict, error) {
	var v Verdict
	var at int64
	err := row.Scan(&v.Session, &v.ID, &at, &v.Allowed, &v.Host, &v.Port, &v.Method, &v.Path, &v.Rule, &v.Layer, &v.Reason)
	v.Time = instant(at)
	return v, err
}
