// Package config promises one table of settings: what each is called, what it
// may be, what it is now and which file, line or variable said so.
//
// A setting that nobody knows is an error that names the nearest one, and a
// value is of its declared kind or refused; nothing is guessed, because a
// misspelt setting may be the one that was to protect. Where files lie is
// here too ([FindPaths]).
//
//	paths, err := config.FindPaths(os.Getenv, os.Getuid())
//	origin := config.Origin{File: paths.Config, Environ: os.Environ()}
//	c, err := origin.Load()
//	if c.Bool(config.RolesSandbox) { … }
//	change, err := origin.Set(config.SandboxEngine, "native")
package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/viper"

	"github.com/mojoup/mojoup-node/internal/fault"
)

// An Origin is where settings come from: a file, which may be missing, and the
// environment, which overrides it.
type Origin struct {
	File    string   // absolute path of node.toml; "" means none
	Environ []string // KEY=VALUE, as os.Environ gives it
}

// SourceKind tells which of the three gave a value.
type SourceKind string

// What can give a value, the weakest first.
const (
	FromDefault     SourceKind = "default"
	FromFile        SourceKind = "file"
	FromEnvironment SourceKind = "environment"
)

// A Source is where a value came from.
type Source struct {
	Kind     SourceKind
	File     string // of FromFile
	Line     int    // of FromFile, from 1
	Variable string // of FromEnvironment
}

// String names the source for people: "default", "/path/node.toml:3" or the
// name of the variable.
func (s Source) String() string {
	switch s.Kind {
	case FromFile:
		return fmt.Sprintf("%s:%d", s.File, s.Line)
	case FromEnvironment:
		return s.Variable
	}
	return string(FromDefault)
}

// A Value is what one setting is, and why.
type Value struct {
	Setting Setting
	// Text is the value as `config set` takes it.
	Text   string
	Source Source
	data   any
}

// Any is the value for JSON: a string, bool, int64, float64 or []string. Sizes,
// durations and address ranges are texts.
func (v Value) Any() any {
	switch v.Setting.Kind {
	case Size, Duration:
		return v.Text
	case Prefixes:
		out := []string{}
		for _, p := range v.data.([]netip.Prefix) {
			out = append(out, p.String())
		}
		return out
	}
	return v.data
}

// A Config is what every setting is. It does not change.
type Config struct {
	values map[string]Value
}

// Load reads file and environment. A missing file is an empty one; anything
// else that is wrong is an error with its place, and no setting is taken.
func (o Origin) Load() (*Config, error) { return o.load(current) }

func (o Origin) load(t table) (*Config, error) {
	env, err := t.environment(o.Environ)
	if err != nil {
		return nil, err
	}
	doc, err := o.read()
	if err != nil {
		return nil, err
	}
	return t.resolve(doc, env)
}

// resolve checks a document and gives every setting its value.
func (t table) resolve(doc *document, env map[string]string) (*Config, error) {
	if err := doc.check(t); err != nil {
		return nil, err
	}
	merged, err := t.merge(doc, env)
	if err != nil {
		return nil, err
	}
	c := &Config{values: map[string]Value{}}
	var bad []error
	for _, s := range t.settings {
		v, err := s.value(merged.Get(s.Key), sourceOf(s, doc, env))
		if err != nil {
			bad = append(bad, err)
			continue
		}
		c.values[s.Key] = v
	}
	if err := firstOf(bad); err != nil {
		return nil, err
	}
	return c, nil
}

// merge lets viper lay environment over file over defaults. What viper does to
// names (lower case, split at dots) cannot matter: only names of the table get
// here, which have no capitals, and which the document was checked to spell as
// the table does.
func (t table) merge(doc *document, env map[string]string) (*viper.Viper, error) {
	v := viper.New()
	v.SetConfigType("toml")
	if err := v.ReadConfig(bytes.NewReader(doc.text)); err != nil {
		return nil, fmt.Errorf("BUG: reading %s again: %w", doc.file, err)
	}
	for _, s := range t.settings {
		v.SetDefault(s.Key, fromText(s.Default))
	}
	for key, text := range env {
		v.Set(key, fromText(text))
	}
	return v, nil
}

// fromText marks a value that is not of the file: a text in the form that
// `config set` takes, whatever its kind.
type fromText string

// value makes a raw value of viper's one of the setting's kind.
func (s Setting) value(raw any, src Source) (Value, error) {
	var text string
	var data any
	var err error
	if t, ok := raw.(fromText); ok {
		text = string(t)
		data, err = s.parse(text)
	} else {
		text, data, err = s.decode(raw)
	}
	if wrong, ok := errors.AsType[*ValueError](err); ok && wrong.hint == "" && src.Kind == FromFile {
		wrong.hint = s.inFile(raw)
	}
	if err != nil {
		return Value{}, &PlaceError{Place: src.String(), Err: err}
	}
	return Value{Setting: s, Text: text, Source: src, data: data}, nil
}

// sourceOf says which of the three viper will have taken.
func sourceOf(s Setting, doc *document, env map[string]string) Source {
	if _, ok := env[s.Key]; ok {
		return Source{Kind: FromEnvironment, Variable: s.Variable()}
	}
	if e := doc.find(s.Key); e != nil {
		return Source{Kind: FromFile, File: doc.file, Line: doc.line(e.start)}
	}
	return Source{Kind: FromDefault}
}

// maxFile bounds the file, in bytes.
const maxFile = 1 << 20

// read reads and parses the file.
func (o Origin) read() (*document, error) {
	text, err := readRegular(o.File)
	if errors.Is(err, fs.ErrNotExist) || o.File == "" {
		text, err = nil, nil
	}
	if err != nil {
		return nil, &FileError{File: o.File, Doing: "reading", Err: err}
	}
	return parseDocument(o.File, text)
}

// readRegular reads a regular file of ours whole, behind every symbolic link.
// Another kind, a pipe for example, could keep the reader waiting for ever.
func readRegular(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|nonBlocking, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat() // of what was opened, not of what has the name by now
	if err != nil {
		return nil, err
	}
	switch {
	case !info.Mode().IsRegular():
		return nil, errors.New("it is not a regular file")
	case info.Size() > maxFile:
		return nil, errors.New("it is larger than 1 MiB")
	}
	if err := trusted(path, info, os.Geteuid()); err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(f, maxFile))
}

// trusted refuses a file that somebody else could have written: what is set
// decides what sessions may do. Root may write everybody's settings anyway.
func trusted(path string, info fs.FileInfo, uid int) error {
	owner, ok := ownerOf(info)
	switch {
	case !ok:
		return &TrustError{File: path, Reason: "its owner is not known", hint: "move it to a local disk, or name another file in MOJOUP_CONFIG"}
	case owner != uid && owner != 0:
		return &TrustError{File: path, Reason: fmt.Sprintf("it belongs to uid %d, not to uid %d or root", owner, uid), hint: "make it yours with chown, or name another file in MOJOUP_CONFIG"}
	case othersWrite(info):
		return &TrustError{File: path, Reason: "others may write it", hint: "chmod go-w " + fault.Quoted(path)}
	}
	return nil
}

// environment finds the settings among the variables.
func (t table) environment(environ []string) (map[string]string, error) {
	known := map[string]string{}
	for _, s := range t.settings {
		known[s.Variable()] = s.Key
	}
	env := map[string]string{}
	var bad []error
	for _, kv := range environ {
		name, text, ok := strings.Cut(kv, "=")
		if !ok || !strings.HasPrefix(name, variablePrefix+"NODE_") {
			continue
		}
		if key, ok := known[name]; ok {
			env[key] = text
			continue
		}
		bad = append(bad, &PlaceError{Place: "environment", Err: t.unknownVariable(name)})
	}
	return env, firstOf(bad)
}

// Get returns one setting, or a [KeyError].
func (c *Config) Get(key string) (Value, error) {
	if v, ok := c.values[key]; ok {
		return v, nil
	}
	return Value{}, current.unknown(key)
}

// Values returns every setting in the order of the table.
func (c *Config) Values() []Value {
	out := make([]Value, 0, len(c.values))
	for _, s := range current.settings {
		if v, ok := c.values[s.Key]; ok {
			out = append(out, v)
		}
	}
	return out
}

// Notices names, in one sentence each, what is set and has no effect or cannot
// be carried out.
func (c *Config) Notices() []string {
	var out []string
	for _, v := range c.Values() {
		if v.Setting.Later != "" && v.Source.Kind != FromDefault {
			out = append(out, fmt.Sprintf("%s (%s) has no effect: %s", v.Setting.Key, v.Source, v.Setting.Later))
		}
		if r := v.Setting.refused(v.Text); r != "" {
			out = append(out, r)
		}
	}
	if c.Bool(RolesSandbox) && c.String(SandboxEngine) == EngineOff {
		out = append(out, fmt.Sprintf("%s has no effect while %s is %s", RolesSandbox, SandboxEngine, EngineOff))
	}
	return out
}

// get returns a value of a kind that the caller knows it to have.
func get[T any](c *Config, key string) T {
	v, ok := c.values[key].data.(T)
	if !ok {
		panic(fmt.Sprintf("BUG: setting %q asked for as %T", key, v))
	}
	return v
}

// String returns a setting of kind String or Enum. Like its relatives below it
// panics on a key of another kind: keys are the constants of this package.
func (c *Config) String(key string) string { return get[string](c, key) }

// Bool returns a setting of kind Bool.
func (c *Config) Bool(key string) bool { return get[bool](c, key) }

// Int returns a setting of kind Int, or of kind Size in bytes.
func (c *Config) Int(key string) int64 { return get[int64](c, key) }

// Float returns a setting of kind Float.
func (c *Config) Float(key string) float64 { return get[float64](c, key) }

// Duration returns a setting of kind Duration.
func (c *Config) Duration(key string) time.Duration { return get[time.Duration](c, key) }

// Prefixes returns a setting of kind Prefixes.
func (c *Config) Prefixes(key string) []netip.Prefix {
	return slices.Clone(get[[]netip.Prefix](c, key))
}

// List returns a setting of kind List.
func (c *Config) List(key string) []string { return slices.Clone(get[[]string](c, key)) }
