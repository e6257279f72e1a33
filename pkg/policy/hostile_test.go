package policy

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestHostileDocumentsCostSeconds: a large document of a repository may keep
// the node busy, but not for long. The bound is generous: it is there to catch
// what grows with the square, and a quarter of the greatest size shows that.
func TestHostileDocumentsCostSeconds(t *testing.T) {
	const size = maxSource / 4
	fill := func(head, one, tail string, most int) string {
		n := min(most, (size-len(head)-len(tail))/(len(one)+8))
		var b strings.Builder
		b.WriteString(head)
		for i := range n {
			b.WriteString(strings.ReplaceAll(one, "#", fmt.Sprint(i)))
		}
		b.WriteString(tail)
		return b.String()
	}
	hosts := fill(``, `"h#.x.example",`, ``, 50)
	stars := fill(``, `"*.h#.x.example",`, ``, 400)
	for name, src := range map[string]string{
		"rules":          fill(`{"network":{"rules":[`, `{"hosts":["h#.example"],"methods":["GET"]},`, `]}}`, maxRules/2),
		"equal rules":    fill(`{"network":{"rules":[`, `{"hosts":["h.example"],"paths":["/a#"]},`, `]}}`, maxRules/2),
		"many hosts":     fill(`{"network":{"rules":[`, `{"hosts":[`+hosts+`]},`, `]}}`, maxRules/2),
		"many stars":     fill(`{"network":{"rules":[`, `{"hosts":[`+stars+`]},`, `]}}`, maxRules/2),
		"nearly equal":   fill(`{"network":{"rules":[`, `{"hosts":[`+stars+`"u#.example"],"methods":["GET"]},{"hosts":["v#.example",`+strings.ReplaceAll(hosts, "h", "g")+`]},`, `]}}`, maxRules/2),
		"denials":        fill(`{"network":{"rules":[{"hosts":["a.example"]}],"deny":[`, `{"hosts":["*.h#.example"]},`, `]}}`, maxRules/2),
		"metadata":       fill(`{"network":{"rules":[`, `{"hosts":["169.254.169.254","h#.example"]},`, `]}}`, maxRules/2),
		"unknown keys":   fill(`{`, `"versionversionversion#":1,`, `}`, maxSource),
		"twice":          fill(`{`, `"version":1,`, `}`, maxSource),
		"one long line":  `{"x":"` + strings.Repeat("ä", size/2) + `"}`,
		"a comment":      "{}//" + strings.Repeat("ä", size/2),
		"ports":          `{"ports":[` + strings.Repeat("1,", size/2) + `]}`,
		"brackets":       strings.Repeat("[", size),
		"a long pattern": `{"network":{"rules":[{"hosts":["` + strings.Repeat("*.", 100000) + `"]}]}}`,
		"a long path":    `{"network":{"rules":[{"hosts":["a.example"],"paths":["/` + strings.Repeat("../", 100000) + `"]}]}}`,
	} {
		if len(src) > 2*size {
			t.Fatalf("%s: %d bytes", name, len(src))
		}
		start := time.Now()
		d, err := Parse("p", []byte(src))
		if err == nil {
			Lint(d)
			layers := []Layer{{Name: LayerOrganisation, Document: d}, {Name: LayerRepository, Document: d}}
			e, err := Compile(layers, nil, BuiltinPresets())
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			e.Digest()
			e.Decide(Request{Host: "h.example", Port: 443, TLS: true, Method: "GET", Path: "/b"})
		}
		took := time.Since(start)
		t.Logf("%-15s %8v accepted %v", name, took.Round(time.Millisecond), err == nil)
		if took > 10*time.Second {
			t.Errorf("%s took %v", name, took)
		}
	}
}
