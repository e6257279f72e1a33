package sandbox

import "strings"

// A CoreHandler is the program of the host to which the kernel hands the memory of
// what crashes, also of what crashes inside. At most one of the two is set; where
// neither is, it writes a file, which no sandbox allows.
type CoreHandler struct {
	// Pipe is what the kernel runs, as root, unless the limit of core files is 1.
	Pipe string
	// Socket is the path at which such a program listens. The kernel sends all of
	// it there whatever the limit, of 0 and 1 as well.
	Socket string
}

// CoreHandlerOf reads a core_pattern. Those with a socket are of Linux 6.16: "@PATH"
// sends at once, "@@PATH" asks first. To an older kernel they name a file.
func CoreHandlerOf(pattern string) CoreHandler {
	pattern = strings.TrimSpace(pattern)
	if program, ok := strings.CutPrefix(pattern, "|"); ok {
		return CoreHandler{Pipe: program}
	}
	if path, ok := strings.CutPrefix(pattern, "@"); ok {
		if path = strings.TrimPrefix(path, "@"); strings.HasPrefix(path, "/") {
			return CoreHandler{Socket: path}
		}
	}
	return CoreHandler{}
}

// CorePattern is where the kernel says it.
const CorePattern = "/proc/sys/kernel/core_pattern"

// CrashFacts say what a sandbox cannot keep from a handler.
func (h CoreHandler) CrashFacts() []Fact {
	if h.Socket == "" {
		return nil
	}
	return []Fact{{Name: "crashes", Strength: Weaker,
		Detail: "what crashes is sent with its memory to the program of the host that listens at " + h.Socket + " (core_pattern): the kernel asks no limit before"}}
}
