package gitpush

import (
	"bytes"
	"fmt"
	"strings"
)

// Types of bodies.
const (
	TypeAdvertisement = "application/x-git-receive-pack-advertisement"
	TypeRequest       = "application/x-git-receive-pack-request"
	TypeResult        = "application/x-git-receive-pack-result"
)

// What a packet of each band may hold.
const (
	roomOfBand    = 1000 - 5
	roomOfBand64k = maxPacket - 5
)

// CanBeTold reports whether the client wants to be told what became of its
// commands. One that does not can be answered by a status only.
func (r *Request) CanBeTold() bool { return r.report && len(r.Commands) > 0 }

// Refusal is the server's answer in which every command has failed, each for
// the reason that why returns, and text is said beside it. git shows the text
// line by line behind "remote: ", and each reason behind its reference.
func (r *Request) Refusal(text string, why func(Command) string) []byte {
	var report bytes.Buffer
	packet(&report, "unpack ok\n")
	for _, c := range r.Commands {
		packet(&report, fmt.Sprintf("ng %s %s\n", c.Ref[:min(len(c.Ref), 1024)], oneLine(why(c), 300)))
	}
	report.WriteString("0000")
	room := roomOfBand64k
	if !r.sideBand64k {
		room = roomOfBand
	}
	if !r.sideBand64k && !r.sideBand {
		return report.Bytes()
	}
	var out bytes.Buffer
	band(&out, 2, []byte(text), room)
	band(&out, 1, report.Bytes(), room)
	out.WriteString("0000")
	return out.Bytes()
}

// oneLine keeps what is said of a reference one line of plain ASCII.
func oneLine(s string, most int) string {
	s = strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' {
			return '?'
		}
		return c
	}, s)
	return s[:min(len(s), most)]
}

func packet(to *bytes.Buffer, payload string) {
	fmt.Fprintf(to, "%04x%s", 4+len(payload), payload)
}

func band(to *bytes.Buffer, number byte, payload []byte, room int) {
	for len(payload) > 0 {
		n := min(room, len(payload))
		fmt.Fprintf(to, "%04x%c%s", 5+n, number, payload[:n])
		payload = payload[n:]
	}
}
