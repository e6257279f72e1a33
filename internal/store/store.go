// Package store promises that what it was told is still there after a crash:
// sessions, the journal of what undoes them, and the verdicts on their
// requests.
//
// It is the only package that speaks SQL. The file is SQLite with a
// write-ahead log and one writer. When a call returns its change is there, whole;
// what must outlast a power cut (a session with its undo, verdicts, approvals)
// is on the disk, and what a start after one finds out anyway (how far a session
// has come, which undo is done) follows in the order of the calls. A session's undo is written in the same
// transaction that lets it begin:
//
//	st, err := store.Open(ctx, paths.State, store.Options{})
//	err = st.CreateSession(ctx, s, undo)                   // staging; undo before do
//	err = st.MoveSession(ctx, s.ID, session.Starting, nil)
//	err = st.MoveSession(ctx, s.ID, session.Running, nil)  // written before acted on
//	err = st.MoveSession(ctx, s.ID, session.Stopping, nil)
//	err = st.UndoAllDone(ctx, s.ID)
//	err = st.MoveSession(ctx, s.ID, session.Gone, nil)
//
// After a crash [Store.Pending] is all that is left to undo.
//
// Past sessions are kept for 30 days and 1,000 of them at most; see
// [Store.Prune]. Of each session the newest 20,000 verdicts are kept; the
// counters count all that there were.
package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// FileName is the name of the database in the state directory. Beside it lie
// its write-ahead log and index, with "-wal" and "-shm" added.
const FileName = "node.db"

// Options of Open. The zero value is right for a node.
type Options struct {
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Keep is how long and how many past sessions are kept; zero fields mean
	// 30 days, 1,000, and the newest 20,000 verdicts of each.
	Keep Retention
	// fileSystem says which kind of file system holds a path, for tests.
	fileSystem func(path string) (int64, error)
}

// A Store is an open database. Its methods may be called concurrently.
type Store struct {
	path  string
	now   func() time.Time
	keep  Retention
	write *sql.DB // one connection, so that writers wait in line
	read  *sql.DB
}

// Open opens the store in dir, making the directory (0700) and the file (0600)
// where they are missing, and brings its schema up to date. The directory must
// be absolute, on a local file system and writable by nobody else. What cannot
// be opened is left as it was, with an [Error] that says why.
func Open(ctx context.Context, dir string, o Options) (*Store, error) {
	s := &Store{path: filepath.Join(dir, FileName), now: o.Now, keep: o.Keep.orDefault()}
	if s.now == nil {
		s.now = time.Now
	}
	if o.fileSystem == nil {
		o.fileSystem = fileSystem
	}
	if err := prepareDir(dir, o.fileSystem); err != nil {
		return nil, err
	}
	if err := prepareFile(s.path); err != nil {
		return nil, err
	}
	if err := s.open(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// open connects and migrates. Readers connect when they are first needed.
func (s *Store) open(ctx context.Context) (err error) {
	// Immediate: a transaction that reads before it writes would otherwise
	// fail when another process wrote in between.
	s.write, err = sql.Open("sqlite", dsn(s.path, "_txlock=immediate", "_pragma=synchronous(FULL)"))
	if err != nil {
		return s.fail("opening", err)
	}
	s.write.SetMaxOpenConns(1)
	s.read, err = sql.Open("sqlite", dsn(s.path, "_pragma=query_only(1)"))
	if err != nil {
		return s.fail("opening", err)
	}
	s.read.SetMaxOpenConns(4)
	s.read.SetMaxIdleConns(4)
	if err := s.migrate(ctx); err != nil {
		return err
	}
	// Little by little, so that opening stays fast; Prune does the rest.
	_, err = s.prune(ctx, 8, 2000)
	return err
}

// Close writes the log back into the file and closes it.
func (s *Store) Close() error {
	var errs []error
	for _, db := range []*sql.DB{s.read, s.write} { // the writer last: it cleans up
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	if err := errors.Join(errs...); err != nil {
		return s.fail("closing", err)
	}
	return nil
}

// Path returns the path of the database file.
func (s *Store) Path() string { return s.path }

// dsn names the file to the driver. Foreign keys are off in SQLite unless
// asked for, and a second process (cleanup, an older node that ends) is worth
// waiting for.
func dsn(path string, more ...string) string {
	more = append([]string{"_pragma=busy_timeout(5000)", "_pragma=journal_mode(WAL)", "_pragma=foreign_keys(1)"}, more...)
	return fileURL(path, more)
}

// lookingDSN is for who only looks: no file is made, and no mode changed.
func lookingDSN(path string) string {
	return fileURL(path, []string{"mode=rw", "_pragma=busy_timeout(5000)", "_pragma=query_only(1)"})
}

func fileURL(path string, query []string) string {
	u := url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath()}
	u.RawQuery = strings.Join(query, "&")
	return u.String()
}

// prepareDir makes the directory and refuses one that would not keep what is
// written, or would let somebody else change it.
func prepareDir(dir string, fileSystem func(string) (int64, error)) error {
	if !filepath.IsAbs(dir) {
		return &Error{Kind: Unusable, Path: dir, Reason: "the state directory is not an absolute path"}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return &Error{Kind: kindOf(err), Path: dir, Reason: "the state directory cannot be made", Err: err}
	}
	info, err := os.Stat(dir)
	if err != nil {
		return &Error{Kind: kindOf(err), Path: dir, Reason: "the state directory cannot be read", Err: err}
	}
	if err := onlyOurs(dir, info); err != nil {
		return err
	}
	magic, err := fileSystem(dir)
	if err != nil {
		return &Error{Kind: Unusable, Path: dir, Reason: "the file system of the state directory is not known", Err: err}
	}
	if name, remote := networkFileSystem(magic); remote {
		return &Error{Kind: Remote, Path: dir, Reason: "the state directory is on " + name + ", where a database is not safe"}
	}
	return nil
}

// headerSize is the least that a database holds, in bytes. SQLite takes a
// shorter file for an empty one and would write over it.
const headerSize = 100

// prepareFile makes the file, so that SQLite makes neither it nor its
// companions with a mode of its own. An existing one is only looked at: to
// open and close it here would drop the locks of another store in this
// process, as POSIX has it.
func prepareFile(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err == nil {
		err = f.Close()
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return &Error{Kind: kindOf(err), Path: path, Reason: "the state file cannot be made", Err: err}
	}
	info, err := os.Lstat(path)
	if err != nil {
		return &Error{Kind: kindOf(err), Path: path, Reason: "the state file cannot be read", Err: err}
	}
	if !info.Mode().IsRegular() {
		return &Error{Kind: Unusable, Path: path, Reason: "the state file is not a regular file"}
	}
	if n := info.Size(); n > 0 && n < headerSize {
		return &Error{Kind: Corrupt, Path: path, Reason: "the state file is not a database"}
	}
	if err := onlyOurs(path, info); err != nil {
		return err
	}
	if info.Mode().Perm()&0o077 != 0 {
		if err := os.Chmod(path, 0o600); err != nil {
			return &Error{Kind: kindOf(err), Path: path, Reason: "the state file cannot be closed to others", Err: err}
		}
	}
	return nil
}

// inWrite runs do in one transaction of the writer. When it returns, the change
// is on the disk.
func (s *Store) inWrite(ctx context.Context, doing string, do func(*sql.Tx) error) error {
	return s.transact(ctx, s.write, doing, do)
}

// inTime runs do in one transaction that a power cut may still undo, whole and
// with all that came after it: for what a start after one finds out anyway. A
// session that is not known to have moved on is lost all the same, and an undo
// that is not known to be done is carried out once more. Waiting for the disk
// each time would be most of what a short session costs.
func (s *Store) inTime(ctx context.Context, doing string, do func(*sql.Tx) error) (err error) {
	conn, err := s.write.Conn(ctx)
	if err != nil {
		return s.fail(doing, err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(ctx, "PRAGMA synchronous = NORMAL"); err != nil {
		return s.fail(doing, err)
	}
	defer func() {
		if _, ferr := conn.ExecContext(context.WithoutCancel(ctx), "PRAGMA synchronous = FULL"); ferr != nil && err == nil {
			err = s.fail(doing, ferr)
		}
	}()
	return s.transact(ctx, conn, doing, do)
}

func (s *Store) transact(ctx context.Context, db interface {
	BeginTx(context.Context, *sql.TxOptions) (*sql.Tx, error)
}, doing string, do func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return s.fail(doing, err)
	}
	defer tx.Rollback() // does nothing after Commit
	if err := do(tx); err != nil {
		return s.fail(doing, err)
	}
	sandbox.Reached(ctx, "before "+doing)
	if err := tx.Commit(); err != nil {
		return s.fail(doing, err)
	}
	sandbox.Reached(ctx, "after "+doing)
	return nil
}

// fail gives a driver's error a sentence and leaves others as they are, with
// what was being done before them.
func (s *Store) fail(doing string, err error) error {
	if kind, reason, ok := translate(err); ok {
		if kind == Unusable && diskFull(filepath.Dir(s.path)) {
			// The index of the log is made in ways whose failure has no code
			// of its own.
			kind, reason = Full, fullReason
		}
		return fmt.Errorf("%s: %w", doing, &Error{Kind: kind, Path: s.path, Reason: reason, Err: err})
	}
	return fmt.Errorf("%s: %w", doing, err)
}
