package store

import (
	"context"
	"database/sql"
	"time"
)

// Retention bounds what is kept of past sessions. Live ones, and those whose
// undo is not done, are always kept.
type Retention struct {
	Age      time.Duration // since they ended
	Sessions int
}

// orDefault fills in what is zero.
func (r Retention) orDefault() Retention {
	if r.Age == 0 {
		r.Age = 30 * 24 * time.Hour
	}
	if r.Sessions == 0 {
		r.Sessions = 1000
	}
	return r
}

// Prune forgets past sessions beyond what Options.Keep allows, with their
// verdicts, and returns how many. It works in small transactions, so that
// nobody waits long for the writer. Open does a little of it; a node that runs
// for weeks calls it now and then.
func (s *Store) Prune(ctx context.Context) (int, error) {
	total := 0
	for {
		n, err := s.prune(ctx, 100, 10_000)
		total += n
		if err != nil || n == 0 {
			return total, err
		}
	}
}

// prune forgets at most so many sessions, whose verdicts together are at most
// so many, except that one session is always taken.
func (s *Store) prune(ctx context.Context, sessions, verdicts int) (int, error) {
	old, err := s.expired(ctx, sessions)
	if err != nil || len(old) == 0 {
		return 0, err
	}
	n := 0
	err = s.inWrite(ctx, "pruning past sessions", func(tx *sql.Tx) error {
		for _, e := range old {
			if verdicts -= e.verdicts; verdicts < 0 && n > 0 {
				return nil
			}
			for _, stmt := range []string{
				`DELETE FROM verdicts WHERE session = ?`,
				`DELETE FROM journal WHERE session = ? AND done IS NOT NULL`,
				`DELETE FROM sessions WHERE id = ?`,
			} {
				if _, err := tx.ExecContext(ctx, stmt, e.id); err != nil {
					return err
				}
			}
			n++
		}
		return nil
	})
	return n, err
}

type expiredSession struct {
	id       string
	verdicts int
}

// expired lists past sessions that need not be kept, oldest first.
func (s *Store) expired(ctx context.Context, limit int) ([]expiredSession, error) {
	rows, err := s.write.QueryContext(ctx, `WITH past AS (
			SELECT id, since, rowid AS n, coalesce(ended, since) AS ended, allowed + denied AS verdicts
			FROM sessions WHERE state NOT IN (`+liveStates()+`)
				AND NOT EXISTS (SELECT 1 FROM journal j WHERE j.session = sessions.id AND j.done IS NULL))
		SELECT id, verdicts FROM past
		WHERE ended < ? OR id NOT IN (SELECT id FROM past ORDER BY since DESC, n DESC LIMIT ?)
		ORDER BY since, n LIMIT ?`, s.now().Add(-s.keep.Age).UnixNano(), s.keep.Sessions, limit)
	if err != nil {
		return nil, s.fail("looking for past sessions", err)
	}
	defer rows.Close()
	var out []expiredSession
	for rows.Next() {
		var e expiredSession
		if err := rows.Scan(&e.id, &e.verdicts); err != nil {
			return nil, s.fail("looking for past sessions", err)
		}
		out = append(out, e)
	}
	if err := rows.Err(); err != nil {
		return nil, s.fail("looking for past sessions", err)
	}
	return out, nil
}
