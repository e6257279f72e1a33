package child

import (
	"bytes"
	"errors"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestProtocolIsTheHelpers compares every number with the helper's own.
func TestProtocolIsTheHelpers(t *testing.T) {
	header, err := os.ReadFile("src/protocol.h")
	if err != nil {
		t.Fatal(err)
	}
	theirs := map[string]int{}
	stagesSeen := 0
	for _, m := range regexp.MustCompile(`(?m)^#define (\w+)\s+(\d+)`).FindAllStringSubmatch(string(header), -1) {
		n, err := strconv.Atoi(m[2])
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(m[1], "STAGE_") {
			stagesSeen++
			if n != stagesSeen {
				t.Errorf("%s is %d, the stages are numbered from 1 without a gap", m[1], n)
			}
			continue
		}
		theirs[m[1]] = n
	}
	if stagesSeen != len(stages)-1 {
		t.Errorf("%d stages there, %d here", stagesSeen, len(stages)-1)
	}
	ours := map[string]int{
		"PROTOCOL_VERSION": protocolVersion,
		"MSG_NAMESPACES":   int(msgNamespaces), "MSG_OPERATIONS": int(msgOperations), "MSG_EXEC": int(msgExec),
		"MSG_SIGNAL": int(msgSignal), "MSG_LISTENER": int(msgListener), "MSG_CONNECT": int(msgConnect), "MSG_ADOPT": int(msgAdopt), "MSG_SPAWNED": int(msgSpawned),
		"MSG_READY": int(msgReady), "MSG_FAILED": int(msgFailed), "MSG_STARTED": int(msgStarted), "MSG_EXITED": int(msgExited),
		"MSG_MADE": int(msgMade), "LIST_LAST": int(listLast), "LIST_MORE": int(listMore), "LIST_TELL": int(listTell),
		"EXEC_TERMINAL": int(execTerminal), "EXEC_PROBES": int(execProbes), "EXEC_BARE": int(execBare), "EXEC_SETTLED": int(execSettled),
		"OP_END": int(opEnd), "OP_ROOT": int(Root), "OP_DIR": int(Dir), "OP_FILE": int(File), "OP_LINK": int(Link),
		"OP_BIND": int(Bind), "OP_TMPFS": int(Tmpfs), "OP_PROC": int(Proc), "OP_DEVPTS": int(Devpts), "OP_TEXT": int(Text),
		"OP_POOL": int(Pool), "OP_PIVOT": int(Pivot), "OP_ATTRIBUTES": int(Attributes), "OP_LOOPBACK": int(Loopback),
		"OP_LISTEN": int(Listen), "OP_HOSTNAME": int(Hostname), "OP_RLIMIT": int(Rlimit), "OP_WRITE": int(Write),
		"OP_RULESET": int(Ruleset), "OP_RULE": int(Rule), "OP_RESTRICT": int(Restrict), "OP_KEEP": int(Keep),
		"OP_SEAL": int(Seal), "OP_FILTER": int(Filter), "OP_FILES": int(Files), "OP_HERE": int(Here), "OP_TITLE": int(Title), "OP_BOUND": int(Bound),
		"FLAG_OPTIONAL": int(Optional), "FLAG_MAKE": int(Make), "FLAG_INSIDE": int(Inside), "FLAG_STRICT": int(Strict),
		"FLAG_SINGLE": int(Single), "FLAG_IFTHERE": int(IfThere), "FLAG_LINK": int(TheLink), "FLAG_NOTIFY": int(Notify), "FLAG_POOL": int(InPool),
		"READY_LISTENER": int(readyListener), "READY_NOTIFIER": int(readyNotifier),
		"ARG_NUMBER": int(argNumber), "ARG_DATA": int(argData), "ARG_RESULT": int(argResult), "ARG_BUFFER": int(argBuffer),
		"PROBE_BUFFER": 4096, "MAX_PROBES": MaxProbes,
	}
	if diff := cmp.Diff(ours, theirs); diff != "" {
		t.Errorf("(-here +there):\n%s", diff)
	}
}

func TestStageErrors(t *testing.T) {
	for _, c := range []struct {
		err  *StageError
		want string
		hint string
	}{
		{stageError(15, int32(syscall.ENOENT), "/x"), "mounting /x: no such file or directory", ""},
		{stageError(2, int32(syscall.ENOSPC), ""), "making a user namespace: no space left on device", "max_user_namespaces"},
		{stageError(3, int32(syscall.EPERM), ""), "making a mount namespace: operation not permitted", "doctor"},
		{stageError(13, int32(syscall.EMLINK), "/f"), "opening /f: too many links", "hard link"},
		{stageError(15, int32(syscall.ELOOP), "/f"), "mounting /f: too many levels of symbolic links", "symbolic link"},
		{stageError(1, int32(syscall.ETOOMANYREFS), ""), "speaking with the sandbox helper: too many references: cannot splice", "open files under way"},
		{stageError(99, int32(syscall.EPERM), ""), "stage 99: operation not permitted", ""},
		{stageError(-1, int32(syscall.EPERM), ""), "stage -1: operation not permitted", ""},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
		if h := c.err.Hint(); c.hint == "" && h != "" || !strings.Contains(h, c.hint) {
			t.Errorf("%v: hint %q, want one with %q", c.err, h, c.hint)
		}
		if !errors.Is(c.err, c.err.Errno) {
			t.Errorf("%v hides its errno", c.err)
		}
	}
}

func TestDecode(t *testing.T) {
	sent := message{kind: msgFailed, tag: 7, a: 15, b: -1, c: 3, operand: "/a b"}
	got, err := decode(append(sent.encode(), sent.operand...))
	if err != nil || got != sent {
		t.Errorf("got %+v, %v", got, err)
	}
	for name, packet := range map[string][]byte{
		"short":         make([]byte, messageSize-1),
		"other version": append([]byte{9}, make([]byte, messageSize)...),
	} {
		if m, err := decode(packet); err == nil {
			t.Errorf("%s: accepted as %+v", name, m)
		}
	}
}

// FuzzFindings: what comes back from inside is foreign. It never panics, and
// nothing but whole findings counts.
func FuzzFindings(f *testing.F) {
	whole := append([]byte{5, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0}, "ok"...)
	for _, seed := range [][]byte{nil, whole, append(whole, whole...), whole[:17], bytes.Repeat([]byte{0xff}, 64)} {
		f.Add(seed, 1)
	}
	f.Fuzz(func(t *testing.T, raw []byte, want int) {
		found, err := readFindings(bytes.NewReader(raw), want)
		if err == nil && len(found) != want {
			t.Errorf("%d findings accepted for %d", len(found), want)
		}
		size := 0
		for _, one := range found {
			size += 16 + len(one.Data)
			if one.Errno != 0 && one.Result != -1 {
				t.Errorf("both a result and an errno: %+v", one)
			}
		}
		if size > len(raw) {
			t.Errorf("%d bytes of findings from %d", size, len(raw))
		}
	})
}

func FuzzDecode(f *testing.F) {
	f.Add(message{kind: msgReady}.encode())
	f.Add(append(message{kind: msgFailed, a: 1, b: 2}.encode(), "/x"...))
	f.Add([]byte("short"))
	f.Fuzz(func(t *testing.T, packet []byte) {
		m, err := decode(packet)
		if err == nil && !bytes.Equal(append(m.encode(), m.operand...), packet) {
			t.Errorf("accepted %x does not come round", packet)
		}
	})
}

func TestTooManyProbes(t *testing.T) {
	if _, err := encodeProbes(make([]Probe, MaxProbes+1)); err == nil {
		t.Error("accepted")
	}
}
