package store

import (
	"context"
	"database/sql"
	"fmt"
)

// An Approval is a person's yes to what one repository asks for, by exactly
// its content: the same text in another clone, or a preset that has grown
// since, is another one.
type Approval struct {
	UID        int
	Repository string // canonical path and common git directory, joined by the caller
	Digest     string // of the expanded effective policy
}

// Approve notes an approval. To note it again changes nothing.
func (s *Store) Approve(ctx context.Context, a Approval) error {
	return s.inWrite(ctx, fmt.Sprintf("approving the policy of %s", a.Repository), func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO approvals (uid, repository, digest, time) VALUES (?, ?, ?, ?)
			ON CONFLICT DO NOTHING`, a.UID, a.Repository, a.Digest, s.now().UnixNano())
		return err
	})
}

// Approved reports whether exactly that has been approved.
func (s *Store) Approved(ctx context.Context, a Approval) (bool, error) {
	var n int
	err := s.read.QueryRowContext(ctx, `SELECT count(*) FROM approvals WHERE uid = ? AND repository = ? AND digest = ?`,
		a.UID, a.Repository, a.Digest).Scan(&n)
	if err != nil {
		return false, s.fail("looking an approval up", err)
	}
	return n > 0, nil
}
