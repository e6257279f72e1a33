package fault

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/mojoup/mojoup-node/pkg/console/api"
	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// spoken is an error of a part that has something to say.
type spoken struct {
	hint, code string
	exit       int
}

func (e *spoken) Error() string { return "the lid is shut" }
func (e *spoken) Hint() string  { return e.hint }
func (e *spoken) Code() string  { return e.code }
func (e *spoken) Exit() int     { return e.exit }

func TestAs(t *testing.T) {
	tests := []struct {
		name string
		err  error
		want Fault
	}{
		{"Plain", errors.New("no such thing"), Fault{Code: "internal", Sentence: "no such thing", Exit: 3}},
		{"Wrapped", fmt.Errorf("opening the box: %w", &spoken{"lift it", "lid", 2}), Fault{Code: "lid", Sentence: "opening the box: the lid is shut", Hint: "lift it", Exit: 2}},
		{"NothingMoreToSay", &spoken{}, Fault{Code: "internal", Sentence: "the lid is shut", Exit: 3}},
		{"ExitOutOfRange", &spoken{exit: 256}, Fault{Code: "internal", Sentence: "the lid is shut", Exit: 3}},
		{"NotFound", fmt.Errorf("starting: %w", &sandbox.ExecError{Program: "nope", Code: 127, Err: fs.ErrNotExist}), Fault{Code: "exec", Sentence: "starting: nope: file does not exist", Exit: 127}},
		{"NotExecutable", &sandbox.ExecError{Program: "x", Code: 126, Err: fs.ErrPermission}, Fault{Code: "exec", Sentence: "x: permission denied", Exit: 126}},
		{"Cancelled", fmt.Errorf("waiting: %w", context.Canceled), Fault{Code: "cancelled", Sentence: "waiting: context canceled", Exit: 3}},
		{"Timeout", context.DeadlineExceeded, Fault{Code: "timeout", Sentence: "context deadline exceeded", Exit: 3}},
		{"WrappedFault", fmt.Errorf("asking: %w", CannotRun("no room").WithHint("stop one")), Fault{Code: "cannot-run", Sentence: "asking: no room", Hint: "stop one", Exit: 125}},
		{"Problem", &api.Problem{Code: "full", Sentence: "no room", Hint: "stop one", Exit: 125}, Fault{Code: "full", Sentence: "no room", Hint: "stop one", Exit: 125}},
		{"ProblemWithoutExit", &api.Problem{Sentence: "no room"}, Fault{Code: "internal", Sentence: "no room", Exit: 3}},
		{"Joined", errors.Join(errors.New("one"), &spoken{hint: "lift it"}), Fault{Code: "internal", Sentence: "one the lid is shut", Hint: "lift it", Exit: 3}},
		{"ControlCharacters", errors.New("bad \x1b[2Jname\r\nnext \x9b\xff"), Fault{Code: "internal", Sentence: "bad \uFFFD[2Jname  next \uFFFD", Exit: 3}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := As(tt.err)
			if diff := cmp.Diff(tt.want, *got, cmpopts.IgnoreFields(Fault{}, "Err")); diff != "" {
				t.Error(diff)
			}
			if !errors.Is(got, tt.err) {
				t.Error("the error behind it is lost")
			}
		})
	}
	if As(nil) != nil {
		t.Error("no error is no fault")
	}
}

func TestConstructors(t *testing.T) {
	for want, make := range map[int]func(string, ...any) *Fault{
		1: Negative, 2: Usage, 3: Unknown, 125: CannotRun,
	} {
		f := make("reading %s: %w", "it", &spoken{hint: "lift it"})
		if f.Exit != want || f.Sentence != "reading it: the lid is shut" || f.Hint != "lift it" || f.Code == "" {
			t.Errorf("%d: %+v", want, f)
		}
		var inner *spoken
		if !errors.As(f, &inner) {
			t.Errorf("%d: the error behind it is lost", want)
		}
		if f := make("plain"); f.Err != nil || f.Hint != "" {
			t.Errorf("%d: %+v", want, f)
		}
	}
	f := Usage("wrong").WithHint("try %s", "this").WithCode("odd").WithExit(125)
	if diff := cmp.Diff(&Fault{Code: "odd", Sentence: "wrong", Hint: "try this", Exit: 125}, f); diff != "" {
		t.Error(diff)
	}
}

func TestWithDoesNotChangeTheOriginal(t *testing.T) {
	f := Usage("wrong")
	f.WithHint("h")
	f.WithCode("c")
	f.WithExit(9)
	if diff := cmp.Diff(Usage("wrong"), f); diff != "" {
		t.Error(diff)
	}
}

// What nobody wrote for people may hold a key or a path: it stays inside.
func TestProblemHidesForeignText(t *testing.T) {
	for _, cause := range []error{errors.New("odd"), context.Canceled, context.DeadlineExceeded} {
		p := As(fmt.Errorf("dialling canary-7261: %w", cause)).Problem()
		b, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(b), "canary") || p.Sentence == "" || p.Exit != 3 {
			t.Errorf("told to the client: %s", b)
		}
	}
}

func TestProblemRoundTrip(t *testing.T) {
	for _, f := range []*Fault{
		Usage("wrong flag").WithHint("see --help"),
		CannotRun("no room").WithCode("full"),
		As(fmt.Errorf("opening: %w", &spoken{"lift it", "lid", 1})),
	} {
		got := FromProblem(f.Problem())
		if diff := cmp.Diff(f, got, cmpopts.IgnoreFields(Fault{}, "Err")); diff != "" {
			t.Error(diff)
		}
	}
	if FromProblem(nil) != nil {
		t.Error("no problem is no fault")
	}
	if f := FromProblem(&api.Problem{Exit: 300, Sentence: "a\x1b"}); f.Exit != 3 || f.Sentence != "a\uFFFD" {
		t.Errorf("%+v", f)
	}
	if f := FromProblem(&api.Problem{}); f.Sentence == "" || f.Exit == 0 || f.Code == "" {
		t.Errorf("%+v", f)
	}
}
