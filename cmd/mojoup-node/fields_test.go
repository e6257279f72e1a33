package main

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mojoup/mojoup-node/internal/residue"
	"github.com/mojoup/mojoup-node/pkg/capability"
	"github.com/mojoup/mojoup-node/pkg/console/api"
)

// TestPageOfJSONHasEveryField holds docs/json.md to the types behind answers:
// scripts see only the fields that happen to be there when they run.
func TestPageOfJSONHasEveryField(t *testing.T) {
	for _, tt := range []struct {
		heading string
		answer  any
		without string // fields that have a table of their own, by their beginning
	}{
		{"status", api.Status{}, "sessions[]"},
		{"session", api.Session{}, ""},
		{"doctor", capability.Report{}, ""},
		{"cleanup verify", residue.Report{}, ""},
		{"error", struct {
			Error api.Problem `json:"error"`
		}{}, ""},
	} {
		t.Run(tt.heading, func(t *testing.T) {
			want := map[string]bool{}
			typeFields("", reflect.TypeOf(tt.answer), want)
			if tt.without != "" {
				maps.DeleteFunc(want, func(f string, _ bool) bool { return strings.HasPrefix(f, tt.without) })
			}
			documented, err := page(tt.heading)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range slices.Sorted(maps.Keys(want)) {
				always, ok := documented[f]
				switch {
				case !ok:
					t.Errorf("%s is not on the page", f)
				case always != want[f]:
					t.Errorf("%s: the page says always: %v, the type %v", f, always, want[f])
				}
			}
			for f := range documented {
				if _, ok := want[f]; !ok && !strings.HasSuffix(f, "[]") {
					t.Errorf("the page has %s, which no type has", f)
				}
			}
		})
	}
}

// typeFields lists the JSON fields of a type by their path, and whether each is
// always there where what holds it is.
func typeFields(at string, typ reflect.Type, into map[string]bool) {
	switch {
	case typ.Kind() == reflect.Pointer:
		typeFields(at, typ.Elem(), into)
	case typ.Kind() == reflect.Slice:
		typeFields(at+"[]", typ.Elem(), into)
	case typ.Kind() != reflect.Struct || typ == reflect.TypeFor[time.Time]():
	default:
		for i := range typ.NumField() {
			f := typ.Field(i)
			name, how, _ := strings.Cut(f.Tag.Get("json"), ",")
			if f.Anonymous && name == "" {
				typeFields(at, f.Type, into)
				continue
			}
			if !f.IsExported() || name == "-" {
				continue
			}
			path := strings.TrimPrefix(at+"."+name, ".")
			into[path] = how != "omitempty" && how != "omitzero"
			typeFields(path, f.Type, into)
		}
	}
}
