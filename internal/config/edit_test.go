package config

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

var update = flag.Bool("update", false, "write golden files and docs/settings.md")

// edits are the golden files: the file before, lines of "set KEY VALUE" or
// "unset KEY" in the comment, and the file after them. One that is refused has
// the message after.
func edits(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/edit/*.txtar")
	if err != nil || len(files) < 15 {
		t.Fatalf("%d golden files, %v", len(files), err)
	}
	return files
}

// section returns one file of an archive.
func sectionOf(a *txtar.Archive, name string) []byte {
	for _, f := range a.Files {
		if f.Name == name {
			return f.Data
		}
	}
	return nil
}

func TestEdits(t *testing.T) {
	for _, file := range edits(t) {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			o := origin(t, string(sectionOf(a, "before")))
			refused := ""
			for _, line := range strings.Split(strings.TrimSpace(string(a.Comment)), "\n") {
				if err := command(o, line); err != nil {
					refused += strings.ReplaceAll(err.Error(), o.File, "node.toml") + "\n"
				}
			}
			got := []txtar.File{{Name: "before", Data: sectionOf(a, "before")}, {Name: "after", Data: []byte(text(t, o))}}
			if refused != "" {
				got = append(got, txtar.File{Name: "refused", Data: []byte(refused)})
			}
			result := txtar.Format(&txtar.Archive{Comment: a.Comment, Files: got})
			if *update {
				if err := os.WriteFile(file, result, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if want, _ := os.ReadFile(file); !bytes.Equal(result, want) {
				t.Errorf("got\n%s\nwant\n%s", result, want)
			}
			onlyFile(t, o)
		})
	}
}

// command carries out one line of a golden file; one that begins with # is
// for its readers.
func command(o Origin, line string) error {
	word, rest, _ := strings.Cut(line, " ")
	key, value, _ := strings.Cut(rest, " ")
	switch word {
	case "set":
		_, err := o.Set(key, value)
		return err
	case "unset":
		_, err := o.Unset(key)
		return err
	case "#":
		return nil
	}
	return fmt.Errorf("golden file: %q", line)
}

// The same edits hold where lines end as on Windows, and every end stays.
func TestEditsKeepLineEnds(t *testing.T) {
	for _, file := range edits(t) {
		a, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		crlf := func(name string) string {
			return strings.ReplaceAll(string(sectionOf(a, name)), "\n", "\r\n")
		}
		if !strings.Contains(crlf("before"), "\r\n") || strings.Contains(crlf("before"), `"""`) {
			continue
		}
		o := origin(t, crlf("before"))
		for _, line := range strings.Split(strings.TrimSpace(string(a.Comment)), "\n") {
			_ = command(o, line) // refusals are the other test's
		}
		if got := text(t, o); got != crlf("after") {
			t.Errorf("%s: got %q, want %q", file, got, crlf("after"))
		}
	}
}

func TestSetTwiceChangesNothing(t *testing.T) {
	o := origin(t, "node.roles.sandbox = true # yes\n")
	before, err := os.Stat(o.File)
	if err != nil {
		t.Fatal(err)
	}
	ch, err := o.Set(RolesSandbox, "true")
	if err != nil || ch.Changed || ch.Line != 1 {
		t.Errorf("%+v, %v", ch, err)
	}
	ch, err = o.Unset(SandboxEngine)
	if err != nil || ch.Changed || ch.Line != 0 {
		t.Errorf("%+v, %v", ch, err)
	}
	if after, err := os.Stat(o.File); err != nil || !os.SameFile(before, after) {
		t.Error("the file was written anew")
	}
}

func TestSetSaysTheLine(t *testing.T) {
	o := origin(t, "# a\n\n[node.sandbox]\nimage = \"x\"\n")
	for want, key := range map[int]string{5: SandboxEngine} {
		if ch, err := o.Set(key, "native"); err != nil || ch.Line != want || !ch.Changed || ch.File != o.File {
			t.Errorf("%+v, %v", ch, err)
		}
	}
}

func TestSetMakesFileAndDirectory(t *testing.T) {
	o := Origin{File: filepath.Join(t.TempDir(), "a", "b", "node.toml")}
	if _, err := o.Set(SandboxEngine, "native"); err != nil {
		t.Fatal(err)
	}
	if got := text(t, o); got != "node.sandbox.engine = \"native\"\n" {
		t.Errorf("%q", got)
	}
	if _, err := (Origin{}).Set(SandboxEngine, "native"); err == nil {
		t.Error("set without a file succeeded")
	}
}

func TestSetKeepsModeAndFollowsLinks(t *testing.T) {
	o := origin(t, "node.roles.sandbox = true\n")
	link := filepath.Join(t.TempDir(), "link.toml")
	if err := os.Symlink(o.File, link); err != nil {
		t.Fatal(err)
	}
	if _, err := (Origin{File: link}).Set(RolesSandbox, "false"); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link was replaced: %v, %v", info, err)
	}
	info, err := os.Stat(o.File)
	if err != nil || info.Mode().Perm() != 0o640 || text(t, o) != "node.roles.sandbox = false\n" {
		t.Errorf("%v, %v, %q", info, err, text(t, o))
	}
	onlyFile(t, o)
	if err := os.Remove(o.File); err != nil {
		t.Fatal(err)
	}
	if _, err := (Origin{File: link}).Set(RolesSandbox, "true"); err == nil || !strings.Contains(err.Error(), "link to nothing") {
		t.Errorf("dangling link: %v", err)
	}
}

// Two people who set at once both get what they set.
func TestConcurrentSets(t *testing.T) {
	o := origin(t, "# shared\n")
	keys := []string{SandboxEngine, RolesSandbox, LimitMemory, SandboxMaxSessions, NetworkPrivate, PolicyTrust}
	values := []string{"native", "true", "1GiB", "3", "10.0.0.0/8", "always"}
	var wg sync.WaitGroup
	for i, key := range keys {
		wg.Go(func() {
			if _, err := o.Set(key, values[i]); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	c := load(t, o)
	for i, key := range keys {
		if v := value(t, c, key); v.Text != values[i] {
			t.Errorf("%s = %q", key, v.Text)
		}
	}
	onlyFile(t, o)
}

// FuzzSet edits whatever file it is given. An edit that is taken changes what
// the one key means and nothing else, byte for byte outside one place; one
// that is refused changes nothing.
func FuzzSet(f *testing.F) {
	for _, file := range edits(f) {
		a, err := txtar.ParseFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for i := range 3 {
			f.Add(string(sectionOf(a, "before")), uint8(i), "native")
		}
	}
	f.Add("a=1", uint8(200), "x\ny = 2")
	keys := []string{SandboxEngine, RolesSandbox, SandboxImage, FilesMounts, LimitCPUs}
	f.Fuzz(func(t *testing.T, before string, which uint8, value string) {
		key := keys[int(which)%len(keys)]
		doc, err := parseDocument("node.toml", []byte(before))
		if err != nil {
			var bad *SyntaxError
			if !errors.As(err, &bad) || bad.Line < 1 || bad.Column < 1 || bad.Line > strings.Count(before, "\n")+2 {
				t.Fatalf("no place: %v", err)
			}
			return
		}
		if c, err := current.resolve(doc, nil); (c == nil) == (err == nil) || err != nil && strings.Contains(err.Error(), "BUG") {
			t.Fatalf("%q: %v, %v", before, c, err)
		}
		s, err := Lookup(key)
		if err != nil {
			t.Fatal(err)
		}
		data, err := s.parse(value)
		if err != nil {
			return
		}
		after, err := doc.set(key, s.encode(value, data))
		if err != nil {
			return
		}
		checkEdit(t, doc, key, after, true)
		again, err := parseDocument("node.toml", after)
		if err != nil {
			t.Fatal(err)
		}
		if removed, err := again.unset(key); err == nil {
			checkEdit(t, again, key, removed, false)
		}
	})
}

// checkEdit checks one edit against what it may change.
func checkEdit(t *testing.T, before *document, key string, after []byte, has bool) {
	t.Helper()
	doc, err := parseDocument("node.toml", after)
	if err != nil {
		t.Fatalf("%q became %q: %v", before.text, after, err)
	}
	if (doc.find(key) != nil) != has {
		t.Fatalf("%q became %q, which has %s: %v", before.text, after, key, !has)
	}
	for _, s := range before.sections {
		for _, e := range s.entries {
			if joinKey(e.path) == key {
				continue
			}
			old := string(before.text[e.start:e.end])
			if !bytes.Contains(after, []byte(old)) {
				t.Fatalf("%q became %q: %q is gone", before.text, after, old)
			}
		}
	}
	// One place: what both begin and end with covers all of the shorter one
	// but the value or line that was exchanged.
	head := 0
	for head < len(after) && head < len(before.text) && after[head] == before.text[head] {
		head++
	}
	tail := 0
	for tail < len(after)-head && tail < len(before.text)-head && after[len(after)-1-tail] == before.text[len(before.text)-1-tail] {
		tail++
	}
	gone := string(before.text[head : len(before.text)-tail])
	if old := before.find(key); old == nil && gone != "" {
		t.Fatalf("%q became %q: %q is gone", before.text, after, gone)
	}
}

func TestSetEndsALastLineThatHasNoEnd(t *testing.T) {
	for before, after := range map[string]string{
		"node.roles.sandbox = true":        "node.roles.sandbox = true\nnode.sandbox.engine = \"native\"",
		"# only":                           "# only\nnode.sandbox.engine = \"native\"",
		"[node.roles]\nsandbox = true":     "[node.roles]\nsandbox = true\n\n[node.sandbox]\nengine = \"native\"\n",
		"[node.sandbox]":                   "[node.sandbox]\nengine = \"native\"",
		"node.sandbox.engine = \"docker\"": "node.sandbox.engine = \"native\"",
	} {
		o := origin(t, before)
		if _, err := o.Set(SandboxEngine, "native"); err != nil || text(t, o) != after {
			t.Errorf("%q became %q, want %q (%v)", before, text(t, o), after, err)
		}
		if _, err := o.Unset(SandboxEngine); err != nil || value(t, load(t, o), SandboxEngine).Source.Kind != FromDefault {
			t.Errorf("unset left %q (%v)", text(t, o), err)
		}
	}
}

// FuzzValue sets texts of every kind: one that is taken is read back from the
// file as the same value, and in a form that means the same once more.
func FuzzValue(f *testing.F) {
	for i := range Settings() {
		for _, v := range []string{"native", "true", "0", "8", "1.5", "4GiB", "90s", "10.0.0.0/8,fd00::/8", "~/a,/b", `["/a,b", "/c"]`, "https://h/x", "a\n\"b\\"} {
			f.Add(uint8(i), v)
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, text string) {
		s := Settings()[int(which)%len(Settings())]
		data, err := s.parse(text)
		if err != nil {
			if data != nil && s.check == nil {
				t.Fatalf("%s: %q was refused with a value", s.Key, text)
			}
			return
		}
		doc, err := parseDocument("node.toml", []byte(s.Key+" = "+s.encode(text, data)+"\n"))
		if err != nil {
			t.Fatalf("%s: %q: %v", s.Key, text, err)
		}
		c, err := current.resolve(doc, nil)
		if err != nil {
			t.Fatalf("%s: %q: %v", s.Key, text, err)
		}
		v, err := c.Get(s.Key)
		if err != nil || !reflect.DeepEqual(v.data, data) {
			t.Fatalf("%s: %q is %v, read back %v (%v)", s.Key, text, data, v.data, err)
		}
		if again, err := s.parse(v.Text); err != nil || !reflect.DeepEqual(again, data) {
			t.Fatalf("%s: %q is shown as %q, which is %v (%v)", s.Key, text, v.Text, again, err)
		}
	})
}

func BenchmarkLoad(b *testing.B) {
	o := origin(b, "node.sandbox.engine = \"native\"\n[node.roles]\nsandbox = true\n", os.Environ()...)
	for b.Loop() {
		if _, err := o.Load(); err != nil {
			b.Fatal(err)
		}
	}
}
