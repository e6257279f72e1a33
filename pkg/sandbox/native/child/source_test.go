package child

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

// TestPartsCallOneWay reads the helper's source: no file calls one that calls
// it, by whatever way round, and what they share declares and does nothing.
func TestPartsCallOneWay(t *testing.T) {
	files, err := filepath.Glob("src/*.c")
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %v", files, err)
	}
	source, home := map[string]string{}, map[string]string{}
	body := regexp.MustCompile(`(?m)^\w[\w\s*]*?(\w+)\([^;{}]*\)\s*\n?\{`)
	for _, file := range append(files, "src/helper.h") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		source[file] = regexp.MustCompile(`(?s)/\*.*?\*/|"[^"\n]*"`).ReplaceAllString(string(text), "")
		for _, m := range body.FindAllStringSubmatch(source[file], -1) {
			if filepath.Ext(file) == ".h" {
				t.Errorf("%s does something: %s", file, m[1])
			} else if !regexp.MustCompile(`(?m)^(_Noreturn )?static .*\b` + m[1] + `\(`).MatchString(source[file]) {
				home[m[1]] = file
			}
		}
	}
	if home["set_up"] != "src/setup.c" || home["fail"] != "src/failure.c" {
		t.Fatalf("the source was not understood: %v", home)
	}
	calls := map[string][]string{}
	for _, file := range files {
		for name, of := range home {
			if of != file && regexp.MustCompile(`\b`+name+`\(`).MatchString(source[file]) {
				calls[file] = append(calls[file], of)
			}
		}
	}
	for _, file := range files {
		reached := slices.Clone(calls[file])
		for i := 0; i < len(reached); i++ {
			for _, next := range calls[reached[i]] {
				if !slices.Contains(reached, next) {
					reached = append(reached, next)
				}
			}
		}
		if slices.Contains(reached, file) {
			t.Errorf("%s calls itself by way of %v", file, reached)
		}
	}
}
