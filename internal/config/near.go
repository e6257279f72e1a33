package config

import (
	"slices"
	"strings"
)

// unknown makes the error for a key that is not in the table.
func (t table) unknown(key string) *KeyError {
	for _, r := range t.retired {
		if r.Key == key {
			return &KeyError{Key: key, Retired: r.Became}
		}
	}
	return &KeyError{Key: key, Nearest: t.nearest(key), keys: t.grouped()}
}

// unknownVariable makes the error for a variable that no setting has.
func (t table) unknownVariable(name string) *KeyError {
	for _, r := range t.retired {
		if (Setting{Key: r.Key}).Variable() == name {
			return &KeyError{Key: name, Retired: r.Became}
		}
	}
	e := &KeyError{Key: name, keys: t.grouped()}
	var names []string
	for _, s := range t.settings {
		names = append(names, s.Variable())
	}
	e.Nearest = Nearest(name, names)
	return e
}

// nearest finds the key that was perhaps meant.
func (t table) nearest(key string) string {
	var keys []string
	for _, s := range t.settings {
		keys = append(keys, s.Key)
	}
	if best := Nearest(key, keys); best != "" {
		return best
	}
	// People leave out the word that all keys begin with.
	return Nearest("node."+key, keys)
}

// Nearest returns the word that takes the fewest edits, or "" where every
// one takes more than a third of its letters.
func Nearest(word string, words []string) string {
	const most = 200 // letters: comparing takes their product
	if len(word) > most {
		return ""
	}
	best, fewest := "", -1
	for _, w := range words {
		n := distance(strings.ToLower(strings.ReplaceAll(word, "-", "_")), strings.ToLower(w))
		if n <= max(1, len(w)/3) && (fewest < 0 || n < fewest) {
			best, fewest = w, n
		}
	}
	return best
}

// distance counts the letters to insert, remove, replace, or swap with their
// neighbour.
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before, last, row = last, row, before
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(last[j]+cost, row[j]+1, last[j+1]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
	}
	return row[len(b)]
}

// grouped lists every key on one line: node.hub.{url,team}, node.roles.sandbox.
func (t table) grouped() string {
	var groups []string
	members := map[string][]string{}
	for _, s := range t.settings {
		cut := strings.LastIndexByte(s.Key, '.')
		group := s.Key[:cut]
		if !slices.Contains(groups, group) {
			groups = append(groups, group)
		}
		members[group] = append(members[group], s.Key[cut+1:])
	}
	for i, g := range groups {
		if names := members[g]; len(names) == 1 {
			groups[i] = g + "." + names[0]
		} else {
			groups[i] = g + ".{" + strings.Join(names, ",") + "}"
		}
	}
	return strings.Join(groups, ", ")
}
