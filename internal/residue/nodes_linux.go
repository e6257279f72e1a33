package residue

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/mojoup/mojoup-node/internal/client"
	"github.com/mojoup/mojoup-node/internal/config"
	"github.com/mojoup/mojoup-node/internal/store"
	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// A node is one with what it says or has written down.
type node struct {
	Node
	own      bool
	carries  map[string]bool // sessions that live in it
	knows    map[string]bool // sessions of its journal
	remnants []store.Remnant
}

// findNodes finds this user's nodes by the register and by their sockets, and
// asks those that live.
func (l *look) findNodes(ctx context.Context) {
	l.parents = parents()
	places, err := l.o.Paths.Places()
	if err != nil {
		l.unknown(err)
	}
	if l.o.OwnOnly {
		places = places[:1]
	}
	for i, p := range places {
		n := &node{Node: Node{State: p.State, Runtime: p.Runtime}, own: i == 0, carries: map[string]bool{}, knows: map[string]bool{}}
		l.nodes = append(l.nodes, n)
		l.read(ctx, n)
	}
	var also []string
	if !l.o.OwnOnly {
		also = listening()
	}
	if system := l.o.Paths.OrSystem; system != "" { // it may carry sessions of this user
		if _, err := os.Lstat(system); err == nil {
			also = append(also, filepath.Dir(system))
		}
	}
	for _, dir := range also {
		if !slices.ContainsFunc(l.nodes, func(n *node) bool { return n.Runtime == dir }) {
			l.nodes = append(l.nodes, &node{Node: Node{Runtime: dir}, carries: map[string]bool{}, knows: map[string]bool{}})
		}
	}
	for _, n := range l.nodes {
		l.ask(ctx, n)
	}
}

// read reads a node's journal.
func (l *look) read(ctx context.Context, n *node) {
	var err error
	if n.remnants, err = store.Remnants(ctx, n.State); err != nil {
		l.unknown(err)
	}
	for _, r := range n.remnants {
		n.knows[string(r.Session)] = true
	}
}

// ask finds out whether a node lives and which sessions it carries. One that
// begins or ends does not answer, but has its lock: then it carries whatever
// its journal calls live.
func (l *look) ask(ctx context.Context, n *node) {
	paths := config.Paths{Runtime: n.Runtime}
	status, err := client.New(paths.Socket()).Status(ctx)
	if err == nil {
		n.Alive, n.PID = true, status.Node.PID
		for _, s := range status.Sessions {
			n.carries[s.ID] = true
		}
		return
	}
	holder, lerr := lockHolder(paths.Lock())
	if lerr != nil {
		l.unknown(lerr)
	}
	n.Alive, n.PID = holder > 0, holder
	if holder == 0 && !errors.Is(err, client.ErrNotRunning) {
		// Another user's, whose lock is not to be seen: what descends from it
		// is its.
		n.PID = listener(paths.Socket())
		n.Alive = n.PID > 0
	}
	for _, r := range n.remnants {
		if n.Alive && r.State.Live() {
			n.carries[string(r.Session)] = true
		}
	}
}

// listener is the process that listens on a socket, 0 where nobody says.
func listener(socket string) int {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return 0
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0
	}
	pid := 0
	_ = raw.Control(func(fd uintptr) {
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(cred.Pid)
		}
	})
	return pid
}

// journal adds what a node's sessions have left where they were made. A living
// node tries what it has not undone again by itself; of what it takes for done
// it is checked that it is.
func (l *look) journal(ctx context.Context, n *node) {
	for _, r := range n.remnants {
		if n.carries[string(r.Session)] || n.Alive && len(r.Pending) > 0 {
			continue
		}
		if !n.Alive {
			l.dead(n, r)
		}
		for _, u := range r.Undo {
			l.remains(ctx, n, u)
		}
	}
}

// dead adds what the journal of a dead node says itself.
func (l *look) dead(n *node, r store.Remnant) {
	id := string(r.Session)
	if r.State.Live() {
		l.found(Thing{Kind: KindSession, Session: id, State: n.State, Says: fmt.Sprintf("session %s is called %s, and its node does not live", id, r.State)})
	}
	for _, u := range r.Pending {
		says := fmt.Sprintf("session %s: not known to be undone: %s %s", id, u.Kind, u.Path)
		l.found(Thing{Kind: KindUndo, Session: id, Path: u.Path, State: n.State, Says: strings.TrimSpace(says)})
	}
}

func (l *look) remains(ctx context.Context, n *node, u store.Undo) {
	for name, e := range l.o.Engines {
		w, ok := e.(sandbox.Witness)
		if !ok || u.Owner != "engine:"+name {
			continue
		}
		traces, err := w.Remains(ctx, u.Undo)
		if err != nil {
			l.unknown(err)
		}
		for _, m := range traces {
			if m.InUse || m.PID > 0 && l.descends(m.PID) {
				continue
			}
			t := thing(m)
			t.State = n.State
			l.found(t)
		}
	}
}

// places adds what lies in a dead node's runtime directory. A socket that was
// only seen to be listened at may be anybody's, whatever it is called.
func (l *look) places(n *node) {
	if n.Alive || n.State == "" {
		return
	}
	entries, err := os.ReadDir(n.Runtime)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		l.unknown(fmt.Errorf("looking into a node's runtime directory: %w", err))
	}
	paths := config.Paths{Runtime: n.Runtime}
	for _, e := range entries {
		path := filepath.Join(n.Runtime, e.Name())
		switch {
		case paths.Stays(e.Name()), path == l.o.Paths.Register:
		case e.Type() == fs.ModeSocket:
			l.found(Thing{Kind: KindSocket, Path: path, State: n.State, Says: "the socket " + path + " is there, and its node does not live"})
		default:
			l.found(Thing{Kind: KindFile, Path: path, State: n.State, Says: path + " is there, and its node does not live"})
		}
	}
}

// mounts adds what is mounted in a runtime directory, where no node mounts
// anything that others see.
func (l *look) mounts() {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		l.unknown(fmt.Errorf("looking at what is mounted: %w", err))
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 5 {
			continue
		}
		at := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(f[4])
		for _, n := range l.nodes {
			if strings.HasPrefix(at, n.Runtime+"/") {
				l.found(Thing{Kind: KindMount, Path: at, State: n.State, Says: "something is mounted on " + at})
			}
		}
	}
}

// descends reports whether a process is a living node's or descends from one.
func (l *look) descends(pid int) bool {
	for range 1000 { // the numbers may change meanwhile: never for ever
		if pid <= 1 {
			return false
		}
		if slices.ContainsFunc(l.nodes, func(n *node) bool { return n.Alive && n.PID == pid }) {
			return true
		}
		pid = l.parents[pid]
	}
	return false
}

// parents are every process' parent, see proc_pid_stat(5).
func parents() map[int]int {
	out := map[int]int{}
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		text, err := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		if err != nil {
			continue
		}
		after := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		if len(after) > 1 {
			out[pid], _ = strconv.Atoi(after[1])
		}
	}
	return out
}

// listening are the runtime directories of the nodes that listen in this
// network namespace and belong to this user, or of all where this is root. See
// proc_net_unix in proc(5) for the columns.
func listening() []string {
	const accepts = "00010000"
	text, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		return nil
	}
	dirs := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) != 8 || f[3] != accepts || filepath.Base(f[7]) != config.SocketName || !filepath.IsAbs(f[7]) {
			continue
		}
		info, err := os.Lstat(f[7])
		if err != nil {
			continue
		}
		if s, ok := info.Sys().(*syscall.Stat_t); ok && (os.Geteuid() == 0 || int(s.Uid) == os.Geteuid()) {
			dirs[filepath.Dir(f[7])] = true
		}
	}
	return slices.Sorted(maps.Keys(dirs))
}

// lockHolder is the process that has the lock of a file, 0 for none, by the
// kernel's own list: to try the lock would keep a node from starting.
func lockHolder(file string) (int, error) {
	info, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("looking whether a node lives: %w", err)
	}
	s, ok := info.Sys().(*syscall.Stat_t)
	list, err := os.ReadFile("/proc/locks")
	if err != nil || !ok {
		return 0, fmt.Errorf("looking whether a node lives: %w", err)
	}
	inode := ":" + strconv.FormatUint(s.Ino, 10)
	for line := range strings.Lines(string(list)) {
		f := strings.Fields(line) // 1: FLOCK ADVISORY WRITE 4711 08:01:1234 0 EOF
		if len(f) > 5 && f[1] == "FLOCK" && f[3] == "WRITE" && strings.HasSuffix(f[5], inode) {
			return strconv.Atoi(f[4])
		}
	}
	return 0, nil
}
