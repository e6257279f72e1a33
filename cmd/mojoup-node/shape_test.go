package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// shape reads the last command's stdout as exactly one JSON document and
// compares its fields with those that docs/json.md lists under a heading:
//
//	shape status
//
// A field that the page does not name is an error, and so is one that it
// calls always there and is not. A list is looked at by its members.
func shape(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: shape HEADING, its words joined by -")
	}
	var doc any
	dec := json.NewDecoder(strings.NewReader(ts.ReadFile("stdout")))
	ts.Check(dec.Decode(&doc))
	if dec.More() {
		ts.Fatalf("shape: more than one document")
	}
	got := map[string]bool{}
	fields("", doc, got)
	if args[0] == "status" { // its sessions have a table of their own
		for f := range got {
			if strings.HasPrefix(f, "sessions[]") || f == "queue[]" {
				delete(got, f)
			}
		}
	}
	documented, err := page(strings.ReplaceAll(args[0], "-", " "))
	ts.Check(err)
	var wrong []string
	for f := range got {
		if _, ok := documented[f]; !ok {
			wrong = append(wrong, "not documented: "+f)
		}
	}
	for f, always := range documented {
		parent := f[:max(0, strings.LastIndexByte(f, '.'))]
		if always && !got[f] && (parent == "" || got[parent]) {
			wrong = append(wrong, "missing: "+f)
		}
	}
	sort.Strings(wrong)
	if len(wrong) > 0 {
		ts.Fatalf("shape %s: %s", args[0], strings.Join(wrong, "\n"))
	}
}

// fields lists the paths of a document: a.b, and a[].b for lists.
func fields(at string, v any, into map[string]bool) {
	switch v := v.(type) {
	case map[string]any:
		for k, inner := range v {
			name := strings.TrimPrefix(at+"."+k, ".")
			into[name] = true
			fields(name, inner, into)
		}
	case []any:
		if at != "" {
			into[at] = true
		}
		for _, inner := range v {
			if at != "" {
				into[at+"[]"] = true
				fields(at+"[]", inner, into)
				continue
			}
			fields("", inner, into)
		}
	}
}

const jsonPage = "../../docs/json.md"

// page reads the table below a heading of docs/json.md: each row is
// | `field` | always or sometimes | meaning |.
func page(heading string) (map[string]bool, error) {
	text, err := os.ReadFile(filepath.FromSlash(jsonPage))
	if errors.Is(err, fs.ErrNotExist) {
		text, err = os.ReadFile("json.md") // TestScriptsAsUser's copy
	}
	if err != nil {
		return nil, err
	}
	_, part, ok := bytes.Cut(text, []byte("\n## "+heading+"\n"))
	if !ok {
		return nil, fmt.Errorf("docs/json.md has no heading %q", heading)
	}
	part, _, _ = bytes.Cut(part, []byte("\n## "))
	out := map[string]bool{}
	for line := range strings.Lines(string(part)) {
		cells := strings.Split(line, "|")
		if len(cells) < 5 || !strings.HasPrefix(strings.TrimSpace(cells[1]), "`") {
			continue
		}
		out[strings.Trim(strings.TrimSpace(cells[1]), "`")] = strings.TrimSpace(cells[2]) == "always"
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("docs/json.md lists nothing under %q", heading)
	}
	return out, nil
}
