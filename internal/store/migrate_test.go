package store

import (
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/mojoup/mojoup-node/internal/fault"
)

// raw opens the file as another program would.
func raw(t testing.TB, dir string) *sql.DB {
	t.Helper()
	must(t, os.MkdirAll(dir, 0o700))
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, FileName))
	must(t, err)
	t.Cleanup(func() { db.Close() })
	return db
}

// wantError checks that opening fails with a sentence of one line, a next step
// and a code, and returns it.
func wantError(t *testing.T, dir string, kind Kind, says string) {
	t.Helper()
	s, err := Open(ctx, dir, Options{})
	if err == nil {
		s.Close()
		t.Fatal("it opened")
	}
	var bad *Error
	if !errors.As(err, &bad) || bad.Kind != kind || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), dir) {
		t.Errorf("%v (%+v), want %s: %s", err, bad, kind, says)
	}
	if f := fault.As(err); f.Hint == "" || f.Code != string(kind) || f.Exit != fault.ExitUnknown || strings.Contains(f.Sentence, "SQL") {
		t.Errorf("as told to a person: %+v", f)
	}
}

func TestNewerSchemaIsRefused(t *testing.T) {
	dir := stateDir(t)
	s, err := Open(ctx, dir, Options{})
	must(t, err)
	create(t, s, "one", "running")
	must(t, s.Close())
	db := raw(t, dir)
	_, err = db.Exec("PRAGMA user_version = 999")
	must(t, err)
	must(t, db.Close())
	before, err := os.ReadFile(filepath.Join(dir, FileName))
	must(t, err)
	wantError(t, dir, Newer, "schema 999, this mojoup-node knows up to ")
	after, err := os.ReadFile(filepath.Join(dir, FileName))
	must(t, err)
	if string(before) != string(after) {
		t.Error("the file was changed")
	}
}

func TestDatabaseOfAnotherProgramIsRefused(t *testing.T) {
	for _, statement := range []string{"CREATE TABLE theirs (a)", "PRAGMA user_version = 1", "PRAGMA application_id = 7"} {
		dir := stateDir(t)
		db := raw(t, dir)
		_, err := db.Exec(statement)
		must(t, err)
		must(t, db.Close())
		must(t, os.Chmod(filepath.Join(dir, FileName), 0o600))
		wantError(t, dir, Foreign, "another program")
	}
}

// An empty file is version 0: from there every migration runs.
func TestMigrateFromEmpty(t *testing.T) {
	all, err := readMigrations(migrations)
	must(t, err)
	dir := stateDir(t)
	must(t, os.Mkdir(dir, 0o700))
	must(t, os.WriteFile(filepath.Join(dir, FileName), nil, 0o600))
	s := openTest(t, dir, Options{})
	if v, err := s.version(ctx, s.write); err != nil || v != len(all) {
		t.Errorf("version %d, %v; want %d", v, err, len(all))
	}
	create(t, s, "one", "gone")
}

// Each migration is whole or not there: one that fails leaves the version
// before it, and those before it stay.
func TestMigrationsAreTransactions(t *testing.T) {
	s := openTest(t, "", Options{})
	was, err := s.version(ctx, s.write)
	must(t, err)
	for _, m := range []migration{
		{was + 1, "good", "CREATE TABLE a (x); CREATE TABLE b (x);"},
		{was + 2, "bad", "CREATE TABLE c (x); CREATE TABLE b (x);"},
	} {
		err := s.inWrite(ctx, "test", func(tx *sql.Tx) error { return s.apply(ctx, tx, m) })
		if (err == nil) != (m.name == "good") {
			t.Fatalf("%s: %v", m.name, err)
		}
	}
	var tables int
	must(t, s.read.QueryRow(`SELECT count(*) FROM sqlite_master WHERE name IN ('a', 'b', 'c')`).Scan(&tables))
	if v, err := s.version(ctx, s.write); err != nil || v != was+1 || tables != 2 {
		t.Errorf("version %d, %d tables, %v", v, tables, err)
	}
	// One that ran already is left out.
	must(t, s.inWrite(ctx, "test", func(tx *sql.Tx) error {
		return s.apply(ctx, tx, migration{was + 1, "again", "CREATE TABLE a (x);"})
	}))
}

func TestManyOpenAFreshStore(t *testing.T) {
	dir := stateDir(t)
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			s, err := Open(ctx, dir, Options{})
			if err != nil {
				t.Error(err)
				return
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	openTest(t, dir, Options{})
}

func TestMigrationsAreNumberedWithoutGap(t *testing.T) {
	file := &fstest.MapFile{Data: []byte("SELECT 1")}
	for name, dir := range map[string]fstest.MapFS{
		"None": {}, "Gap": {"migrations/0001_a.sql": file, "migrations/0003_b.sql": file}, "Twice": {"migrations/0001_a.sql": file, "migrations/0001_b.sql": file},
		"FromZero": {"migrations/0000_a.sql": file}, "NoNumber": {"migrations/a.sql": file}, "Short": {"migrations/1_a.sql": file},
	} {
		if got, err := readMigrations(dir); err == nil || !strings.HasPrefix(err.Error(), "BUG") {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}
