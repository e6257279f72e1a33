package policy

import (
	"strings"
	"testing"
)

func TestNormalPath(t *testing.T) {
	for in, want := range map[string]string{
		"":                           "/",
		"/":                          "/",
		"*":                          "*",
		"/a/b":                       "/a/b",
		"/a/b/":                      "/a/b/",
		"//a///b":                    "/a/b",
		"//":                         "/",
		"/a//":                       "/a/",
		"/./a":                       "/a",
		"/a/.":                       "/a/",
		"/a/..":                      "/",
		"/a/b/../c":                  "/a/c",
		"/a/%2e%2E/b":                "/b",
		"/a/%2e":                     "/a/",
		"/%61%2d%5F%7e":              "/a-_~",
		"/a%2fb":                     "/a%2Fb",
		"/@scope%2fname":             "/@scope%2Fname",
		"/a%3a":                      "/a%3A",
		"/a b":                       "/a%20b",
		"/é":                         "/%C3%A9",
		"/%c3%a9":                    "/%C3%A9",
		"/a|b":                       "/a%7Cb",
		"/[x]":                       "/%5Bx%5D",
		"/..a":                       "/..a",
		"/a..":                       "/a..",
		"/...":                       "/...",
		"/a%252f":                    "/a%252f",
		"/a;b=c/d":                   "/a;b=c/d",
		"/a:b@c!$&'()*+,=":           "/a:b@c!$&'()*+,=",
		"/org/repo.git/info/refs":    "/org/repo.git/info/refs",
		"/%E2%82%AC":                 "/%E2%82%AC",
		"/a/b/%2e%2e/%2e%2e/c/../d/": "/d/",
	} {
		got, err := NormalPath(in)
		if err != nil || got != want {
			t.Errorf("%q: %q, %v, want %q", in, got, err, want)
			continue
		}
		if again, err := NormalPath(got); err != nil || again != got {
			t.Errorf("%q is not its own normal form: %q, %v", got, again, err)
		}
		if isNormalPath(in) != (in == got) || !isNormalPath(got) {
			t.Errorf("%q: is normal %v, its form %v", in, isNormalPath(in), isNormalPath(got))
		}
	}
	for _, in := range []string{
		"a", "a/b", "http://x/a", "**", "/..", "/a/../..", "/%2e%2e", `/a\b`, "/a%5cb", "/a%5Cb", "/a\x00", "/a%00", "/a\r\nb", "/a%0d%0ab", "/a%7f",
		"/a?b", "/a#b", "/a%", "/a%2", "/a%zz", "/a%u002f", "/%c0%af", "/%C0%AE%C0%AE/", "/%c1%81", "/%e0%80%af", "/%f0%80%80%af", "/\xc0\xaf",
		"/a%2f..%2fb", "/a/..%2fb", "/..%2f", "/%2f..", "/a/..;/b", "/a/.;x/b", "/a/..%3bx/b", "/a/%2e%2e;/b", "/a%2f.%2fb",
	} {
		if got, err := NormalPath(in); err == nil || isNormalPath(in) {
			t.Errorf("%q became %q, is normal %v", in, got, isNormalPath(in))
		}
	}
}

// TestB19_StarsAndSlashes is the table of the documents.
func TestB19_StarsAndSlashes(t *testing.T) {
	paths := []string{"/v1", "/v1/", "/v1/a", "/v1/a/b", "/v1/a/info", "/v1/a/b/info", "/v1/abc", "/v1/a%2Fb", "/v1/info"}
	for pattern, want := range map[string]string{
		"/v1/*":       "..y...y.y",
		"/v1/**":      ".yyyyyyyy",
		"/v1/*/info":  "....y....",
		"/v1/**/info": "....yy..y",
		"/v1/a*":      "..y...y..",
		"/v1/*b":      ".........",
		"/v1/a%2F*":   ".......y.",
		"/v1/a*c":     "......y..",
		"/v1":         "y........",
		"/v1/":        ".y.......",
		"/**":         "yyyyyyyyy",
		"/*":          "y........",
		"/*/*":        "..y...y.y",
		"/**/b":       "...y.....",
		"/**/a/**":    "...yyy...",
	} {
		e := rules(t, `{"hosts":["x.example"],"methods":["GET"],"paths":["`+pattern+`"]}`, ``)
		var got strings.Builder
		for _, p := range paths {
			req := Request{Host: "x.example", Port: 443, TLS: true, Method: "GET", Path: p}
			if x := e.Explain(req); x.Decision.Allowed != x.Layers[0].Allowed {
				t.Errorf("%s on %s: explaining differs", pattern, p)
			}
			if e.Decide(req).Allowed {
				got.WriteByte('y')
			} else {
				got.WriteByte('.')
			}
		}
		if got.String() != want {
			t.Errorf("%-12s got %s, want %s for %v", pattern, got.String(), want, paths)
		}
	}
}

func TestPathPatternsThatCouldMatchNothingAreRefused(t *testing.T) {
	for pattern, hint := range map[string]string{
		"":          `"/"`,
		"v1/*":      `"/v1/*"`,
		"/a//b":     `"/a/b"`,
		"/a/./b":    `"/a/b"`,
		"/%61":      `"/a"`,
		"/a%2fb":    `"/a%2Fb"`,
		"/é":        `"/%C3%A9"`,
		"/a?x=1":    `"/a"`,
		"/a**":      "",
		"/**.js":    "",
		"/***":      "",
		"/{a,b}":    "only wildcards",
		"/[ab]":     "only wildcards",
		"/a b":      "%20",
		"/a/../b":   `"/b"`,
		"*":         `"/*"`,
		"/a/..;/b":  "",
		"https://x": "",
	} {
		p := refuse(t, `{"network":{"rules":[{"hosts":["x.example"],"paths":["`+pattern+`"]}]}}`)[0]
		if p.Path != "network.rules[0].paths[0]" || !strings.Contains(p.Hint, hint) {
			t.Errorf("%q: %+v, want the hint %q", pattern, p, hint)
		}
	}
}

func TestDenyHoldsInEverySpelling(t *testing.T) {
	e := rules(t, `{"hosts":["x.example"]}`, `{"hosts":["x.example"],"paths":["/admin/**","/a!b","/sp%20ace/x"]}`)
	for path, denied := range map[string]bool{
		"/admin/":         true,
		"/admin/x":        true,
		"/admin%2Fx":      true,
		"/%61dmin/x":      true,
		"/admin;v=1/x":    true,
		"/admin%3Bv=1/x":  true,
		"/a!b":            true,
		"/a%21b":          true,
		"/sp%20ace/x":     true,
		"/sp%20ace%2Fx":   true,
		"/b/../admin/x":   true,
		"//admin//x":      true,
		"/admin":          false,
		"/administrators": false,
		"/b/admin/x":      false,
	} {
		normal, err := NormalPath(path)
		if err != nil {
			t.Fatal(err)
		}
		d := e.Decide(Request{Host: "x.example", Port: 443, TLS: true, Method: "GET", Path: normal})
		if d.Allowed == denied {
			t.Errorf("%s (%s): %+v", path, normal, d)
		}
	}
	d := e.Decide(connect("x.example"))
	if !d.Allowed || !d.Inspect {
		t.Errorf("a tunnel would hide what is denied: %+v", d)
	}
	for _, path := range []string{"", "admin", "/a/../admin/x", "/%61", "//admin/x", "/a%2f", "/x?y"} {
		if d := e.Decide(Request{Host: "x.example", Port: 443, TLS: true, Method: "GET", Path: path}); d.Allowed {
			t.Errorf("%q is not in normal form and was allowed", path)
		}
	}
}

func TestMatchingIsLinearEnough(t *testing.T) {
	p, f := parsePathPattern("/" + strings.Repeat("**/a*a*a/", 60) + "x")
	if f != nil {
		t.Fatal(f)
	}
	if p.match("/" + strings.Repeat("aaaaaaaaaaaa/", 600) + "y") {
		t.Error("matched")
	}
}
