package secrets

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// percent encodes each byte of a text.
func percent(text string) string {
	var b strings.Builder
	for _, c := range []byte(text) {
		fmt.Fprintf(&b, "%%%02X", c)
	}
	return b.String()
}

// TestT3_PercentEncodedInEachPlace: servers differ in how they undo it, and some do
// it twice. What any of them reads is refused, of a stand-in and of a token of the
// session's own that was taken back.
func TestT3_PercentEncodedInEachPlace(t *testing.T) {
	const token = "gho_0123456789abcdefghijklmnopqrstuvwxyz"
	r := NewBook().Open("s")
	bind := Binding{Hosts: []string{"x.example"}, Headers: []string{"X-Api-Key"}, Query: []string{"key"}, Paths: []string{"/**"}}
	standIn, err := r.Add(Secret{Name: "A", Value: value(canary), Binding: bind})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Own(Secret{Name: SignIn + "copilot github.com", Value: value(token), Binding: bind}); err != nil {
		t.Fatal(err)
	}
	r.Withdraw(SignIn+"copilot github.com", "it is gone")
	for _, what := range []string{standIn, token} {
		once := percent(what)
		twice := strings.ReplaceAll(once, "%", "%25")
		mixed := "%zz" + what[:5] + percent(what[5:9]) + what[9:] + "%"
		inHeader := func(name, v string) Request { return Request{Path: "/", Header: http.Header{name: {v}}} }
		for name, q := range map[string]Request{
			"query, bad escape before": {Path: "/", Query: "a=1&b=%zz" + once},
			"query, bad escape behind": {Path: "/", Query: "key=" + once + "%"},
			"query, cut escape":        {Path: "/", Query: "key=" + once + "%4"},
			"query, twice":             {Path: "/", Query: "key=" + twice},
			"query, mixed":             {Path: "/", Query: "b=" + mixed},
			"query, a name":            {Path: "/", Query: "%zz" + once + "=1"},
			"query, a name twice":      {Path: "/", Query: twice + "=1"},
			"path":                     {Path: "/" + once},
			"path, twice":              {Path: "/" + twice},
			"path, thrice":             {Path: "/" + strings.ReplaceAll(twice, "%", "%25")},
			"path, mixed":              {Path: "/" + mixed},
			"path, escapes in escapes": {Path: "/" + strings.ReplaceAll(percent(once), "%32", "%%33%32")},
			"cookie":                   inHeader("Cookie", "t="+once),
			"cookie, twice":            inHeader("Cookie", "t="+twice),
			"where the key goes":       inHeader("X-Api-Key", once),
			"any header":               inHeader("X-Other", "a "+mixed),
			"in Basic":                 inHeader("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte("u:"+once))),
			"over lines":               {Path: "/", Header: http.Header{"Cookie": {once[:20], once[20:]}}},
			"over lines, cut":          {Path: "/", Header: http.Header{"Cookie": {once[:22], once[22:]}}},
			"method":                   {Path: "/", Method: what},
		} {
			q.Host, q.Port, q.TLS = "x.example", 443, true
			swap, misuse := r.Look(q)
			if misuse == nil || strings.Contains(misuse.Reason, what) {
				t.Errorf("%s, of %s: %v %+v", name, what, swap.Names(), misuse)
			}
		}
		for name, misuse := range map[string]*Misuse{
			"a trailer":         r.Trailer(Request{Header: http.Header{"X-A": {"b=" + once}}}),
			"a trailer's name":  r.Trailer(Request{Names: []string{what}}),
			"CONNECT":           r.Connect(Request{Header: http.Header{"X-A": {"b=" + once}}}),
			"Basic of CONNECT":  r.Connect(Request{Header: http.Header{"Proxy-Authorization": {basic("u:" + what)}}}),
			"a name of CONNECT": r.Connect(Request{Names: []string{what}}),
			"an extension":      r.Extension(Request{}, "k="+once),
		} {
			if misuse == nil {
				t.Errorf("%s, of %s, passes", name, what)
			}
		}
	}
}

// TestB38_AQueryIsSwappedBesideBadEscapes: what is no escape stays what it is, and
// keeps no key from its place.
func TestB38_AQueryIsSwappedBesideBadEscapes(t *testing.T) {
	r, s := newRing(t, NewBook(), "s", Binding{Hosts: []string{"x.example"}, Query: []string{"key"}, Paths: []string{"/"}})
	for query, want := range map[string]string{
		"a=%zz&key=" + s + "&b=%":   "a=%zz&key=" + canary + "&b=%",
		"key=" + percent(s) + "&a=": "key=" + canary + "&a=",
		"k%65y=" + s:                "k%65y=" + canary,
	} {
		swap, misuse := r.Look(Request{Host: "x.example", Port: 443, TLS: true, Path: "/", Query: query})
		if got := swap.Query(query); misuse != nil || got != want {
			t.Errorf("%s: %s %+v", query, got, misuse)
		}
	}
}

func TestSpellings(t *testing.T) {
	for text, want := range map[string][]string{
		"abc": nil, "": nil, "100%": nil, "%zz%": nil, "%4": nil,
		"%41":             {"A"},
		"%zz%41%":         {"%zzA%"},
		"%2541":           {"%41", "A"},
		"%252541":         {"%2541", "A"},
		"%%34%31":         {"%41", "A"},
		"%25%32%35%34%31": {"%2541", "A"},
		"%c3%A4":          {"ä"},
	} {
		if got := slices.Collect(spellings(text)); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
