package policy

import (
	"bytes"
	"encoding/json"
)

// Schema returns the JSON Schema (draft 2020-12) of a policy document, made
// from the table that [Parse] checks by. It is never stricter than Parse, and
// laxer where a schema cannot say what Parse knows. JSON Schema knows neither
// comments nor trailing commas: editors must be told that the file is "JSON
// with comments".
func Schema() []byte {
	table := documentKey()
	root := fields{
		{"$schema", "https://json-schema.org/draft/2020-12/schema"},
		{"title", "mojoup-node policy (.mojoup/policy.json)"},
	}
	root = append(root, schemaOf(&table)...)
	text, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		panic("BUG: marshalling the schema: " + err.Error())
	}
	return append(text, '\n')
}

// fields is a JSON object that keeps its order, so that the schema reads in
// the order of the table.
type fields []field

type field struct {
	name  string
	value any
}

// MarshalJSON writes the fields in their order.
func (f fields) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	for i, one := range f {
		if i > 0 {
			b.WriteByte(',')
		}
		if err := enc.Encode(one.name); err != nil {
			return nil, err
		}
		b.WriteByte(':')
		if err := enc.Encode(one.value); err != nil {
			return nil, err
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

func schemaOf(k *key) fields {
	var f fields
	if k.about != "" {
		f = append(f, field{"description", k.about})
	}
	switch k.kind {
	case kindObject:
		f = append(f, schemaOfObject(k)...)
	case kindArray:
		f = append(f, field{"type", "array"}, field{"items", schemaOf(k.item)})
		if k.min > 0 {
			f = append(f, field{"minItems", k.min})
		}
		f = append(f, field{"maxItems", k.most()})
	case kindNumber:
		f = append(f, schemaOfNumber(k)...)
	case kindString:
		f = append(f, field{"type", "string"})
		if len(k.values) > 0 {
			f = append(f, field{"enum", k.values})
		}
		if k.pattern != "" {
			f = append(f, field{"pattern", k.pattern})
		}
	}
	return f
}

func schemaOfNumber(k *key) fields {
	kind := "number"
	if k.whole {
		kind = "integer"
	}
	return fields{{"type", kind}, {"minimum", k.min}, {"maximum", k.max}}
}

func schemaOfObject(k *key) fields {
	properties := fields{}
	for i := range k.keys {
		properties = append(properties, field{k.keys[i].name, schemaOf(&k.keys[i])})
	}
	f := fields{{"type", "object"}, {"properties", properties}, {"additionalProperties", false}}
	if len(k.must) > 0 {
		f = append(f, field{"required", k.must})
	}
	if find(k.keys, "preset") != nil {
		// A rule names its hosts itself or through a preset, see checkSource.
		f = append(f, field{"oneOf", []fields{{{"required", []string{"hosts"}}}, {{"required", []string{"preset"}}}}})
	}
	return f
}
