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
	// Again says that the verdict was given before, and that only Failure is
	// new.
	Again bool
}

// AddVerdicts writes verdicts in the order given and counts them on their
// sessions, in one transaction: callers gather some before they call. Those
// of sessions that do not exist are left out and named by the error, a
// [NotFoundError]; the others are written all the same. Of each session the
// newest are kept, as Options.Keep says; its counters count all.
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
			if err := s.count(ctx, tx, id, n[0], n[1]); err != nil {
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

// count adds to the counters of a session, and forgets its oldest verdicts now
// and then: whoever asks for the hundred thousandth time must not fill the
// disk.
func (s *Store) count(ctx context.Context, tx *sql.Tx, id session.ID, denied, allowed int) error {
	var total int
	err := tx.QueryRowContext(ctx, `UPDATE sessions SET denied = denied + ?, allowed = allowed + ? WHERE id = ? RETURNING denied + allowed`,
		denied, allowed, string(id)).Scan(&total)
	step := max(1, s.keep.Verdicts/20)
	if err != nil || total <= s.keep.Verdicts || total/step == (total-denied-allowed)/step {
		return err
	}
	_, err = tx.ExecContext(ctx, `DELETE FROM verdicts WHERE session = ?1 AND seq <=
		(SELECT seq FROM verdicts WHERE session = ?1 ORDER BY seq DESC LIMIT 1 OFFSET ?2)`, string(id), s.keep.Verdicts)
	return err
}

// CountDenied counts denials of sessions of which nothing else is kept, in one
// transaction. Sessions that do not exist are left out.
func (s *Store) CountDenied(ctx context.Context, denied map[session.ID]int) error {
	if len(denied) == 0 {
		return nil
	}
	return s.inWrite(ctx, "counting denials", func(tx *sql.Tx) error {
		for id, n := range denied {
			if _, err := tx.ExecContext(ctx, `UPDATE sessions SET denied = denied + ? WHERE id = ?`, n, string(id)); err != nil {
				return err
			}
		}
		return nil
	})
}

// Forgotten returns how many verdicts of a session were counted and are not
// kept any more, or a [NotFoundError].
func (s *Store) Forgotten(ctx context.Context, id session.ID) (int, error) {
	var n int
	err := s.read.QueryRowContext(ctx, `SELECT allowed + denied - (SELECT count(*) FROM verdicts WHERE session = id_)
		FROM (SELECT allowed, denied, id AS id_ FROM sessions WHERE id = ?)`, string(id)).Scan(&n)
	if errors.Is(err, sql.ErrNoRows) {
		err = &NotFoundError{What: "session", ID: string(id)}
	}
	if err != nil {
		return 0, s.fail("counting verdicts", err)
	}
	return n, nil
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
	stmt, err := tx.PrepareContext(ctx, `INSERT INTO verdicts (`+verdictColumns+`)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`)
	if err != nil {
		return err
	}
	defer stmt.Close()
	for _, v := range vs {
		n := counts[v.Session]
		if n == nil {
			continue
		}
		if v.Again {
			if _, err := tx.ExecContext(ctx, `UPDATE verdicts SET failure = ? WHERE session = ? AND id = ?`, v.Failure, string(v.Session), v.ID); err != nil {
				return err
			}
			continue
		}
		_, err := stmt.ExecContext(ctx, string(v.Session), v.ID, v.Time.UnixNano(), v.Allowed, v.Host, v.Port, v.Method, v.Path, v.Rule, v.Layer, v.Reason, v.Failure)
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

const verdictColumns = `session, id, time, allowed, host, port, method, path, rule, layer, reason, failure`

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
	err := row.Scan(&v.Session, &v.ID, &at, &v.Allowed, &v.Host, &v.Port, &v.Method, &v.Path, &v.Rule, &v.Layer, &v.Reason, &v.Failure)
	v.Time = instant(at)
	return v, err
}
