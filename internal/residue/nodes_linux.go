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
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/mojoup/mojoup-node/internal/client"
	"github.com/mojoup/mojoup-node/internal/config"
	"github.com/mojoup/mojoup-node/internal/store"
	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/sandbox/native"
)

// A node is one with what it says or has written down.
type node struct {
	Node
	own      bool
	carries  owners          // sessions and spares that live in it
	knows    map[string]bool // those of its journal
	remnants []store.Remnant
	spares   []store.Spare
}

func newNode(at Node) *node { return &node{Node: at, carries: owners{}, knows: map[string]bool{}} }

// findNodes finds this user's nodes by the register and by their sockets, and
// asks those that live.
func (l *look) findNodes(ctx context.Context) {
	l.parents = parents()
	for i, p := range l.known() {
		n := newNode(Node{State: p.State, Runtime: p.Runtime})
		n.own = i == 0
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
			l.nodes = append(l.nodes, newNode(Node{Runtime: dir}))
		}
	}
	var asking sync.WaitGroup // whoever does not answer keeps the others up for no longer
	for _, n := range l.nodes {
		asking.Go(func() { l.ask(ctx, n) })
	}
	asking.Wait()
}

// known are the places where nodes of this user have their things: the own one
// first, those of the register, and what a system node keeps for this user.
func (l *look) known() []config.Place {
	places, err := l.o.Paths.Places()
	if err != nil {
		l.unknown(err)
	}
	if l.o.OwnOnly {
		return places[:1]
	}
	if served, ok := l.o.Paths.Served(os.Geteuid()); ok {
		if _, err := os.Lstat(served.State); err == nil {
			places = append(places, served)
		}
	}
	return places
}

// read reads a node's journal.
func (l *look) read(ctx context.Context, n *node) {
	var err error
	if n.remnants, n.spares, err = store.Remnants(ctx, n.State); err != nil {
		l.unknown(err)
	}
	for _, r := range n.remnants {
		n.knows[string(r.Session)] = true
	}
	for _, s := range n.spares {
		n.knows[s.ID] = true
	}
}

// ask finds out whether a node lives and which sessions it carries. One that
// begins or ends does not answer, but has its lock: then it carries whatever
// its journal calls live. The journal of one that lives says which spares it
// keeps.
func (l *look) ask(ctx context.Context, n *node) {
	socket := config.Paths{Runtime: n.Runtime}.Socket()
	var by unix.Ucred
	status, err := client.Over(socket, func(ctx context.Context) (net.Conn, error) {
		conn, err := client.Dial(ctx, socket)
		if err == nil {
			by, err = listenerOf(conn)
		}
		return conn, err
	}).Status(ctx)
	switch trusted := word(int(by.Uid)) == anybody; {
	case err == nil && trusted:
		n.Alive, n.PID = true, status.Node.PID
		for _, s := range status.Sessions {
			// A system node passes on to root what everybody's part of it says.
			whose := anybody
			if status.Node.System && os.Geteuid() == 0 {
				whose = word(s.UID)
			}
			n.carries.add(s.ID, whose)
		}
	case err == nil:
		n.Alive, n.PID = true, int(by.Pid)
		for _, s := range status.Sessions {
			n.carries.add(s.ID, word(int(by.Uid)))
		}
	default:
		l.silent(n, err, by)
	}
	for _, s := range n.spares {
		if n.Alive {
			n.carries.add(s.ID, anybody)
		}
	}
}

// silent finds out whether a node lives that gives no answer.
func (l *look) silent(n *node, err error, by unix.Ucred) {
	if n.State != "" { // else the lock may be anybody's file
		holder, lerr := lockHolder(config.Paths{Runtime: n.Runtime}.Lock())
		if lerr != nil {
			l.unknown(lerr)
		}
		n.Alive, n.PID = holder > 0, holder
	}
	if !n.Alive && !errors.Is(err, client.ErrNotRunning) {
		// What descends from whoever listens there is its.
		n.PID = int(by.Pid)
		n.Alive = n.PID > 0
	}
	for _, r := range n.remnants {
		if n.Alive && r.State.Live() {
			n.carries.add(string(r.Session), anybody)
		}
	}
}

// listenerOf is who began to listen at the other end of a connection.
func listenerOf(conn net.Conn) (by unix.Ucred, err error) {
	uc, ok := conn.(*net.UnixConn)
	if !ok {
		return by, errors.New("BUG: not a Unix socket")
	}
	raw, err := uc.SyscallConn()
	if err != nil {
		return by, err
	}
	cerr := raw.Control(func(fd uintptr) {
		var cred *unix.Ucred
		if cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			by = *cred
		}
	})
	return by, errors.Join(err, cerr)
}

// ownerOf is the user of a process, or of a control group's directory, -2 where
// there is none to be known.
func ownerOf(m sandbox.Trace) int {
	if m.PID > 0 {
		return userOf(m.PID)
	}
	info, err := os.Lstat(m.Path)
	if err != nil || m.Kind != sandbox.TraceGroup {
		return -2
	}
	s, _ := info.Sys().(*syscall.Stat_t)
	return int(s.Uid)
}

// userOf is the real user of a process: its directory in /proc may be root's.
func userOf(pid int) int {
	text, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "Uid:" {
			if uid, err := strconv.Atoi(f[1]); err == nil {
				return uid
			}
		}
	}
	return -2
}

// journal adds what a node's sessions have left where they were made. A living
// node tries what it has not undone again by itself; of what it takes for done
// it is checked that it is.
func (l *look) journal(ctx context.Context, n *node) {
	for _, r := range n.remnants {
		if len(n.carries[string(r.Session)]) > 0 || n.Alive && len(r.Pending) > 0 {
			continue
		}
		if !n.Alive {
			l.dead(n, r)
		}
		for _, u := range r.Undo {
			l.remains(ctx, n, u)
		}
	}
	for _, s := range n.spares {
		for _, u := range s.Undo {
			if !n.Alive {
				l.remains(ctx, n, u)
			}
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
	l.unfinished(n)
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

// unfinished adds those people whose part of a dead system node did not end in
// order. What it left is written down in a directory of theirs.
func (l *look) unfinished(n *node) {
	dir := filepath.Join(n.State, config.UnfinishedName)
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		l.unknown(fmt.Errorf("looking whom a system node served: %w", err))
	}
	for _, e := range entries {
		l.found(Thing{Kind: KindUndo, Path: filepath.Join(dir, e.Name()), State: n.State,
			Says: fmt.Sprintf("user %s was served by a part of a system node that did not end in order: what it left is not known to be undone", e.Name())})
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

// mostOfOne is how many sockets of one user are asked: whoever makes more hides
// what is that user's.
const mostOfOne = 16

// listening are the runtime directories of the nodes that listen in this
// network namespace and belong to this user or root, or of all where this is
// root. See proc_net_unix in proc(5) for the columns.
func listening() []string {
	const accepts = "00010000"
	text, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		return nil
	}
	dirs, of := map[string]bool{}, map[uint32]int{}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) != 8 || f[3] != accepts || filepath.Base(f[7]) != config.SocketName || !filepath.IsAbs(f[7]) || dirs[filepath.Dir(f[7])] {
			continue
		}
		info, err := os.Lstat(f[7])
		if err != nil {
			continue
		}
		if s, ok := info.Sys().(*syscall.Stat_t); ok && (os.Geteuid() == 0 || word(int(s.Uid)) == anybody) && of[s.Uid] < mostOfOne {
			of[s.Uid]++
			dirs[filepath.Dir(f[7])] = true
		}
	}
	return slices.Sorted(maps.Keys(dirs))
}

// lockHolder is the process that has the lock of a node's file, 0 for none.
func lockHolder(file string) (int, error) {
	info, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	var holders []native.Holder
	if err == nil {
		holders, err = native.Holders(info)
	}
	if err != nil {
		return 0, fmt.Errorf("looking whether a node lives: %w", err)
	}
	for _, h := range holders {
		if !h.Shared {
			return h.PID, nil
		}
	}
	return 0, nil
}
