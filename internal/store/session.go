package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/mojoup/mojoup-node/internal/session"
	"github.com/mojoup/mojoup-node/pkg/console/api"
	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// A Session is what is known of one session. See [api.Session] for what its
// fields mean.
type Session struct {
	ID         session.ID
	Node       string // names the start of the node that carries it, so that a later start knows the dead
	State      session.State
	Reason     string // of failed and lost
	User       string
	UID        int
	Repository string
	Tool       string
	Command    []string
	Engine     string
	Sandboxed  bool
	Since      time.Time // zero means now, at CreateSession
	Ended      time.Time // zero while it lives; set by MoveSession unless change does
	ExitCode   *int
	Stages     []api.Stage
	Enforced   sandbox.Enforced
	Notices    []string
	Commits    []api.Commit
	References []api.Reference
	// Allowed and Denied count the verdicts. Only AddVerdicts changes them.
	Allowed, Denied int
}

// API is the session as clients see it, without verdicts.
func (s Session) API() api.Session {
	out := api.Session{
		ID: string(s.ID), State: string(s.State), Reason: s.Reason, User: s.User, UID: s.UID,
		Repository: s.Repository, Tool: s.Tool, Command: s.Command, Engine: s.Engine, Sandboxed: s.Sandboxed,
		Since: s.Since, Ended: s.Ended, ExitCode: s.ExitCode, Stages: s.Stages,
		Enforced: facts(s.Enforced), Notices: s.Notices, Commits: s.Commits, References: s.References, Allowed: s.Allowed, Denied: s.Denied,
	}
	if out.Stages == nil {
		out.Stages = []api.Stage{}
	}
	if out.Command == nil {
		out.Command = []string{}
	}
	return out
}

// facts is what was enforced in the shape of the API, which is also how it is
// kept: its names are promised not to change.
func facts(e sandbox.Enforced) []api.Fact {
	var out []api.Fact
	for _, f := range e {
		out = append(out, api.Fact{Name: f.Name, Strength: string(f.Strength), Detail: f.Detail})
	}
	return out
}

func enforced(fs []api.Fact) sandbox.Enforced {
	var out sandbox.Enforced
	for _, f := range fs {
		out = append(out, sandbox.Fact{Name: f.Name, Strength: sandbox.Strength(f.Strength), Detail: f.Detail})
	}
	return out
}

// CreateSession writes a new session and all of its undo, in one transaction.
// Its state is asked, or staging where the undo is known already; undo is
// carried out in the order given.
func (s *Store) CreateSession(ctx context.Context, new Session, undo []Undo) error {
	if _, err := session.Parse(string(new.ID)); err != nil {
		return fmt.Errorf("creating a session: %w", err)
	}
	if new.State != session.Asked && new.State != session.Staging {
		return fmt.Errorf("creating session %s: %w", new.ID, &session.MoveError{To: new.State})
	}
	if new.State == session.Asked && len(undo) > 0 {
		return fmt.Errorf("BUG: creating session %s: undo belongs to staging", new.ID)
	}
	if new.Since.IsZero() {
		new.Since = s.now()
	}
	return s.inWrite(ctx, fmt.Sprintf("creating session %s", new.ID), func(tx *sql.Tx) error {
		args, err := new.columns()
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, insertSession, args...); err != nil {
			return err
		}
		return addUndo(ctx, tx, new.ID, undo)
	})
}

// StageSession moves a session to staging and writes all of its undo, in one
// transaction. It is for those whose undo is not known when they are created.
func (s *Store) StageSession(ctx context.Context, id session.ID, undo []Undo, change func(*Session)) error {
	return s.inWrite(ctx, fmt.Sprintf("staging session %s", id), func(tx *sql.Tx) error {
		if err := s.move(ctx, tx, id, session.Staging, change); err != nil {
			return err
		}
		return addUndo(ctx, tx, id, undo)
	})
}

// MoveSession moves a session to another state, with a [session.MoveError]
// where the table of moves does not have it, and writes what change makes of
// it. A nil change is none; what it does to ID, State and the counters has no
// effect. A session whose undo is not done cannot be gone ([PendingError]).
func (s *Store) MoveSession(ctx context.Context, id session.ID, to session.State, change func(*Session)) error {
	return s.inTime(ctx, fmt.Sprintf("moving session %s to %s", id, to), func(tx *sql.Tx) error {
		return s.move(ctx, tx, id, to, change)
	})
}

// UpdateSession writes what change makes of a session without moving it. What
// it does to ID, State and the counters has no effect.
func (s *Store) UpdateSession(ctx context.Context, id session.ID, change func(*Session)) error {
	return s.inTime(ctx, fmt.Sprintf("updating session %s", id), func(tx *sql.Tx) error {
		old, err := getSession(ctx, tx, id)
		if err != nil {
			return err
		}
		return putSession(ctx, tx, old, old.State, change)
	})
}

// move checks and carries out one move.
func (s *Store) move(ctx context.Context, tx *sql.Tx, id session.ID, to session.State, change func(*Session)) error {
	old, err := getSession(ctx, tx, id)
	if err != nil {
		return err
	}
	if err := session.Move(old.State, to); err != nil {
		return err
	}
	if to == session.Gone {
		if err := nothingPending(ctx, tx, id); err != nil {
			return err
		}
	}
	if to.Ended() && old.Ended.IsZero() {
		old.Ended = s.now()
	}
	return putSession(ctx, tx, old, to, change)
}

// putSession writes back a session after change.
func putSession(ctx context.Context, tx *sql.Tx, old Session, to session.State, change func(*Session)) error {
	changed := old
	if change != nil {
		change(&changed)
	}
	changed.State = to
	args, err := changed.columns()
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, updateSession, append(args[1:], string(old.ID))...)
	return err
}

// Session returns one session, or a [NotFoundError].
func (s *Store) Session(ctx context.Context, id session.ID) (Session, error) {
	got, err := getSession(ctx, s.read, id)
	if err != nil {
		return Session{}, s.fail("reading the session", err)
	}
	return got, nil
}

// IDs are those of the sessions, at most a hundred, whose ids begin so.
func (s *Store) IDs(ctx context.Context, begins session.ID) ([]session.ID, error) {
	// '~' comes after every character of an ID.
	rows, err := s.read.QueryContext(ctx, `SELECT id FROM sessions WHERE id >= ? AND id < ? ORDER BY id LIMIT 100`, string(begins), string(begins)+"~")
	if err != nil {
		return nil, s.fail("looking for a session", err)
	}
	defer rows.Close()
	var out []session.ID
	for rows.Next() {
		var id session.ID
		if err := rows.Scan(&id); err != nil {
			return nil, s.fail("looking for a session", err)
		}
		out = append(out, id)
	}
	if err := rows.Err(); err != nil {
		return nil, s.fail("looking for a session", err)
	}
	return out, nil
}

// Which sessions a Filter lets through.
type Which int

const (
	All  Which = iota // live and past
	Live              // not ended
	Past              // ended
)

// A Filter chooses sessions. The zero value chooses all.
type Filter struct {
	Which Which
	UID   *int   // of this user only
	Node  string // of this start of the node only; "" means any
	Limit int    // at most so many; 0 means no limit
}

// Sessions lists sessions, newest first.
func (s *Store) Sessions(ctx context.Context, f Filter) ([]Session, error) {
	query, args := f.query()
	rows, err := s.read.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, s.fail("listing sessions", err)
	}
	defer rows.Close()
	out := []Session{}
	for rows.Next() {
		one, err := scanSession(rows)
		if err != nil {
			return nil, s.fail("listing sessions", err)
		}
		out = append(out, one)
	}
	if err := rows.Err(); err != nil {
		return nil, s.fail("listing sessions", err)
	}
	return out, nil
}

// query makes the statement of a filter.
func (f Filter) query() (string, []any) {
	var where []string
	var args []any
	switch f.Which {
	case Live:
		where = append(where, "state IN ("+liveStates()+")")
	case Past:
		where = append(where, "state IN ("+pastStates()+")")
	}
	if f.UID != nil {
		where, args = append(where, "uid = ?"), append(args, *f.UID)
	}
	if f.Node != "" {
		where, args = append(where, "node = ?"), append(args, f.Node)
	}
	query := "SELECT " + sessionColumns + " FROM sessions"
	if len(where) > 0 {
		query += " WHERE " + strings.Join(where, " AND ")
	}
	query += " ORDER BY since DESC, rowid DESC"
	if f.Limit > 0 {
		query, args = query+" LIMIT ?", append(args, f.Limit)
	}
	return query, args
}

// liveStates and pastStates are lists of states for a statement. They are
// words of our own.
func liveStates() string { return stateList(session.State.Live) }
func pastStates() string { return stateList(session.State.Ended) }

func stateList(want func(session.State) bool) string {
	var list []string
	for _, st := range session.States() {
		if want(st) {
			list = append(list, "'"+string(st)+"'")
		}
	}
	return strings.Join(list, ",")
}

const sessionColumns = `id, node, state, reason, user, uid, repository, tool, command, engine, sandboxed, since, ended, exit_code, stages, enforced, notices, commits, moved, allowed, denied`

// The counters are not written with the rest: they change at the same time,
// elsewhere.
const insertSession = `INSERT INTO sessions (id, node, state, reason, user, uid, repository, tool, command, engine, sandboxed, since, ended, exit_code, stages, enforced, notices, commits, moved)
	VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`

const updateSession = `UPDATE sessions SET node = ?, state = ?, reason = ?, user = ?, uid = ?, repository = ?, tool = ?, command = ?, engine = ?, sandboxed = ?, since = ?, ended = ?, exit_code = ?, stages = ?, enforced = ?, notices = ?, commits = ?, moved = ?
	WHERE id = ?`

// columns gives the values of insertSession.
func (s Session) columns() ([]any, error) {
	lists := make([]string, 6)
	for i, v := range []any{s.Command, s.Stages, facts(s.Enforced), s.Notices, s.Commits, s.References} {
		b, err := json.Marshal(v)
		if err != nil {
			return nil, fmt.Errorf("encoding session %s: %w", s.ID, err)
		}
		lists[i] = string(b)
	}
	return []any{
		string(s.ID), s.Node, string(s.State), s.Reason, s.User, s.UID, s.Repository, s.Tool, lists[0], s.Engine,
		s.Sandboxed, nanos(s.Since), nanos(s.Ended), s.ExitCode, lists[1], lists[2], lists[3], lists[4], lists[5],
	}, nil
}

// getSession reads one row.
func getSession(ctx context.Context, q querier, id session.ID) (Session, error) {
	got, err := scanSession(q.QueryRowContext(ctx, "SELECT "+sessionColumns+" FROM sessions WHERE id = ?", string(id)))
	if errors.Is(err, sql.ErrNoRows) {
		return Session{}, &NotFoundError{What: "session", ID: string(id)}
	}
	return got, err
}

// scanSession reads a row of sessionColumns.
func scanSession(row interface{ Scan(...any) error }) (Session, error) {
	var s Session
	var since int64
	var ended, exit sql.Null[int64]
	var command, stages, strengths, notices, commits, moved string
	err := row.Scan(&s.ID, &s.Node, &s.State, &s.Reason, &s.User, &s.UID, &s.Repository, &s.Tool, &command, &s.Engine,
		&s.Sandboxed, &since, &ended, &exit, &stages, &strengths, &notices, &commits, &moved, &s.Allowed, &s.Denied)
	if err != nil {
		return Session{}, err
	}
	var kept []api.Fact
	for text, v := range map[*string]any{&command: &s.Command, &stages: &s.Stages, &strengths: &kept, &notices: &s.Notices, &commits: &s.Commits, &moved: &s.References} {
		if err := json.Unmarshal([]byte(*text), v); err != nil {
			return Session{}, fmt.Errorf("decoding session %s: %w", s.ID, err)
		}
	}
	s.Enforced = enforced(kept)
	s.Since = instant(since)
	if ended.Valid {
		s.Ended = instant(ended.V)
	}
	if exit.Valid {
		code := int(exit.V)
		s.ExitCode = &code
	}
	return s, nil
}

// nanos is how times are kept; zero is none.
func nanos(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixNano()
}

func instant(ns int64) time.Time { return time.Unix(0, ns).UTC() }
