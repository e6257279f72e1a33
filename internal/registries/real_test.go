package registries

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestRealClients asks the clients of this machine, whatever they say.
func TestRealClients(t *testing.T) {
	home, err := os.UserHomeDir()
	if err != nil {
		t.Skip(err)
	}
	env := Env{Home: home, Vars: os.Environ(), Cache: &Cache{}, CacheDir: t.TempDir(), Offline: true, limit: 2 * time.Minute}
	t.Setenv("TMPDIR", t.TempDir())
	for _, name := range Names() {
		f, err := Find(t.Context(), name, env)
		if missing := (*MissingError)(nil); errors.As(err, &missing) {
			t.Logf("%s: %v", name, err)
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if len(f.Hosts) == 0 && len(f.Notes) == 0 {
			t.Errorf("%s: neither a host nor a note", name)
		}
		for _, h := range f.Hosts {
			if n, ok := normalHost(h.Name); !ok || n != h.Name || h.Port == 0 || len(h.Sources) == 0 {
				t.Errorf("%s: host %+v is not valid", name, h)
			}
			t.Logf("%s: %s:%d %v", name, h.Name, h.Port, h.Sources)
		}
		t.Logf("%s: notes %q", name, f.Notes)
	}
	left, err := filepath.Glob(filepath.Join(os.TempDir(), "mojoup-cargo-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// real gives the machine the true client of a name, or skips.
func real(t *testing.T, m *machine, client string) {
	t.Helper()
	if _, err := exec.LookPath(client); err != nil {
		t.Skipf("wanted %s, found none", client)
	}
	m.vars = []string{"PATH=" + os.Getenv("PATH")}
	for _, v := range []string{"PYENV_ROOT", "NVM_DIR"} {
		if s := os.Getenv(v); s != "" {
			m.vars = append(m.vars, v+"="+s)
		}
	}
	if own, err := os.UserHomeDir(); err == nil {
		m.vars = append(m.vars, "RUSTUP_HOME="+filepath.Join(own, ".rustup"))
		if s := os.Getenv("PYENV_ROOT"); s == "" {
			m.vars = append(m.vars, "PYENV_ROOT="+filepath.Join(own, ".pyenv"))
		}
	}
}

// tree lists what is below a directory.
func tree(t *testing.T, dir string) (out []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(p string, _ os.DirEntry, err error) error {
		out = append(out, p)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestRealSettings gives settings of ours to the real clients, in every form
// that they read, and a repository whose own settings must not decide.
func TestRealSettings(t *testing.T) {
	tests := []struct {
		name, registry, client string
		files                  map[string]string
		vars                   []string
		want                   []string
	}{
		{name: "npm", registry: "npm", client: "npm",
			files: map[string]string{".npmrc": "registry=https://npm.${CORP}:8443/x/\n@acme:registry=https://acme.example\n//npm.corp.example:8443/x/:_authToken=" + secret + "\n"},
			vars:  []string{"CORP=corp.example"},
			want:  []string{"acme.example:443 tls <- ~/.npmrc:2", "npm.corp.example:8443 tls <- ~/.npmrc:1"}},
		{name: "pip", registry: "pypi", client: "python3",
			files: map[string]string{".config/pip/pip.conf": "[global]\nindex-url = https://u:" + secret + "@pypi.corp.example/simple\n"},
			want:  []string{"pypi.corp.example:443 tls <- ~/.config/pip/pip.conf:2"}},
		{name: "go", registry: "go", client: "go",
			files: map[string]string{".config/go/env": "GOPROXY=https://go.corp.example,off\nGOSUMDB=off\n"},
			want:  []string{"go.corp.example:443 tls <- ~/.config/go/env:1"}},
		{name: "apt in both forms", registry: "debian", client: "apt-get",
			files: map[string]string{
				"sources.list":    "# deb https://off.example/ x main\ndeb [trusted=yes] https://u:" + secret + "@one.example:8443/debian bookworm main\ndeb-src http://two.example/d stable main\n",
				"parts/a.sources": "Types: deb\nURIs: https://three.example/a http://four.example/b\nSuites: x\nComponents: main\n\nEnabled: no\nTypes: deb\nURIs: https://off.example/\nSuites: x\nComponents: main\n",
				"apt.conf":        "Dir::Etc::sourcelist \"@H@/sources.list\";\nDir::Etc::sourceparts \"@H@/parts\";\nDir::State::lists \"@H@/lists\";\n"},
			vars: []string{"APT_CONFIG=@H@/apt.conf"},
			want: []string{"four.example:80 plain <- ~/parts/a.sources, entry 1", "one.example:8443 tls <- ~/sources.list, entry 2", "three.example:443 tls <- ~/parts/a.sources, entry 1", "two.example:80 plain <- ~/sources.list, entry 3"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := newMachine(t)
			real(t, m, tt.client)
			for name, text := range tt.files {
				m.file(name, text)
			}
			for _, v := range tt.vars {
				m.vars = append(m.vars, strings.ReplaceAll(v, "@H@", m.home))
			}
			repo := t.TempDir()
			m.file(filepath.Join(repo, ".npmrc"), "registry=https://repository.example\n@acme:registry=https://repository.example\n")
			m.file(filepath.Join(repo, "package.json"), "{}")
			m.file(filepath.Join(repo, "pip", "_internal", "models", "index.py"), "raise SystemExit(1)")
			t.Chdir(repo)
			before := tree(t, m.home)
			f, err := m.find(tt.registry)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(before, tree(t, m.home)); d != "" {
				t.Errorf("the client changed the home (-before +after):\n%s", d)
			}
			if d := cmp.Diff(tt.want, m.lines(f)); d != "" {
				t.Errorf("hosts (-want +got):\n%s", d)
			}
		})
	}
}

// TestRealCargoDefault asks the real cargo without any network.
func TestRealCargoDefault(t *testing.T) {
	m := newMachine(t)
	real(t, m, "cargo")
	m.env.Offline = true
	repo := t.TempDir()
	m.file(filepath.Join(repo, ".cargo", "config.toml"), "[source.crates-io]\nreplace-with='x'\n[source.x]\nregistry='sparse+https://repository.example/'\n")
	t.Chdir(repo)
	m.vars = append(m.vars, "HTTPS_PROXY=http://127.0.0.1:1", "CARGO_NET_OFFLINE=true")
	f, err := m.find("crates")
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Hosts) != 1 || !f.Hosts[0].TLS || f.Hosts[0].Name == "repository.example" || len(f.Notes) != 1 {
		t.Errorf("found %+v", f)
	}
	if left, err := os.ReadDir(m.home); err != nil || len(left) > 0 {
		t.Errorf("cargo left %v in the home (%v)", left, err)
	}
}
