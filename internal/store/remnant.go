package store

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/mojoup/mojoup-node/internal/session"
)

// A Remnant is one session as somebody finds it who only looks, with every act
// that undoes it.
type Remnant struct {
	Session    session.ID
	State      session.State
	Repository string
	Undo       []Undo // all of it
	Pending    []Undo // what is not known to be done
}

// Remnants reads every session and its undo, and the spares, from the store in
// dir without opening it as a node does: nothing is made, brought up to date or
// forgotten, and a node may run on it. Where there is no store there is nothing
// to read.
func Remnants(ctx context.Context, dir string) ([]Remnant, []Spare, error) {
	s := &Store{path: filepath.Join(dir, FileName)}
	if _, err := os.Stat(s.path); errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	} else if err != nil {
		return nil, nil, &Error{Kind: kindOf(err), Path: s.path, Reason: "the state file cannot be read", Err: err}
	}
	var err error
	if s.read, err = sql.Open("sqlite", lookingDSN(s.path)); err != nil {
		return nil, nil, s.fail("opening", err)
	}
	s.read.SetMaxOpenConns(1) // one view of it
	out, spares, err := s.remnants(ctx)
	return out, spares, errors.Join(err, s.Close())
}

// spareVersion is the first that knows of spares.
const spareVersion = 7

func (s *Store) remnants(ctx context.Context) (out []Remnant, spares []Spare, err error) {
	version, err := s.version(ctx, s.read)
	if err != nil || version == 0 {
		return nil, nil, err // a start that did not get far made it
	}
	if version >= spareVersion {
		if spares, err = s.Spares(ctx); err != nil {
			return nil, nil, err
		}
	}
	out, err = s.sessionRemnants(ctx)
	return out, spares, err
}

func (s *Store) sessionRemnants(ctx context.Context) ([]Remnant, error) {
	rows, err := s.read.QueryContext(ctx, `SELECT s.id, s.state, s.repository, j.owner, j.kind, j.path, j.content, j.target, j.done IS NULL
		FROM sessions s LEFT JOIN journal j ON j.session = s.id ORDER BY s.since, s.rowid, j.seq`)
	if err != nil {
		return nil, s.fail("reading the journal", err)
	}
	defer rows.Close()
	var out []Remnant
	for rows.Next() {
		var r Remnant
		var owner, kind, path, content, target sql.NullString
		var pending bool
		if err := rows.Scan(&r.Session, &r.State, &r.Repository, &owner, &kind, &path, &content, &target, &pending); err != nil {
			return nil, s.fail("reading the journal", err)
		}
		if n := len(out); n == 0 || out[n-1].Session != r.Session {
			out = append(out, r)
		}
		if !owner.Valid {
			continue
		}
		u := Undo{Owner: owner.String}
		u.Kind, u.Path, u.Content, u.ID = kind.String, path.String, content.String, target.String
		last := &out[len(out)-1]
		last.Undo = append(last.Undo, u)
		if pending {
			last.Pending = append(last.Pending, u)
		}
	}
	if err := rows.Err(); err != nil {
		return nil, s.fail("reading the journal", err)
	}
	return out, nil
}
