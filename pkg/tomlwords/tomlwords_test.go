package tomlwords

import (
	"strings"
	"testing"
	"unicode"

	"github.com/pelletier/go-toml/v2"
)

// TestExplain tells what newcomers get wrong, each at its place and with what
// they may write instead.
func TestExplain(t *testing.T) {
	for _, test := range []struct{ text, message, hint string }{
		{`engine = docker`, "docker stands without quotes, and is neither a number nor true or false", `write engine = "docker"`},
		{`engine = native # as it comes`, "native stands without quotes, and is neither a number nor true or false", `write engine = "native"`},
		{`engine = info`, "info stands without quotes, and is neither a number nor true or false", `write engine = "info"`},
		{`image = ~/x`, "~/x stands without quotes, and is neither a number nor true or false", `write image = "~/x"`},
		{`memory = 4GiB`, "4GiB stands without quotes, and is neither a number nor true or false", `write memory = "4GiB"`},
		{`private = 10.2.0.0/16`, "10.2.0.0/16 stands without quotes, and is neither a number nor true or false", `write private = "10.2.0.0/16"`},
		{`sandbox = yes`, "yes is no value", `write sandbox = true, or "yes" where a text is meant`},
		{`sandbox = False`, "False is no value", `write sandbox = false, or "False" where a text is meant`},
		{`engine =`, "there is no value behind engine =", `write one, or take the line out; a line is name = "text", with the text in quotes`},
		{`engine = # which`, "there is no value behind engine =", `write one, or take the line out; a line is name = "text", with the text in quotes`},
		{`engine = = "auto"`, "there is one = too many", `write engine = "auto"`},
		{`engine => "auto"`, "a name and its value are joined by = alone", `write engine = "auto"`},
		{`engine = "auto`, "the text does not end in its line", `write engine = "auto"`},
		{`engine = 'auto`, "the text does not end in its line", `write engine = 'auto'`},
		{`engine = "auto\"`, "the text does not end in its line", `write engine = "auto\""`},
		{`engine = """auto`, "the text of several lines does not end", `end it with """`},
		{`engine = “auto”`, "“auto” does not stand in plain quotes", `write engine = "auto"`},
		{`engine: "auto"`, "there is no = behind engine", `write engine= "auto"`},
		{`engine: auto`, "there is no = behind engine", `a line is name = "text", with the text in quotes`},
		{`engine`, "there is no = behind engine", `a line is name = "text", with the text in quotes`},
		{`"node.sandbox.engine" "x"`, `there is no = behind "node.sandbox.engine"`, `a line is name = "text", with the text in quotes`},
		{`node sandbox = 1`, "node sandbox cannot be a name", `a name is letters, digits, _ and -, in quotes where there is anything else; a line is name = "text", with the text in quotes`},
		{`= 1`, "there is no name before the =", `a line is name = "text", with the text in quotes`},
		{`engine = "a" "b"`, `"b" stands behind the value`, `a name has one value; a list is ["one", "two"], and a comment begins with #`},
		{`engine = "a" // b`, `// b stands behind the value`, `a name has one value; a list is ["one", "two"], and a comment begins with #`},
		{`engine = "C:\d"`, `"C:\d" has a \ that means nothing`, `write engine = 'C:\d'`},
		{"engine = \"a\x01\"", `"a?" holds what cannot be written so`, `take the character out, or write it as "\u0001"`},
		{`// which engine`, "// which engine is no comment", "a comment begins with #"},
		{`; which engine`, "; which engine is no comment", "a comment begins with #"},
		{`[node.sandbox`, "[node.sandbox is no header of a table", "write [name], or [[name]] for one of several, alone in its line"},
		{`[node.sandbox]]`, "[node.sandbox]] is no header of a table", "write [name], or [[name]] for one of several, alone in its line"},
		{`{ "engine": "auto" }`, "this is not TOML", `a line is name = "text", with the text in quotes; JSON is read elsewhere`},
		{`allow = [ann, bob]`, "this is no list: [ann, bob]", `a list is ["one", "two"]: each text in quotes, commas between, and ] at the end`},
		{`allow = ["ann" "bob"]`, `this is no list: ["ann" "bob"]`, `a list is ["one", "two"]: each text in quotes, commas between, and ] at the end`},
		{"allow = [\n  \"ann\",\n  bob,\n]", "bob stands without quotes, and is neither a number nor true or false", `write "bob"`},
		{"allow = [\"ann\"\nx = 1", "the list that begins in line 2 does not go on so", `a list is ["one", "two"]: each text in quotes, commas between, and ] at the end`},
		{"set = { A = \"1\", B }", `this is no table: { A = "1", B }`, `a table in one line is { ONE = "1", TWO = "2" }`},
		{"a = 1\na = 2", "key a is already defined", "a name stands in a file once; take one of the two out"},
		{"[a]\n[a]", "table a already exists", "a table stands in a file once; put its lines below the first one"},
	} {
		text := "# first\n" + test.text + "\n"
		m := Explain([]byte(text), read(t, text))
		if m.Message != test.message || m.Hint != test.hint {
			t.Errorf("%s\nmessage %q\nwant    %q\nhint    %q\nwant    %q", test.text, m.Message, test.message, m.Hint, test.hint)
		}
		if m.Line < 2 {
			t.Errorf("%s: it is said to be in line %d", test.text, m.Line)
		}
	}
}

func read(t *testing.T, text string) error {
	t.Helper()
	var all map[string]any
	err := toml.Unmarshal([]byte(text), &all)
	if err == nil {
		t.Fatalf("%q is TOML", text)
	}
	return err
}

// FuzzExplain: whatever is no TOML has a sentence, a hint and a place, and what
// stands in it draws nothing.
func FuzzExplain(f *testing.F) {
	for _, s := range []string{"a = b", "a = [\n1,\nb", "[a\n", "a = \"", "a = \"\\", "'", "a = {", "\x1b[2J = 1", "a = \x1b[2J", "a = \"\"\"\n", "=", "\r\n=\r", "\"a\tb\" = yes", "\"\u202e\" = no"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var all map[string]any
		err := toml.Unmarshal([]byte(text), &all)
		if err == nil {
			return
		}
		m := Explain([]byte(text), err)
		if m.Message == "" || m.Line < 1 || m.Line > strings.Count(text, "\n")+1 {
			t.Errorf("%q in line %d: %q", text, m.Line, m.Message)
		}
		if m.Hint == "" {
			t.Errorf("%q has no hint: %q", text, m.Message)
		}
		if strings.ContainsFunc(m.Message+m.Hint, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%q draws: %q, %q", text, m.Message, m.Hint)
		}
	})
}
