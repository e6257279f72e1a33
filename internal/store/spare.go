package store

import (
	"context"
	"database/sql"
	"fmt"
)

// A Spare is what undoes a sandbox that was begun in advance, in order.
type Spare struct {
	ID   string
	Undo []Undo
}

// AddSpare writes down what undoes a spare, before it is made.
func (s *Store) AddSpare(ctx context.Context, id string, undo []Undo) error {
	return s.inWrite(ctx, "noting the spare "+id, func(tx *sql.Tx) error {
		for i, u := range undo {
			if _, err := tx.ExecContext(ctx, `INSERT INTO spares (id, seq, owner, kind, path, content, target) VALUES (?, ?, ?, ?, ?, ?, ?)`,
				id, i+1, u.Owner, u.Kind, u.Path, u.Content, u.ID); err != nil {
				return fmt.Errorf("writing undo %d: %w", i+1, err)
			}
		}
		return nil
	})
}

// ForgetSpare notes that nothing is left of a spare. To note it again changes
// nothing.
func (s *Store) ForgetSpare(ctx context.Context, id string) error {
	return s.inTime(ctx, "forgetting the spare "+id, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `DELETE FROM spares WHERE id = ?`, id)
		return err
	})
}

// Spares lists those of which something may be left. While a node runs, the
// ones that it keeps or uses are among them.
func (s *Store) Spares(ctx context.Context) ([]Spare, error) {
	rows, err := s.read.QueryContext(ctx, `SELECT id, owner, kind, path, content, target FROM spares ORDER BY id, seq`)
	if err != nil {
		return nil, s.fail("reading the spares", err)
	}
	defer rows.Close()
	var out []Spare
	for rows.Next() {
		var id string
		var u Undo
		if err := rows.Scan(&id, &u.Owner, &u.Kind, &u.Path, &u.Content, &u.ID); err != nil {
			return nil, s.fail("reading the spares", err)
		}
		if len(out) == 0 || out[len(out)-1].ID != id {
			out = append(out, Spare{ID: id})
		}
		last := &out[len(out)-1]
		last.Undo = append(last.Undo, u)
	}
	if err := rows.Err(); err != nil {
		return nil, s.fail("reading the spares", err)
	}
	return out, nil
}
