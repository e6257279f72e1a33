package registries

import "strings"

// A setting is one line of a settings file.
type setting struct {
	section, key, value string
	line                int // from 1
}

// parseNpmrc reads the keys before any section of an npmrc, in order. Keys
// keep their case. A value's quotes are taken off.
func parseNpmrc(b []byte) []setting {
	var out []setting
	for i, raw := range strings.Split(string(b), "\n") {
		line := strings.TrimSpace(strings.TrimSuffix(raw, "\r"))
		if line == "" || line[0] == ';' || line[0] == '#' {
			continue
		}
		if line[0] == '[' {
			break // npm reads no registry from a section
		}
		k, v, _ := strings.Cut(line, "=")
		out = append(out, setting{key: unquote(strings.TrimSpace(k)), value: unquote(strings.TrimSpace(v)), line: i + 1})
	}
	return out
}

func unquote(s string) string {
	if len(s) >= 2 && (s[0] == '"' || s[0] == '\'') && s[len(s)-1] == s[0] {
		return s[1 : len(s)-1]
	}
	return s
}

// expandNpm puts variables in for ${NAME} and ${NAME?}, as npm does; it
// reports false where a variable is missing.
func expandNpm(s string, lookup func(string) (string, bool)) (string, bool) {
	ok := true
	for _, name := range npmVariables(s) {
		v, set := lookup(strings.TrimSuffix(name, "?"))
		ok = ok && (set || strings.HasSuffix(name, "?"))
		s = strings.ReplaceAll(s, "${"+name+"}", v)
	}
	return s, ok
}

// npmVariables names what stands between ${ and }.
func npmVariables(s string) []string {
	var out []string
	for {
		_, rest, found := strings.Cut(s, "${")
		if !found {
			return out
		}
		name, after, closed := strings.Cut(rest, "}")
		if !closed {
			return out
		}
		if name != "" && !strings.ContainsAny(name, "${ \n") {
			out = append(out, name)
		}
		s = after
	}
}

// parsePipConf reads a pip.conf as Python's RawConfigParser does, as far as
// pip's keys go: sections, "=" or ":", full-line comments, and values that go
// on in deeper lines. Keys come out in pip's normal form.
func parsePipConf(b []byte) []setting {
	var out []setting
	section, open := "", false
	for i, raw := range strings.Split(string(b), "\n") {
		raw = strings.TrimSuffix(raw, "\r")
		line := strings.TrimSpace(raw)
		switch {
		case line == "" || line[0] == '#' || line[0] == ';':
			continue
		case (raw[0] == ' ' || raw[0] == '\t') && open:
			out[len(out)-1].value += "\n" + line
		case line[0] == '[':
			name, _, closed := strings.Cut(line[1:], "]")
			open = false
			if closed {
				section = name
			}
		default:
			k, v := line, ""
			if j := strings.IndexAny(line, "=:"); j >= 0 {
				k, v = line[:j], line[j+1:]
			}
			out = append(out, setting{section: section, key: pipKey(k), value: strings.TrimSpace(v), line: i + 1})
			open = true
		}
	}
	return out
}

// pipKey is the normal form of a pip option.
func pipKey(k string) string {
	k = strings.ReplaceAll(strings.ToLower(strings.TrimSpace(k)), "_", "-")
	return strings.TrimPrefix(k, "--")
}
