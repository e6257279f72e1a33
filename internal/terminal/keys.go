package terminal

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// Keys finds a sequence of keys in what a person types, for example that with
// which they leave a session. It knows the keys as bytes and as the longer
// spellings that programs may have asked the terminal for: kitty's keyboard
// protocol and xterm's modifyOtherKeys.
type Keys struct {
	keys []key
	at   int    // how many of them were typed
	held []byte // what was typed since the first of them
}

// key is one printable ASCII character, perhaps with Ctrl.
type key struct {
	char byte // lower case with Ctrl
	ctrl bool
}

// ParseKeys reads keys as they are written in settings: "ctrl-],d". The empty
// word means none, which nothing matches.
func ParseKeys(s string) (*Keys, error) {
	k := &Keys{}
	if s == "" {
		return k, nil
	}
	for _, word := range strings.Split(s, ",") {
		name, ctrl := strings.CutPrefix(strings.ToLower(word), "ctrl-")
		if !ctrl {
			name = word
		}
		if len(name) != 1 || name[0] <= ' ' || name[0] >= 0x7f || ctrl && !hasControl(name[0]) {
			return nil, fmt.Errorf("key %q is neither one character nor ctrl- and a letter or one of @[\\]^_", word)
		}
		k.keys = append(k.keys, key{char: name[0], ctrl: ctrl})
	}
	return k, nil
}

func hasControl(c byte) bool {
	return c >= 'a' && c <= 'z' || strings.IndexByte("@[\\]^_", c) >= 0
}

// Feed takes what was typed and returns what of it is for the session. Once
// all keys were typed it reports found, and what came after them is dropped.
// Keys that may still become the sequence are held: see Release.
func (k *Keys) Feed(p []byte) (pass []byte, found bool) {
	if len(k.keys) == 0 {
		return p, false
	}
	var ps parser
	start := 0
	for i, b := range p {
		if ps.next(b) == unfinished {
			continue
		}
		out, done := k.token(p[start : i+1])
		pass = append(pass, out...)
		if done {
			return pass, true
		}
		start = i + 1
	}
	if start < len(p) { // a lone ESC is a key; the rest of a sequence follows
		pass = append(append(pass, k.Release()...), p[start:]...)
	}
	return pass, false
}

func (k *Keys) token(t []byte) (pass []byte, found bool) {
	is, release := k.keys[k.at].matches(t)
	switch {
	case is:
		k.held = append(k.held, t...)
		if k.at++; k.at == len(k.keys) {
			k.at, k.held = 0, nil
			return nil, true
		}
		return nil, false
	case release && k.at > 0:
		k.held = append(k.held, t...)
		return nil, false
	case k.at > 0:
		pass = k.Release()
		more, found := k.token(t)
		return append(pass, more...), found
	}
	return t, false
}

// Holding reports whether something is held.
func (k *Keys) Holding() bool { return len(k.held) > 0 }

// Release gives what is held to the session: the person was not leaving.
func (k *Keys) Release() []byte {
	held := k.held
	k.at, k.held = 0, nil
	return held
}

// matches reports whether t is this key pressed, or any key let go.
func (k key) matches(t []byte) (is, release bool) {
	if len(t) == 1 {
		want := k.char
		if k.ctrl {
			want &= 0x1f
		}
		return t[0] == want, false
	}
	if !bytes.HasPrefix(t, []byte("\x1b[")) {
		return false, false
	}
	code, mods, event := spelled(string(t[2:len(t)-1]), t[len(t)-1])
	if event == 3 {
		return false, true
	}
	const ctrl, locks = 4, 64 | 128
	if mods &^= locks; k.ctrl {
		return code == int(k.char) && mods == ctrl, false
	}
	return code == int(k.char) && mods == 0, false
}

// spelled reads CSI code ; modifiers : event u, and CSI 27 ; modifiers ; code ~.
func spelled(body string, final byte) (code, mods, event int) {
	fields := strings.Split(body, ";")
	at := func(i, j int) int {
		if i >= len(fields) {
			return 0
		}
		parts := strings.Split(fields[i], ":")
		if j >= len(parts) {
			return 0
		}
		n, _ := strconv.Atoi(parts[j])
		return n
	}
	switch {
	case final == 'u':
		return at(0, 0), max(at(1, 0)-1, 0), at(1, 1)
	case final == '~' && at(0, 0) == 27:
		return at(2, 0), max(at(1, 0)-1, 0), 0
	}
	return -1, 0, at(1, 1)
}

// String is the keys as a person reads them.
func (k *Keys) String() string {
	var words []string
	for _, key := range k.keys {
		if key.ctrl {
			words = append(words, "Ctrl-"+strings.ToUpper(string(key.char)))
			continue
		}
		words = append(words, string(key.char))
	}
	return strings.Join(words, " then ")
}
