package secrets

import (
	"bytes"
	"encoding/json"
	"mime"
	"net/url"
	"slices"
	"strings"
)

// MaxBody is how large a body may be in which a key is put. Those are requests
// for tokens and calls, not uploads.
const MaxBody = 1 << 20

// InBody reports whether the body of a request to that place has to be read:
// some binding names a field of it.
func (r *Ring) InBody(host string, port uint16, path string) bool {
	return len(r.bodies(host, port, path)) > 0
}

func (r *Ring) bodies(host string, port uint16, path string) (out []*held) {
	if r == nil {
		return nil
	}
	for _, h := range r.state.Load().held {
		if !h.passes() && len(h.bound.body) > 0 && h.bound.host(host, port) && h.bound.path(path) {
			out = append(out, h)
		}
	}
	return out
}

// SwapBody returns the body that a request over TLS to that place is sent on
// with, and the secrets whose keys it takes along. Only the fields that a
// binding names are looked at: a stand-in anywhere else in a body passes as it
// is, since a transcript may hold it.
func (r *Ring) SwapBody(host string, port uint16, path, contentType string, body []byte) (out []byte, names []string) {
	kind, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return body, nil
	}
	out = body
	for _, h := range r.bodies(host, port, path) {
		key := string(h.value.RevealForTheWire())
		swapped, ok := out, false
		switch {
		case key == "" || h.withdrawn != "": // the session has just ended, or see WithdrawnInBody
		case kind == "application/x-www-form-urlencoded":
			swapped, ok = swapForm(out, h, h.standIn, key)
		case kind == "application/json", strings.HasSuffix(kind, "+json"):
			swapped, ok = swapJSON(out, h, key)
		}
		if ok {
			out, names = swapped, append(names, h.name)
		}
	}
	return out, names
}

// Unswapped names the secrets that SwapBody would put into a body, of which this
// is the beginning, were it not too long for that.
func (r *Ring) Unswapped(host string, port uint16, path, contentType string, begin []byte) (names []string) {
	for _, h := range r.bodies(host, port, path) {
		if asksInBody(h, contentType, begin) {
			names = append(names, h.name)
		}
	}
	return names
}

// WithdrawnInBody is a misuse where such a body asks for a key that was withdrawn.
func (r *Ring) WithdrawnInBody(host string, port uint16, path, contentType string, body []byte) *Misuse {
	for _, h := range r.bodies(host, port, path) {
		if h.withdrawn != "" && asksInBody(h, contentType, body) {
			return &Misuse{Secret: h.name, Withdrawn: true, Reason: "the body holds " + h.what() + " of " + Called(h.name) + h.whichWas()}
		}
	}
	return nil
}

// asksInBody reports whether a body, or its beginning, has the stand-in of h in a
// field where the key goes.
func asksInBody(h *held, contentType string, begin []byte) (found bool) {
	kind, _, _ := mime.ParseMediaType(contentType)
	for _, one := range h.inside() {
		switch {
		case kind == "application/x-www-form-urlencoded":
			_, found = swapForm(begin, h, one, one)
		case kind == "application/json", strings.HasSuffix(kind, "+json"):
			found = bytes.Contains(begin, []byte(one)) && asksInJSON(begin, h, one)
		}
		if found {
			return true
		}
	}
	return false
}

// asksInJSON reports whether swapJSON would find a field of h, as far as the text goes.
func asksInJSON(begin []byte, h *held, inside string) bool {
	dec := json.NewDecoder(bytes.NewReader(begin))
	if first, err := dec.Token(); err != nil || first != json.Delim('{') {
		return false
	}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return false
		}
		var value json.RawMessage
		if dec.Decode(&value) != nil {
			return false
		}
		var text string
		field, _ := name.(string)
		if slices.Contains(h.bound.body, field) && json.Unmarshal(value, &text) == nil && text == inside {
			return true
		}
	}
	return false
}

func swapForm(body []byte, h *held, inside, key string) ([]byte, bool) {
	pairs, found := strings.Split(string(body), "&"), false
	for i, pair := range pairs {
		name, value, _ := strings.Cut(pair, "=")
		plainName, err := url.QueryUnescape(name)
		if err != nil || !slices.Contains(h.bound.body, plainName) {
			continue
		}
		if plain, err := url.QueryUnescape(value); err == nil && plain == inside {
			pairs[i], found = name+"="+url.QueryEscape(key), true
		}
	}
	return []byte(strings.Join(pairs, "&")), found
}

// swapJSON changes nothing of the text but the strings it is about.
func swapJSON(body []byte, h *held, key string) ([]byte, bool) {
	dec := json.NewDecoder(bytes.NewReader(body))
	if first, err := dec.Token(); err != nil || first != json.Delim('{') {
		return body, false
	}
	var out []byte
	done := 0 // bytes of body that are in out
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return body, false
		}
		var value json.RawMessage
		if dec.Decode(&value) != nil {
			return body, false
		}
		var text string
		field, _ := name.(string)
		if !slices.Contains(h.bound.body, field) || json.Unmarshal(value, &text) != nil || text != h.standIn {
			continue
		}
		fresh, err := json.Marshal(key)
		if err != nil {
			return body, false
		}
		end := int(dec.InputOffset())
		out = append(append(out, body[done:end-len(value)]...), fresh...)
		done = end
	}
	if done == 0 {
		return body, false
	}
	return append(out, body[done:]...), true
}
