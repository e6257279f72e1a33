package policy

import (
	"encoding/json"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files anew")

func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (make it with -update)", err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s is stale, see -update: %s", path, diff)
	}
}

func TestSchemaIsPublished(t *testing.T) {
	golden(t, "../../docs/policy.schema.json", Schema())
}

// TestSchemaHoldsEveryKey reads the schema back and walks the example through
// it: whatever Parse knows, an editor knows.
func TestSchemaHoldsEveryKey(t *testing.T) {
	var schema map[string]any
	if err := json.Unmarshal(Schema(), &schema); err != nil {
		t.Fatal(err)
	}
	if schema["$schema"] != "https://json-schema.org/draft/2020-12/schema" {
		t.Error("not draft 2020-12")
	}
	table := documentKey()
	n := sameKeys(t, "", &table, schema)
	if n < 30 {
		t.Errorf("only %d keys", n)
	}
}

func sameKeys(t *testing.T, path string, k *key, schema map[string]any) int {
	switch k.kind {
	case kindArray:
		return sameKeys(t, path+"[]", k.item, schema["items"].(map[string]any))
	case kindObject:
		if schema["additionalProperties"] != false {
			t.Errorf("%s: unknown keys pass", path)
		}
		properties, count := schema["properties"].(map[string]any), 0
		if len(properties) != len(k.keys) {
			t.Errorf("%s: %d keys, want %d", path, len(properties), len(k.keys))
		}
		for i := range k.keys {
			sub, ok := properties[k.keys[i].name].(map[string]any)
			if !ok {
				t.Errorf("%s.%s is missing", path, k.keys[i].name)
				continue
			}
			if sub["description"] == nil && k.keys[i].about != "" {
				t.Errorf("%s.%s is not described", path, k.keys[i].name)
			}
			count += 1 + sameKeys(t, path+"."+k.keys[i].name, &k.keys[i], sub)
		}
		return count
	}
	return 0
}

// TestEveryKeyReachesTheDocument fails when somebody adds a key to the table
// and not to the document: it would be accepted and do nothing.
func TestEveryKeyReachesTheDocument(t *testing.T) {
	text, err := json.Marshal(parse(t, example))
	if err != nil {
		t.Fatal(err)
	}
	n, fault := readJSON(text)
	if fault != nil {
		t.Fatal(fault)
	}
	got := map[string]bool{}
	keysOf(n, "", got)
	// Each key of a rule stands in some rule of the example but "deny".
	want := map[string]bool{}
	table := documentKey()
	tableKeys(&table, "", want)
	for path := range want {
		if path != "$schema" && !strings.HasPrefix(path, "network.deny[].") && !got[path] {
			t.Errorf("%s is accepted and lost, or missing in the example", path)
		}
	}
}

func keysOf(n *node, path string, out map[string]bool) {
	for _, m := range n.members {
		out[join(path, m.name)] = true
		keysOf(m.value, join(path, m.name), out)
	}
	for _, item := range n.items {
		keysOf(item, path+"[]", out)
	}
}

func tableKeys(k *key, path string, out map[string]bool) {
	for i := range k.keys {
		sub := join(path, k.keys[i].name)
		out[sub] = true
		tableKeys(&k.keys[i], sub, out)
	}
	if k.item != nil {
		tableKeys(k.item, path+"[]", out)
	}
}
