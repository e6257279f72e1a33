package config

import (
	"os"
	"path/filepath"
	"testing"
)

// origin writes a file of settings and returns where it is.
func origin(t testing.TB, text string, environ ...string) Origin {
	t.Helper()
	file := filepath.Join(t.TempDir(), "node.toml")
	if err := os.WriteFile(file, []byte(text), 0o640); err != nil {
		t.Fatal(err)
	}
	return Origin{File: file, Environ: environ}
}

func load(t testing.TB, o Origin) *Config {
	t.Helper()
	c, err := o.Load()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestSmoke(t *testing.T) {
	o := origin(t, "")
	t.Log(o.Set(SandboxEngine, "native"))
	t.Log(o.Set(RolesSandbox, "true"))
	t.Log(o.Set(NetworkPrivate, "10.0.0.0/8,fd00::/8"))
	b, _ := os.ReadFile(o.File)
	t.Log(string(b))
	c := load(t, o)
	for _, v := range c.Values() {
		t.Log(v.Setting.Key, v.Text, v.Source, v.Any())
	}
}
