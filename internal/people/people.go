// Package people promises that one node of root's serves several people, and
// that everything which is done on a person's files is done by a process of
// that person's.
//
// A [Broker] is root's: it owns the socket, knows by the kernel who connects,
// and hands the connection, unread, to that person's deputy. A deputy is a whole
// node, this same program run as that person ([Join]); what it may not do alone
// it asks for over a socket pair: a slot among everybody's, and leave to end
// when it has had nothing to do. The broker opens nothing that a person names,
// and takes a deputy for as hostile as the person may be: it can be asked for
// that person's slots only, and what it says of its sessions is shown as that
// person's whatever it says.
//
// Of root's own requests the broker reads the first line, since root may ask
// about everybody: what lives, by id, and an end. The rest root's own deputy
// answers.
package people

import (
	"net/netip"
	"strconv"
	"time"

	"github.com/mojoup/mojoup-node/internal/admission"
	"github.com/mojoup/mojoup-node/pkg/console/api"
)

// Broker and deputy speak in packets of JSON over a SOCK_SEQPACKET pair:
//
//	broker                        deputy
//	hello (who, where, settings) →
//	                             ← ready, or failed (why)
//	connection + descriptor      →                 … any number of times
//	                             ← enter (id, memory)
//	place (id, where in queue)   →                 … as often as it changes
//	in (id), or refused (id)     →
//	                             ← leave (id)      gives up, or gives back
//	                             ← retire (how many connections it has got)
//	retire (yes or no)           →                 yes: there come no more
//	settings (those that take effect at once) →    … whenever they change
//	end (why, or nothing)        →                 end your sessions, then exit
//
// A deputy that is to tidy up only, because no node is to run, answers hello
// with tidied (lines) and exits. Either one takes the end of the pair for the
// other's death: a deputy ends its sessions, a broker frees the slots.
type kind string

const (
	kindHello      kind = "hello"
	kindReady      kind = "ready"
	kindFailed     kind = "failed"
	kindTidied     kind = "tidied"
	kindConnection kind = "connection"
	kindEnter      kind = "enter"
	kindPlace      kind = "place"
	kindIn         kind = "in"
	kindRefused    kind = "refused"
	kindLeave      kind = "leave"
	kindRetire     kind = "retire"
	kindSettings   kind = "settings"
	kindEnd        kind = "end"
)

// message is one packet.
type message struct {
	Kind    kind             `json:"kind"`
	Hello   *Hello           `json:"hello,omitempty"`
	Problem *api.Problem     `json:"problem,omitempty"` // failed, refused, end
	Live    []string         `json:"live,omitempty"`    // settings
	ID      string           `json:"id,omitempty"`
	Memory  int64            `json:"memory,omitempty"`
	Place   *admission.Place `json:"place,omitempty"`
	Count   int              `json:"count,omitempty"` // retire
	Yes     bool             `json:"yes,omitempty"`   // retire
	Did     []string         `json:"did,omitempty"`   // tidied
	Left    []string         `json:"left,omitempty"`
}

// Hello is what a deputy has to know.
type Hello struct {
	Person   Person        `json:"person"`
	State    string        `json:"state"`    // its own directories
	Runtime  string        `json:"runtime"`  //
	Config   string        `json:"config"`   // of the system node; it need not be readable
	Socket   string        `json:"socket"`   // as people know it
	Private  []string      `json:"private"`  // the system node's own directories
	Settings []string      `json:"settings"` // as variables, KEY=VALUE
	Live     []string      `json:"live"`     // those that take effect at once, likewise
	Linger   time.Duration `json:"linger"`
	// Page is the address of the node page, PagePorts where it listens.
	Page      string           `json:"page,omitempty"`
	PagePorts []netip.AddrPort `json:"pagePorts,omitempty"`
	Tidy      bool             `json:"tidy,omitempty"` // only undo what a dead one left
}

// Person is a user of this machine.
type Person struct {
	UID    int    `json:"uid"`
	GID    int    `json:"gid"`
	Groups []int  `json:"groups"` // supplementary ones
	Name   string `json:"name"`   // the number, where no list has a name
	Home   string `json:"home"`   // "" where no list has one

	// peer are the groups that they came with, by the kernel.
	peer []int
}

func (p Person) number() string { return strconv.Itoa(p.UID) }

// ExitLeft is the exit code of a deputy that ended in order and could not undo
// everything: the next one tries again.
const ExitLeft = 1

// mayWait is how many starts of one person may wait: nobody's can keep others
// from the queue.
const mayWait = 100

// packet bounds a message, in bytes.
const packet = 128 << 10
