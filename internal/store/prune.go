package store

import (
	"context"
	"database/sql"
	"time"

	"github.com/mojoup/mojoup-node/internal/session"
)

// Retention bounds what is kept of past sessions, and of the verdicts of each.
// Live sessions, and those whose undo is not done, are always kept.
type Retention struct {
	Age      time.Duration // since they ended
	Sessions int
	Verdicts int // the newest of each session, and up to a twentieth more
	// Recordings is how many bytes of what terminals showed are kept, of all
	// sessions together.
	Recordings int64
}

// orDefault fills in what is zero.
func (r Retention) orDefault() Retention {
	if r.Age == 0 {
		r.Age = 30 * 24 * time.Hour
	}
	if r.Sessions == 0 {
		r.Sessions = 1000
	}
	if r.Verdicts == 0 {
		r.Verdicts = 20_000
	}
	if r.Recordings == 0 {
		r.Recordings = 1 << 30
	}
	return r
}

// Prune forgets past sessions beyond what Options.Keep allows, with their
// verdicts and what was recorded of their terminals, and returns how many. It
// works in small transactions, so that nobody waits long for the writer. Open
// does a little of it; a node that runs calls it every hour.
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
	// What a terminal showed goes first: a row without it is taken the next
	// time, a file without its row nobody would know.
	for _, e := range old {
		if err := s.removeRecording(session.ID(e.id)); err != nil {
			return 0, err
		}
	}
	n := 0
	err = s.inWrite(ctx, "pruning past sessions", func(tx *sql.Tx) error {
		for _, e := range old {
			if verdicts -= e.verdicts; verdicts < 0 && n > 0 {
				return nil
			}
			for _, stmt := range []string{
				`DELETE FROM verdicts WHERE session = ?`,
				`DELETE FROM events WHERE session = ?`,
				`DELETE FROM refusals WHERE session = ?`,
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

// expired lists past sessions that need not be kept, oldest first. Both
// questions go by an index: Open asks them each time.
func (s *Store) expired(ctx context.Context, limit int) ([]expiredSession, error) {
	const free = ` AND id NOT IN (SELECT session FROM journal WHERE done IS NULL)`
	past := `state IN (` + pastStates() + `)` + free
	var count int
	if err := s.write.QueryRowContext(ctx, `SELECT count(*) FROM sessions WHERE `+past).Scan(&count); err != nil {
		return nil, s.fail("counting past sessions", err)
	}
	surplus := min(limit, max(0, count-s.keep.Sessions))
	before := s.now().Add(-s.keep.Age).UnixNano()
	rows, err := s.write.QueryContext(ctx, `SELECT id, verdicts FROM (
			SELECT * FROM (SELECT id, since, rowid AS n, allowed + denied AS verdicts FROM sessions WHERE `+past+` ORDER BY since, rowid LIMIT ?)
			UNION
			SELECT id, since, rowid, allowed + denied FROM sessions WHERE since < ? AND coalesce(ended, since) < ? AND `+past+`)
		ORDER BY since, n LIMIT ?`, surplus, before, before, limit)
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
