package node

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/mojoup/mojoup-node/internal/config"
	"github.com/mojoup/mojoup-node/internal/fault"
	"github.com/mojoup/mojoup-node/internal/repo"
	"github.com/mojoup/mojoup-node/internal/store"
	"github.com/mojoup/mojoup-node/pkg/console/api"
	"github.com/mojoup/mojoup-node/pkg/policy"
)

// Offline answers about past sessions while no node runs: a lingering one ends
// soon after its last session, and what it recorded is still there.
type Offline struct{ paths config.Paths }

// NewOffline returns what answers for the node of paths.
func NewOffline(paths config.Paths) Offline { return Offline{paths} }

// with opens the store for one question, while no node can begin. A node that
// has never run has recorded nothing.
func (o Offline) with(ctx context.Context, ask func(*store.Store) error) error {
	if _, err := os.Lstat(filepath.Join(o.paths.State, store.FileName)); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	lock, err := holdIdle(ctx, o.paths)
	if err != nil {
		return err
	}
	defer lock.Close()
	s, err := store.Open(ctx, o.paths.State, store.Options{})
	if err != nil {
		return err
	}
	return errors.Join(ask(s), s.Close())
}

// Sessions lists past ones, newest first. What a dead node left as live is
// among them, as it was left: the next start calls it lost.
func (o Offline) Sessions(ctx context.Context) ([]api.Session, error) {
	out := []api.Session{}
	err := o.with(ctx, func(s *store.Store) error {
		rows, err := s.Sessions(ctx, store.Filter{Limit: listed})
		for _, r := range rows {
			out = append(out, r.API())
		}
		return err
	})
	return out, err
}

// Approved reports whether uid has approved what own, the document of r alone,
// asks for.
func (o Offline) Approved(ctx context.Context, uid int, r repo.Repository, own *policy.Effective) (is bool, err error) {
	err = o.with(ctx, func(s *store.Store) error {
		is, err = s.Approved(ctx, approval(uid, r, own))
		return err
	})
	return is, err
}

// Session shows one, with its verdicts.
func (o Offline) Session(ctx context.Context, id string) (api.Session, error) {
	var out api.Session
	err := o.with(ctx, func(s *store.Store) error {
		sid, err := calledIn(ctx, s, id, nil)
		if err != nil {
			return err
		}
		row, err := s.Session(ctx, sid)
		if err != nil {
			return err
		}
		out = row.API()
		return detail(ctx, s, &out)
	})
	if err == nil && out.ID == "" {
		return out, fault.UnknownSession(id)
	}
	return out, err
}
