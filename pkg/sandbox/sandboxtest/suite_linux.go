package sandboxtest

import (
	"testing"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// Options say what is asked of an engine beyond the contract's common part.
type Options struct {
	// Confines: the engine claims that nothing outside the Spec's mounts and
	// listener can be reached.
	Confines bool
	// Identity is who sessions run as. Nil means the user of the tests, or an
	// ordinary one where that is root.
	Identity *sandbox.Identity
	// Adapt changes the suite's Spec to what the engine needs, for example an
	// image. Nil leaves it as it is.
	Adapt func(t *testing.T, s sandbox.Spec) sandbox.Spec
	// Except names attempts of the escape table that are known not to hold on
	// this engine, each with the reason; with "MainTree/" or "Worktree/" before
	// it in that layout only. A listed one that holds is an error,
	// so that the list cannot outlive its reasons.
	Except map[string]string
	// Without names tests that an engine is known not to pass, each with the
	// reason that its facts give for it. They are not run.
	Without map[string]string
	// Starts is how many sandboxes B34 starts. Zero means 100, or
	// 30 in a plain run.
	Starts int
	// Swaps is how many sandboxes B53 makes while somebody exchanges paths.
	// Zero means 300, or 100 in a plain run.
	Swaps int
	// NoFilters says that nothing inside can set up a filter of system calls of its
	// own, because something beneath the engine refuses that.
	NoFilters bool
	// MakesSources says that whoever mounts for the engine makes what it does not
	// find: an empty directory, wherever a path leads at that moment.
	MakesSources bool
}

// Test runs the whole suite. New is called for each subtest that needs an
// engine of its own.
func Test(t *testing.T, New func(t *testing.T) sandbox.Engine, o Options) {
	s := &suite{newEngine: New, options: o}
	s.group(t, "Exec", []testCase{
		{"ExitCodes", testExitCodes},
		{"Signals", testSignals},
		{"CannotStart", testCannotStart},
		{"ArgvExact", testArgvExact},
		{"EnvironmentExact", testEnvironmentExact},
		{"Directory", testDirectory},
		{"Several", testSeveral},
		{"SignalReachesTheGroup", testSignalGroup},
		{"B68_BackgroundChildKeepsThePipeOpen", testB68},
		{"B70_OrphansAreCollected", testB70},
	})
	s.group(t, "Streams", []testCase{
		{"SeparateBinaryComplete", testStreams},
		{"StdinToEOF", testStdin},
		{"NilIsNothing", testNilStreams},
		{"FilesAreHandedOver", testFileStreams},
		{"SilentStdinDoesNotHoldWait", testSilentStdin},
		{"NothingIsWrittenAfterWait", testNothingAfterWait},
	})
	s.group(t, "Terminal", []testCase{
		{"IsOneOfTheRightSize", testTerminalSize},
		{"CtrlC", testTerminalCtrlC},
		{"ExitCode", testTerminalExit},
		{"Binary", testTerminalOutput},
	})
	s.group(t, "Life", []testCase{
		{"RemoveEndsEverything", testRemoveEndsEverything},
		{"RemoveTwiceAndTogether", testRemoveAgain},
		{"Gone", testGone},
		{"CancelledContexts", testCancelled},
		{"InvalidSpecs", testInvalidSpecs},
		{"UndoAndSweep", testUndoSweep},
		{"CheckTellsTheTruth", testCheck},
	})
	if !o.Confines {
		return
	}
	s.group(t, "Confined", []testCase{
		{"IdentityOwnsFiles", testIdentity},
		{"MountsAreAllThereIs", testMounts},
		{"HalfWayFailureLeavesNothing", testHalfWay},
		{"B05_SelfCheckRefuses", testB05},
		{"B34_ListenerAnswersFromTheFirstInstruction", testB34},
		{"B47_MainTree", testB47MainTree},
		{"B47_LinkedWorktree", testB47Worktree},
		{"B50_PlaceholdersAreInvisibleAndGo", testB50},
		{"B53_SymlinksAreRefused", testB53},
		{"B53_SwapWhilePreparing", testB53Swap},
		{"B55_RenamesAndDevices", testB55},
		{"B55_NestedAndThreaded", testB55Nested},
		{"B90_NoSocketsOfTheHost", testB90},
		{"Protections", testProtections},
		{"D29d_HostsOfTCPRulesByName", testDirect},
		{"LimitsAreWhatIsSaid", testLimits},
		{"KilledNode", testKilledNode},
		{"SweepSparesTheLiving", testSweepSparesTheLiving},
		{"Escapes", testEscapes},
	})
}

type suite struct {
	newEngine func(t *testing.T) sandbox.Engine
	options   Options
}

type testCase struct {
	name string
	run  func(*testing.T, *suite)
}

func (s *suite) group(t *testing.T, name string, cases []testCase) {
	t.Run(name, func(t *testing.T) {
		for _, c := range cases {
			if reason, ok := s.options.Without[c.name]; ok {
				t.Logf("%s is left out: %s", c.name, reason)
				continue
			}
			t.Run(c.name, func(t *testing.T) { c.run(t, s) })
		}
	})
}
