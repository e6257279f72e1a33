package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/mojoup/mojoup-node/internal/session"
	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// Undo is one act that undoes a part of a session.
type Undo struct {
	// Owner is the part that can carry it out: "engine:native", "node".
	Owner string
	sandbox.Undo
	// Node is that of the session, where it is read.
	Node string
}

// A JournalEntry is an act that is not known to be done.
type JournalEntry struct {
	Session session.ID
	Seq     int // its place among the acts of its session, from 1
	Undo
}

// Pending lists every act that is not done, of all sessions, oldest session
// first and in the order in which they are to be carried out. While a node
// runs, acts of its live sessions are among them.
func (s *Store) Pending(ctx context.Context) ([]JournalEntry, error) {
	return s.pending(ctx, "")
}

// PendingOf lists the acts of one session that are not done, in order.
func (s *Store) PendingOf(ctx context.Context, id session.ID) ([]JournalEntry, error) {
	return s.pending(ctx, " AND j.session = ?", string(id))
}

func (s *Store) pending(ctx context.Context, and string, args ...any) ([]JournalEntry, error) {
	rows, err := s.read.QueryContext(ctx, `SELECT j.session, j.seq, j.owner, j.kind, j.path, j.content, j.target, s.node
		FROM journal j JOIN sessions s ON s.id = j.session
		WHERE j.done IS NULL`+and+` ORDER BY s.since, s.rowid, j.seq`, args...)
	if err != nil {
		return nil, s.fail("reading the journal", err)
	}
	defer rows.Close()
	out := []JournalEntry{}
	for rows.Next() {
		var e JournalEntry
		if err := rows.Scan(&e.Session, &e.Seq, &e.Owner, &e.Kind, &e.Path, &e.Content, &e.Undo.ID, &e.Node); err != nil {
			return nil, s.fail("reading the journal", err)
		}
		out = append(out, e)
	}
	if err := rows.Err(); err != nil {
		return nil, s.fail("reading the journal", err)
	}
	return out, nil
}

// UndoDone notes that one act is done. To note it again changes nothing.
func (s *Store) UndoDone(ctx context.Context, id session.ID, seq int) error {
	return s.inTime(ctx, fmt.Sprintf("noting undo %d of session %s", seq, id), func(tx *sql.Tx) error {
		var is int
		err := tx.QueryRowContext(ctx, `UPDATE journal SET done = coalesce(done, ?) WHERE session = ? AND seq = ? RETURNING 1`,
			s.now().UnixNano(), string(id), seq).Scan(&is)
		if errors.Is(err, sql.ErrNoRows) {
			return &NotFoundError{What: "undo", ID: fmt.Sprintf("%s/%d", id, seq)}
		}
		return err
	})
}

// UndoAllDone notes that every act of a session is done, as after a teardown
// that went through.
func (s *Store) UndoAllDone(ctx context.Context, id session.ID) error {
	return s.inTime(ctx, fmt.Sprintf("noting the undo of session %s", id), func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `UPDATE journal SET done = ? WHERE session = ? AND done IS NULL`, s.now().UnixNano(), string(id))
		return err
	})
}

// addUndo writes the acts of one session, numbered from 1.
func addUndo(ctx context.Context, tx *sql.Tx, id session.ID, undo []Undo) error {
	if len(undo) == 0 {
		return nil
	}
	stmt, err := tx.PrepareContext(ctx, `INSERT INTO journal (session, seq, owner, kind, path, content, target) VALUES (?, ?, ?, ?, ?, ?, ?)`)
	if err != nil {
		return err
	}
	defer stmt.Close()
	for i, u := range undo {
		if _, err := stmt.ExecContext(ctx, string(id), i+1, u.Owner, u.Kind, u.Path, u.Content, u.ID); err != nil {
			return fmt.Errorf("writing undo %d: %w", i+1, err)
		}
	}
	return nil
}

// nothingPending refuses where an act of the session is not done.
func nothingPending(ctx context.Context, q querier, id session.ID) error {
	var n int
	if err := q.QueryRowContext(ctx, `SELECT count(*) FROM journal WHERE session = ? AND done IS NULL`, string(id)).Scan(&n); err != nil {
		return err
	}
	if n > 0 {
		return &PendingError{Session: id, Undo: n}
	}
	return nil
}
