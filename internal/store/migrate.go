package store

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// Migrations are numbered from 0001 without a gap and never change once
// released.
//
//go:embed migrations/*.sql
var migrations embed.FS

// applicationID marks a file as ours, in SQLite's header: "mjup".
const applicationID = 0x6d6a7570

// A migration takes the schema from version-1 to version.
type migration struct {
	version int
	name    string
	sql     string
}

// readMigrations lists the migrations in order.
func readMigrations(dir fs.FS) ([]migration, error) {
	names, err := fs.Glob(dir, "migrations/*.sql")
	if err != nil {
		return nil, fmt.Errorf("listing migrations: %w", err)
	}
	var out []migration
	for i, name := range names { // Glob sorts
		number, _, _ := strings.Cut(path.Base(name), "_")
		if n, err := strconv.Atoi(number); err != nil || n != i+1 || len(number) != 4 {
			return nil, fmt.Errorf("BUG: migration %s is not number %04d", name, i+1)
		}
		text, err := fs.ReadFile(dir, name)
		if err != nil {
			return nil, fmt.Errorf("reading migration %s: %w", name, err)
		}
		out = append(out, migration{version: i + 1, name: path.Base(name), sql: string(text)})
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("BUG: there are no migrations")
	}
	return out, nil
}

// migrate brings the schema up to date, each step in a transaction of its own.
func (s *Store) migrate(ctx context.Context) error {
	all, err := readMigrations(migrations)
	if err != nil {
		return err
	}
	version, err := s.version(ctx, s.write)
	if err != nil {
		return s.fail("opening", err)
	}
	if version > len(all) {
		return &Error{Kind: Newer, Path: s.path, Reason: fmt.Sprintf("the state file has schema %d, this mojoup-node knows up to %d", version, len(all))}
	}
	for _, m := range all[version:] {
		err := s.inWrite(ctx, "migrating the store with "+m.name, func(tx *sql.Tx) error {
			return s.apply(ctx, tx, m)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// apply carries out one migration, unless another process was faster.
func (s *Store) apply(ctx context.Context, tx *sql.Tx, m migration) error {
	version, err := s.version(ctx, tx)
	if err != nil || version >= m.version {
		return err
	}
	if _, err := tx.ExecContext(ctx, m.sql); err != nil {
		return err
	}
	// Pragmas take no parameters; both are numbers of our own.
	_, err = tx.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version=%d; PRAGMA application_id=%d", m.version, applicationID))
	return err
}

type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// version reads the schema's version, 0 for an empty file, and refuses a
// database that some other program made.
func (s *Store) version(ctx context.Context, q querier) (int, error) {
	var version, id, objects int
	err := q.QueryRowContext(ctx, `SELECT
		(SELECT user_version FROM pragma_user_version),
		(SELECT application_id FROM pragma_application_id),
		(SELECT count(*) FROM sqlite_master)`).Scan(&version, &id, &objects)
	if err != nil {
		return 0, err
	}
	empty := version == 0 && id == 0 && objects == 0
	if !empty && id != applicationID {
		return 0, &Error{Kind: Foreign, Path: s.path, Reason: "the state file is a database of another program"}
	}
	return version, nil
}
