package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/mojoup/mojoup-node/internal/session"
	"github.com/mojoup/mojoup-node/pkg/console/api"
	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// ctx is the tests' own.
var ctx = context.Background()

// A clock goes on by one second with every look.
type clock struct {
	mu sync.Mutex
	t  time.Time // guarded by mu
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(time.Second)
	return c.t
}

var start = time.Date(2030, 5, 1, 12, 0, 0, 0, time.UTC)

func stateDir(t testing.TB) string { return filepath.Join(t.TempDir(), "state") }

// openTest opens a store and closes it after the test. Without a directory it
// is a new one.
func openTest(t testing.TB, dir string, o Options) *Store {
	t.Helper()
	if dir == "" {
		dir = stateDir(t)
	}
	if o.Now == nil {
		o.Now = (&clock{t: start}).now
	}
	s, err := Open(ctx, dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// get returns a session that must be there.
func get(t testing.TB, s *Store, id session.ID) Session {
	t.Helper()
	got, err := s.Session(ctx, id)
	must(t, err)
	return got
}

// create makes a session and takes it to a state by way of legal moves.
func create(t testing.TB, s *Store, id session.ID, to session.State, undo ...Undo) {
	t.Helper()
	first := session.Staging
	if to == session.Asked || to == session.Queued {
		first = session.Asked
	}
	must(t, s.CreateSession(ctx, Session{ID: id, State: first, UID: 1000, Node: "n1"}, undo))
	way := map[session.State][]session.State{
		session.Queued: {session.Queued}, session.Starting: {session.Starting}, session.Running: {session.Starting, session.Running},
		session.Gone: {session.Stopping, session.Gone}, session.Failed: {session.Failed}, session.Lost: {session.Lost},
	}
	for _, next := range way[to] {
		must(t, s.MoveSession(ctx, id, next, nil))
	}
}

// fill gives every field below v a value that is not zero, so that a field
// that is added later is tested without anybody thinking of it.
func fill(v reflect.Value, n *int) {
	*n++
	switch v.Kind() {
	case reflect.String:
		v.SetString(fmt.Sprintf("text %d", *n))
	case reflect.Int:
		v.SetInt(int64(*n))
	case reflect.Float64:
		v.SetFloat(float64(*n) + 0.5)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0), n)
		fill(v.Index(1), n)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(start.Add(time.Duration(*n) * time.Nanosecond)))
			return
		}
		for i := range v.NumField() {
			fill(v.Field(i), n)
		}
	default:
		panic("BUG: no value for a " + v.Kind().String())
	}
}

func TestEveryFieldOfASessionIsKept(t *testing.T) {
	s := openTest(t, "", Options{})
	var want Session
	n := 0
	fill(reflect.ValueOf(&want).Elem(), &n)
	want.ID, want.State, want.Allowed, want.Denied = "one", session.Asked, 0, 0
	must(t, s.CreateSession(ctx, want, nil))
	if diff := cmp.Diff(want, get(t, s, "one")); diff != "" {
		t.Error(diff)
	}
	fill(reflect.ValueOf(&want).Elem(), &n) // all other values
	err := s.MoveSession(ctx, "one", session.Queued, func(c *Session) { *c = want })
	must(t, err)
	want.ID, want.State, want.Allowed, want.Denied = "one", session.Queued, 0, 0
	if diff := cmp.Diff(want, get(t, s, "one")); diff != "" {
		t.Error(diff)
	}
}

func TestSessionForClients(t *testing.T) {
	var full Session
	n := 0
	fill(reflect.ValueOf(&full).Elem(), &n)
	v := reflect.ValueOf(full.API())
	for i := range v.NumField() {
		if name := v.Type().Field(i).Name; v.Field(i).IsZero() != (name == "Verdicts" || name == "Attached" || name == "RecordedBytes" || name == "Refused") {
			t.Errorf("%s = %v", name, v.Field(i))
		}
	}
	// Lists that are never null.
	if a := (Session{}).API(); a.Stages == nil || a.Command == nil {
		t.Errorf("%+v", a)
	}
}

func TestCreateSession(t *testing.T) {
	s := openTest(t, "", Options{})
	undo := []Undo{{Owner: "node", Undo: sandbox.Undo{Kind: "dir", Path: "/a"}}, {Owner: "engine:native", Undo: sandbox.Undo{Kind: "file", Path: "/b", Content: ".", ID: "x"}}}
	must(t, s.CreateSession(ctx, Session{ID: "one", State: session.Staging}, undo))
	if got := get(t, s, "one"); got.State != session.Staging || !got.Since.After(start) || !got.Ended.IsZero() {
		t.Errorf("%+v", got)
	}
	pending, err := s.Pending(ctx)
	must(t, err)
	want := []JournalEntry{{"one", 1, undo[0]}, {"one", 2, undo[1]}}
	if diff := cmp.Diff(want, pending); diff != "" {
		t.Error(diff)
	}
	for name, bad := range map[string]Session{
		"SameID": {ID: "one", State: session.Staging}, "NoID": {State: session.Asked}, "BadID": {ID: "../x", State: session.Asked},
		"NoState": {ID: "two"}, "Running": {ID: "two", State: session.Running}, "Gone": {ID: "two", State: session.Gone}, "UndoTooEarly": {ID: "two", State: session.Asked},
	} {
		if err := s.CreateSession(ctx, bad, undo); err == nil {
			t.Errorf("%s: created", name)
		}
	}
	if all, err := s.Sessions(ctx, Filter{}); err != nil || len(all) != 1 {
		t.Errorf("%d sessions, %v", len(all), err)
	}
}

func TestStageSession(t *testing.T) {
	s := openTest(t, "", Options{})
	create(t, s, "one", session.Queued)
	must(t, s.StageSession(ctx, "one", []Undo{{Owner: "node"}}, func(c *Session) { c.Engine = "native" }))
	if got := get(t, s, "one"); got.State != session.Staging || got.Engine != "native" {
		t.Errorf("%+v", got)
	}
	// A second time is no legal move, and its undo is not written.
	var bad *session.MoveError
	if err := s.StageSession(ctx, "one", []Undo{{Owner: "node"}}, nil); !errors.As(err, &bad) {
		t.Errorf("%v", err)
	}
	if p, err := s.PendingOf(ctx, "one"); err != nil || len(p) != 1 {
		t.Errorf("%v, %v", p, err)
	}
}

func TestMoveSession(t *testing.T) {
	c := &clock{t: start}
	s := openTest(t, "", Options{Now: c.now})
	create(t, s, "one", session.Running)
	var bad *session.MoveError
	err := s.MoveSession(ctx, "one", session.Queued, func(*Session) { t.Error("change was called") })
	if !errors.As(err, &bad) || bad.From != session.Running || bad.To != session.Queued {
		t.Errorf("%v", err)
	}
	var missing *NotFoundError
	if err := s.MoveSession(ctx, "none", session.Lost, nil); !errors.As(err, &missing) || missing.Hint() == "" {
		t.Errorf("%v", err)
	}
	code := 3
	must(t, s.MoveSession(ctx, "one", session.Stopping, func(c *Session) {
		c.ID, c.State, c.Allowed, c.Denied = "two", session.Gone, 7, 7
		c.ExitCode, c.Reason, c.Notices = &code, "told to", append(c.Notices, "closing")
	}))
	got := get(t, s, "one")
	if got.State != session.Stopping || got.Allowed+got.Denied != 0 || *got.ExitCode != 3 || got.Reason != "told to" || len(got.Notices) != 1 || !got.Ended.IsZero() {
		t.Errorf("%+v", got)
	}
	before := c.t
	must(t, s.MoveSession(ctx, "one", session.Gone, nil))
	if got := get(t, s, "one"); got.Ended != before.Add(time.Second) {
		t.Errorf("ended %v", got.Ended)
	}
	if err := s.MoveSession(ctx, "one", session.Lost, nil); !errors.As(err, &bad) {
		t.Errorf("moved after its end: %v", err)
	}
}

func TestUpdateSession(t *testing.T) {
	s := openTest(t, "", Options{})
	create(t, s, "one", session.Running)
	must(t, s.UpdateSession(ctx, "one", func(c *Session) {
		c.State, c.Stages = session.Gone, []api.Stage{{Name: "plan", Milliseconds: 1.25}}
	}))
	if got := get(t, s, "one"); got.State != session.Running || len(got.Stages) != 1 {
		t.Errorf("%+v", got)
	}
	var missing *NotFoundError
	if err := s.UpdateSession(ctx, "none", nil); !errors.As(err, &missing) {
		t.Errorf("%v", err)
	}
}

func TestGoneMeansThatNothingIsLeft(t *testing.T) {
	s := openTest(t, "", Options{})
	create(t, s, "one", session.Running, Undo{Owner: "a"}, Undo{Owner: "b"})
	must(t, s.MoveSession(ctx, "one", session.Stopping, nil))
	var left *PendingError
	if err := s.MoveSession(ctx, "one", session.Gone, nil); !errors.As(err, &left) || left.Undo != 2 {
		t.Errorf("%v", err)
	}
	must(t, s.UndoDone(ctx, "one", 1))
	if err := s.MoveSession(ctx, "one", session.Gone, nil); !errors.As(err, &left) || left.Undo != 1 {
		t.Errorf("%v", err)
	}
	must(t, s.UndoDone(ctx, "one", 2))
	must(t, s.MoveSession(ctx, "one", session.Gone, nil))
	// Failed and lost may leave something to the next start.
	create(t, s, "two", session.Staging, Undo{Owner: "a"})
	must(t, s.MoveSession(ctx, "two", session.Lost, nil))
	if p, err := s.Pending(ctx); err != nil || len(p) != 1 || p[0].Session != "two" {
		t.Errorf("%v, %v", p, err)
	}
}

func TestJournal(t *testing.T) {
	s := openTest(t, "", Options{})
	for _, id := range []session.ID{"zz", "aa"} { // older first, whatever the name
		create(t, s, id, session.Running, Undo{Owner: "1"}, Undo{Owner: "2"}, Undo{Owner: "3"})
	}
	must(t, s.UndoDone(ctx, "zz", 2))
	must(t, s.UndoDone(ctx, "zz", 2))
	list := func() (got string) {
		p, err := s.Pending(ctx)
		must(t, err)
		for _, e := range p {
			got += fmt.Sprintf("%s/%d ", e.Session, e.Seq)
		}
		return got
	}
	if got := list(); got != "zz/1 zz/3 aa/1 aa/2 aa/3 " {
		t.Error(got)
	}
	if p, err := s.PendingOf(ctx, "zz"); err != nil || len(p) != 2 || p[1].Owner != "3" {
		t.Errorf("%v, %v", p, err)
	}
	var missing *NotFoundError
	for _, bad := range []struct {
		id  session.ID
		seq int
	}{{"zz", 0}, {"zz", 4}, {"none", 1}} {
		if err := s.UndoDone(ctx, bad.id, bad.seq); !errors.As(err, &missing) {
			t.Errorf("%v: %v", bad, err)
		}
	}
	must(t, s.UndoAllDone(ctx, "aa"))
	must(t, s.UndoAllDone(ctx, "aa"))
	must(t, s.UndoAllDone(ctx, "none"))
	if got := list(); got != "zz/1 zz/3 " {
		t.Error(got)
	}
}

func TestSessionsFilter(t *testing.T) {
	s := openTest(t, "", Options{})
	create(t, s, "a", session.Gone)
	create(t, s, "b", session.Running)
	create(t, s, "c", session.Lost)
	create(t, s, "d", session.Queued)
	create(t, s, "e", session.Failed)
	must(t, s.UpdateSession(ctx, "d", func(c *Session) { c.UID, c.Node = 0, "n2" }))
	uid := 0
	for name, tt := range map[string]struct {
		f    Filter
		want string
	}{
		"All": {Filter{}, "edcba"}, "Live": {Filter{Which: Live}, "db"}, "Past": {Filter{Which: Past}, "eca"}, "Limit": {Filter{Limit: 2}, "ed"},
		"UID": {Filter{UID: &uid}, "d"}, "Node": {Filter{Node: "n1", Which: Live}, "b"}, "None": {Filter{UID: &uid, Which: Past}, ""},
	} {
		list, err := s.Sessions(ctx, tt.f)
		must(t, err)
		got := ""
		for _, one := range list {
			got += string(one.ID)
		}
		if got != tt.want || list == nil {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
	var missing *NotFoundError
	if _, err := s.Session(ctx, "none"); !errors.As(err, &missing) || missing.Code() != "not-found" {
		t.Errorf("%v", err)
	}
}

func TestVerdicts(t *testing.T) {
	s := openTest(t, "", Options{})
	create(t, s, "one", session.Running)
	create(t, s, "two", session.Running)
	var full Verdict
	n := 0
	fill(reflect.ValueOf(&full).Elem(), &n)
	full.Session, full.Again = "one", false
	must(t, s.AddVerdicts(ctx, nil))
	must(t, s.AddVerdicts(ctx, []Verdict{full}))
	if got, err := s.Verdict(ctx, full.ID); err != nil || !cmp.Equal(full, got) {
		t.Errorf("%v: %s", err, cmp.Diff(full, got))
	}
	var batch []Verdict
	for i := range 10 {
		batch = append(batch, Verdict{Session: "two", Outcome: api.Outcome{ID: fmt.Sprint(i), Allowed: i%5 == 0}})
	}
	var missing *NotFoundError
	err := s.AddVerdicts(ctx, append(batch[:5:5], append([]Verdict{{Session: "none"}, {Session: "none"}}, batch[5:]...)...))
	if !errors.As(err, &missing) || missing.ID != "none" {
		t.Errorf("%v", err)
	}
	got, err := s.Verdicts(ctx, "two", 3)
	must(t, err)
	if len(got) != 3 || got[0].ID != "7" || got[2].ID != "9" {
		t.Errorf("%+v", got)
	}
	if all, err := s.Verdicts(ctx, "two", 0); err != nil || len(all) != 10 {
		t.Errorf("%d, %v", len(all), err)
	}
	if one, two := get(t, s, "one"), get(t, s, "two"); one.Allowed != 1 || one.Denied != 0 || two.Allowed != 2 || two.Denied != 8 {
		t.Errorf("counted %d/%d and %d/%d", one.Allowed, one.Denied, two.Allowed, two.Denied)
	}
	if _, err := s.Verdict(ctx, "none"); !errors.As(err, &missing) {
		t.Errorf("%v", err)
	}
	if none, err := s.Verdicts(ctx, "none", 0); err != nil || none == nil || len(none) != 0 {
		t.Errorf("%v, %v", none, err)
	}
}

func TestPrune(t *testing.T) {
	c := &clock{t: start}
	dir := stateDir(t)
	s := openTest(t, dir, Options{Now: c.now, Keep: Retention{Age: time.Hour, Sessions: 3}})
	create(t, s, "live", session.Running)
	create(t, s, "owed", session.Lost, Undo{Owner: "node"})
	create(t, s, "old", session.Gone)
	c.t = c.t.Add(2 * time.Hour)
	for i := range 5 {
		id := session.ID(fmt.Sprintf("p%d", i))
		create(t, s, id, session.Gone)
		must(t, s.AddVerdicts(ctx, []Verdict{{Session: id}, {Session: id}}))
	}
	for range 2 { // however many verdicts they have, one goes at a time
		if n, err := s.prune(ctx, 8, 1); err != nil || n != 1 {
			t.Errorf("pruned %d, %v", n, err)
		}
	}
	if n, err := s.Prune(ctx); err != nil || n != 1 {
		t.Errorf("pruned %d, %v", n, err)
	}
	list, err := s.Sessions(ctx, Filter{})
	must(t, err)
	got := ""
	for _, one := range list {
		got += string(one.ID) + " "
	}
	if got != "p4 p3 p2 owed live " {
		t.Error(got)
	}
	var rows int
	must(t, s.read.QueryRow(`SELECT count(*) FROM verdicts`).Scan(&rows))
	if rows != 6 {
		t.Errorf("%d verdicts left", rows)
	}
	if n, err := s.Prune(ctx); err != nil || n != 0 {
		t.Errorf("pruned %d more, %v", n, err)
	}
}

// Opening prunes a few, so that it stays fast however much is owed.
func TestOpenPrunesALittle(t *testing.T) {
	dir := stateDir(t)
	s := openTest(t, dir, Options{})
	for i := range 20 {
		create(t, s, session.ID(fmt.Sprintf("p%d", i)), session.Gone)
	}
	s = openTest(t, dir, Options{Keep: Retention{Sessions: 1}})
	if list, err := s.Sessions(ctx, Filter{}); err != nil || len(list) != 12 {
		t.Errorf("%d left, %v", len(list), err)
	}
}

func TestReopenKeepsEverything(t *testing.T) {
	dir := stateDir(t)
	s, err := Open(ctx, dir, Options{})
	must(t, err)
	create(t, s, "one", session.Running, Undo{Owner: "node"})
	want := get(t, s, "one")
	must(t, s.Close())
	again := openTest(t, dir, Options{})
	if diff := cmp.Diff(want, get(t, again, "one")); diff != "" {
		t.Error(diff)
	}
	if p, err := again.Pending(ctx); err != nil || len(p) != 1 {
		t.Errorf("%v, %v", p, err)
	}
}

func TestModes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "odd ?#%20'name")
	s := openTest(t, dir, Options{})
	create(t, s, "one", session.Running)
	if s.Path() != filepath.Join(dir, FileName) {
		t.Error(s.Path())
	}
	for name, want := range map[string]os.FileMode{"": 0o700 | os.ModeDir, FileName: 0o600, FileName + "-wal": 0o600, FileName + "-shm": 0o600} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode() != want {
			t.Errorf("%q: %v, %v", name, info, err)
		}
	}
	// A file that somebody opened to others is closed again.
	dir = stateDir(t)
	must(t, os.Mkdir(dir, 0o700))
	must(t, os.WriteFile(filepath.Join(dir, FileName), nil, 0o644))
	openTest(t, dir, Options{})
	if info, err := os.Stat(filepath.Join(dir, FileName)); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

func TestManyAtOnce(t *testing.T) {
	dir := stateDir(t)
	stores := []*Store{openTest(t, dir, Options{}), openTest(t, dir, Options{})} // as two processes
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			s := stores[i%2]
			id := session.ID(fmt.Sprintf("s%d", i))
			if err := s.CreateSession(ctx, Session{ID: id, State: session.Staging}, []Undo{{Owner: "node"}}); err != nil {
				t.Error(err)
			}
			for range 10 {
				err := s.AddVerdicts(ctx, []Verdict{{Session: id, Outcome: api.Outcome{Allowed: true}}, {Session: id}})
				if _, lerr := s.Sessions(ctx, Filter{Which: Live}); err != nil || lerr != nil {
					t.Error(err, lerr)
				}
			}
			for _, to := range []session.State{session.Stopping, session.Gone} {
				if err := errors.Join(s.UndoAllDone(ctx, id), s.MoveSession(ctx, id, to, nil)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	list, err := stores[0].Sessions(ctx, Filter{Which: Past})
	must(t, err)
	if len(list) != 8 {
		t.Errorf("%d sessions", len(list))
	}
	for _, one := range list {
		if one.State != session.Gone || one.Allowed != 10 || one.Denied != 10 {
			t.Errorf("%+v", one)
		}
	}
}

// Of all who move a session at once, one does.
func TestOneMoveWins(t *testing.T) {
	s := openTest(t, "", Options{})
	create(t, s, "one", session.Running)
	won := make(chan session.State, 8)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			err := s.MoveSession(ctx, "one", session.Stopping, nil)
			var bad *session.MoveError
			if err == nil {
				won <- session.Stopping
			} else if !errors.As(err, &bad) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if len(won) != 1 {
		t.Errorf("%d moved it", len(won))
	}
}

func TestCancelledCallChangesNothing(t *testing.T) {
	s := openTest(t, "", Options{})
	dead, cancel := context.WithCancel(ctx)
	cancel()
	if err := s.CreateSession(dead, Session{ID: "one", State: session.Asked}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	create(t, s, "one", session.Asked) // its connection is still good
}

// The promise of the journal rests on these.
func TestEveryWriteIsSynchronisedAndChecked(t *testing.T) {
	s := openTest(t, "", Options{})
	for pragma, want := range map[string]string{"synchronous": "2", "journal_mode": "wal", "foreign_keys": "1", "busy_timeout": "5000"} {
		var got string
		must(t, s.write.QueryRow("PRAGMA "+pragma).Scan(&got))
		if got != want {
			t.Errorf("%s is %s, want %s", pragma, got, want)
		}
	}
	if _, err := s.write.Exec(`INSERT INTO journal VALUES ('none', 1, '', '', '', '', '', NULL)`); err == nil || !strings.Contains(err.Error(), "FOREIGN KEY") {
		t.Errorf("undo without a session: %v", err)
	}
	if _, err := s.read.Exec(`DELETE FROM sessions`); err == nil {
		t.Error("a reader wrote")
	}
}

func BenchmarkOpen(b *testing.B) {
	dir := stateDir(b)
	s, err := Open(ctx, dir, Options{})
	must(b, err)
	for i := range 1000 {
		create(b, s, session.ID(fmt.Sprintf("p%d", i)), session.Gone, nil...)
	}
	must(b, s.Close())
	for b.Loop() {
		s, err := Open(ctx, dir, Options{})
		must(b, err)
		b.StopTimer()
		must(b, s.Close())
		b.StartTimer()
	}
}

func BenchmarkStage(b *testing.B) {
	s := openTest(b, "", Options{})
	undo := make([]Undo, 12)
	for b.Loop() {
		must(b, s.CreateSession(ctx, Session{ID: session.New(), State: session.Staging}, undo))
	}
}

// Of a session that asks without end the newest verdicts are kept, and all are
// counted.
func TestVerdictsOfOneSessionAreBounded(t *testing.T) {
	s := openTest(t, "", Options{Keep: Retention{Verdicts: 40}})
	create(t, s, "loud", session.Running)
	create(t, s, "quiet", session.Running)
	must(t, s.AddVerdicts(ctx, []Verdict{{Session: "quiet", Outcome: api.Outcome{ID: "q"}}}))
	n := 0
	for _, size := range []int{1, 7, 40, 1, 1, 33, 100, 1} {
		var batch []Verdict
		for range size {
			n++
			batch = append(batch, Verdict{Session: "loud", Outcome: api.Outcome{ID: fmt.Sprint(n), Allowed: n%4 == 0}})
		}
		must(t, s.AddVerdicts(ctx, batch))
		got, err := s.Verdicts(ctx, "loud", 0)
		must(t, err)
		if len(got) < min(n, 40) || len(got) > 42 {
			t.Errorf("after %d: %d are kept", n, len(got))
		}
		for i, v := range got {
			if v.ID != fmt.Sprint(n-len(got)+1+i) {
				t.Fatalf("after %d: %s is at %d of %d", n, v.ID, i, len(got))
			}
		}
		if gone, err := s.Forgotten(ctx, "loud"); err != nil || gone != n-len(got) {
			t.Errorf("after %d: %d forgotten, %v", n, gone, err)
		}
	}
	must(t, s.CountDenied(ctx, map[session.ID]int{"loud": 5, "none": 1}))
	must(t, s.CountDenied(ctx, nil))
	if got := get(t, s, "loud"); got.Allowed+got.Denied != n+5 || got.Allowed != n/4 {
		t.Errorf("counted %d and %d of %d", got.Allowed, got.Denied, n)
	}
	if gone, err := s.Forgotten(ctx, "quiet"); err != nil || gone != 0 {
		t.Errorf("of the quiet one %d are forgotten, %v", gone, err)
	}
	var missing *NotFoundError
	if _, err := s.Forgotten(ctx, "none"); !errors.As(err, &missing) {
		t.Errorf("of none: %v", err)
	}
}

// What was allowed and failed later says so, whether it fails before or after
// it is written down, and is counted once.
func TestFailuresJoinTheirVerdicts(t *testing.T) {
	s := openTest(t, "", Options{})
	create(t, s, "one", session.Running)
	create(t, s, "two", session.Running)
	v := func(in session.ID, id, failure string, again bool) Verdict {
		return Verdict{Session: in, Outcome: api.Outcome{ID: id, Allowed: true, Host: "h", Time: start, Failure: failure}, Again: again}
	}
	must(t, s.AddVerdicts(ctx, []Verdict{v("one", "a", "", false), v("one", "b", "", false), v("one", "a", "refused", true), v("one", "c", "no such name", false), v("two", "b", "", false)}))
	must(t, s.AddVerdicts(ctx, []Verdict{v("one", "b", "late", true), v("one", "x", "of nothing", true)}))
	got, err := s.Verdicts(ctx, "one", 0)
	must(t, err)
	if diff := cmp.Diff([]Verdict{v("one", "a", "refused", false), v("one", "b", "late", false), v("one", "c", "no such name", false)}, got); diff != "" {
		t.Error(diff)
	}
	if other, err := s.Verdicts(ctx, "two", 0); err != nil || other[0].Failure != "" {
		t.Errorf("of the other session: %+v, %v", other, err)
	}
	if row := get(t, s, "one"); row.Allowed != 3 {
		t.Errorf("counted %d", row.Allowed)
	}
}
