package openshell_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/gatewaytest"
)

// A home is a person's configuration and the system's.
type home struct {
	t            *testing.T
	user, system string
	env          map[string]string
}

func newHome(t *testing.T) *home {
	h := &home{t: t, user: filepath.Join(t.TempDir(), "config"), system: filepath.Join(t.TempDir(), "etc")}
	h.env = map[string]string{"XDG_CONFIG_HOME": h.user, "OPENSHELL_SYSTEM_GATEWAY_DIR": h.system}
	return h
}

func (h *home) write(name, text string, mode os.FileMode) string {
	h.t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		h.t.Fatal(err)
	}
	if err := os.Chmod(name, mode); err != nil {
		h.t.Fatal(err)
	}
	return name
}

// gateway registers one; an empty rest is a plaintext one of this machine.
func (h *home) gateway(root, name, endpoint, rest string) {
	h.t.Helper()
	if root == h.user {
		root = filepath.Join(h.user, "openshell")
	}
	h.write(filepath.Join(root, "gateways", name, "metadata.json"), fmt.Sprintf(`{"name":%q,"gateway_endpoint":%q,"gateway_port":0,"is_remote":false%s}`, name, endpoint, rest), 0o644)
}

func (h *home) active(root, name string) {
	h.t.Helper()
	if root == h.user {
		root = filepath.Join(h.user, "openshell")
	}
	h.write(filepath.Join(root, "active_gateway"), name+"\n", 0o644)
}

func (h *home) discover(chosen string) (openshell.Registration, error) {
	return openshell.Discover(openshell.Where{Chosen: chosen, UID: os.Getuid(), Getenv: func(name string) string { return h.env[name] }})
}

// The same gateway is taken as the command line of OpenShell takes: the
// setting, the variables, the person's choice, the system's.
func TestDiscoverChooses(t *testing.T) {
	h := newHome(t)
	h.gateway(h.user, "mine", "http://127.0.0.1:1001", "")
	h.gateway(h.user, "both", "http://127.0.0.1:1002", "")
	h.gateway(h.system, "both", "http://127.0.0.1:2002", "")
	h.gateway(h.system, "theirs", "http://localhost:2003", "")
	h.active(h.system, "theirs")
	expect := func(what, chosen, name, endpoint string) {
		t.Helper()
		reg, err := h.discover(chosen)
		if err != nil || reg.Name != name || reg.Endpoint != endpoint || reg.Auth != openshell.AuthPlain {
			t.Errorf("%s: %+v %v, wanted %s at %s", what, reg, err, name, endpoint)
		}
	}
	expect("the system's choice", "", "theirs", "http://localhost:2003")
	h.active(h.user, "../evil")
	expect("a choice that is no name", "", "theirs", "http://localhost:2003")
	h.active(h.user, "mine")
	expect("the person's choice", "", "mine", "http://127.0.0.1:1001")
	h.env["OPENSHELL_GATEWAY"] = "both"
	expect("a variable", "", "both", "http://127.0.0.1:1002")
	expect("the setting", "theirs", "theirs", "http://localhost:2003")
	h.env["OPENSHELL_GATEWAY_ENDPOINT"] = "http://127.0.0.1:3000"
	expect("a variable with the address", "", "both", "http://127.0.0.1:3000")
	h.env["OPENSHELL_GATEWAY"] = "unregistered"
	expect("an address of one that is not registered", "", "unregistered", "http://127.0.0.1:3000")
	delete(h.env, "OPENSHELL_GATEWAY")
	expect("an address alone", "", "", "http://127.0.0.1:3000")
	h.env["OPENSHELL_GATEWAY_ENDPOINT"] = "http://127.0.0.1:1002/"
	expect("an address that is registered", "", "both", "http://127.0.0.1:1002/")
	if reg, err := h.discover(""); err != nil || reg.Workspace != "default" {
		t.Errorf("%+v %v", reg, err)
	}
	h.env["OPENSHELL_WORKSPACE"] = "team"
	if reg, err := h.discover(""); err != nil || reg.Workspace != "team" {
		t.Errorf("%+v %v", reg, err)
	}
	h.env = map[string]string{"HOME": filepath.Dir(h.user), "OPENSHELL_SYSTEM_GATEWAY_DIR": "relative"}
	if err := os.Rename(h.user, filepath.Join(filepath.Dir(h.user), ".config")); err != nil {
		t.Fatal(err)
	}
	expect("below the home", "", "mine", "http://127.0.0.1:1001")
}

// B06 to B08: what stands in the way has a sentence and a mend of its own.
func TestDiscoverRefuses(t *testing.T) {
	pems := filepath.Join(t.TempDir(), "pems")
	source := gatewaytest.Start(t, gatewaytest.Options{TLS: true})
	source.Register(pems)
	found, err := filepath.Glob(filepath.Join(pems, "openshell/gateways/*/mtls/*"))
	if err != nil || len(found) != 3 {
		t.Fatal(found, err)
	}
	pem := map[string]string{}
	for _, name := range found {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		pem[filepath.Base(name)] = string(text)
	}
	mtls := func(h *home, without string) {
		h.gateway(h.user, "g", "https://127.0.0.1:1", "")
		for name, text := range pem {
			if name != without {
				h.write(filepath.Join(h.user, "openshell/gateways/g/mtls", name), text, 0o600)
			}
		}
	}
	file := func(h *home, name string) string { return filepath.Join(h.user, "openshell/gateways/g", name) }
	oidc := func(h *home, token string, mode os.FileMode) {
		mtls(h, "")
		h.gateway(h.user, "g", "https://127.0.0.1:1", `,"auth_mode":"oidc"`)
		if token != "" {
			h.write(file(h, "oidc_token.json"), token, mode)
		}
	}
	for name, c := range map[string]struct {
		make func(h *home)
		code openshell.Code
		hint string
	}{
		"all is well":   {func(h *home) { mtls(h, "") }, "", ""},
		"a token":       {func(h *home) { oidc(h, `{"access_token":"a.b.c","expires_at":99999999999}`, 0o600) }, "", ""},
		"a token alone": {func(h *home) { oidc(h, `{"access_token":"a.b.c"}`, 0o600); os.RemoveAll(file(h, "mtls")) }, "", ""},
		"nothing":       {func(h *home) { h.env["OPENSHELL_GATEWAY"] = "" }, openshell.NotRegistered, "openshell gateway add"},
		"chosen only":   {func(h *home) {}, openshell.NotRegistered, "gateway list"},
		"no JSON":       {func(h *home) { h.write(file(h, "metadata.json"), "{", 0o644) }, openshell.BadFiles, "gateway add"},
		"no endpoint":   {func(h *home) { h.write(file(h, "metadata.json"), "{}", 0o644) }, openshell.BadFiles, "gateway add"},
		"too large":     {func(h *home) { h.write(file(h, "metadata.json"), strings.Repeat(" ", 2<<20), 0o644) }, openshell.BadFiles, ""},
		"a directory":   {func(h *home) { os.MkdirAll(file(h, "metadata.json"), 0o755) }, openshell.BadFiles, ""},
		"a pipe":        {func(h *home) { h.gateway(h.user, "g", "unix:///run/x", "") }, openshell.BadFiles, "gateway add"},
		"a password":    {func(h *home) { h.gateway(h.user, "g", "http://a:b@127.0.0.1:1", "") }, openshell.BadFiles, ""},
		"writable by anybody": {func(h *home) {
			h.gateway(h.user, "g", "http://127.0.0.1:1", "")
			os.Chmod(file(h, "metadata.json"), 0o666)
		},
			openshell.BadFiles, "chmod o-w"},
		"in a place writable by anybody": {func(h *home) { h.gateway(h.user, "g", "http://127.0.0.1:1", ""); os.Chmod(file(h, ""), 0o777) },
			openshell.BadFiles, "chmod o-w"},
		"remote": {func(h *home) {
			h.gateway(h.user, "g", "https://127.0.0.1:1", `,"is_remote":true,"remote_host":"me@far"`)
		}, openshell.RemoteGateway, "native"},
		"another machine":     {func(h *home) { h.gateway(h.user, "g", "https://gateway.example:443", "") }, openshell.RemoteGateway, "node.openshell.gateway"},
		"another address":     {func(h *home) { h.gateway(h.user, "g", "http://192.0.2.1:1", "") }, openshell.RemoteGateway, "native"},
		"nearly localhost":    {func(h *home) { h.gateway(h.user, "g", "http://localhost.evil.example:1", "") }, openshell.RemoteGateway, ""},
		"an edge proxy":       {func(h *home) { h.gateway(h.user, "g", "https://127.0.0.1:1", `,"auth_mode":"cloudflare_jwt"`) }, openshell.BadCredentials, "gateway add"},
		"no CA":               {func(h *home) { mtls(h, "ca.crt") }, openshell.BadCredentials, "gateway add"},
		"no certificate":      {func(h *home) { mtls(h, "tls.crt") }, openshell.BadCredentials, "gateway add"},
		"no key":              {func(h *home) { mtls(h, "tls.key") }, openshell.BadCredentials, "gateway add"},
		"a key for everybody": {func(h *home) { mtls(h, ""); os.Chmod(file(h, "mtls/tls.key"), 0o644) }, openshell.BadCredentials, "chmod 600"},
		"a CA that is none":   {func(h *home) { mtls(h, ""); h.write(file(h, "mtls/ca.crt"), "x", 0o600) }, openshell.BadCredentials, "generate-certs"},
		"another's key":       {func(h *home) { mtls(h, ""); h.write(file(h, "mtls/tls.crt"), pem["ca.crt"], 0o600) }, openshell.BadCredentials, "generate-certs"},
		"https alone": {func(h *home) {
			h.env["OPENSHELL_GATEWAY"] = ""
			h.env["OPENSHELL_GATEWAY_ENDPOINT"] = "https://127.0.0.1:1"
		}, openshell.BadCredentials, "gateway add"},
		"nobody signed in":      {func(h *home) { oidc(h, "", 0) }, openshell.BadCredentials, "gateway login g"},
		"signed in long ago":    {func(h *home) { oidc(h, `{"access_token":"a","expires_at":1000}`, 0o600) }, openshell.BadCredentials, "gateway login g"},
		"a token for everybody": {func(h *home) { oidc(h, `{"access_token":"a"}`, 0o640) }, openshell.BadCredentials, "chmod 600"},
		"a token of two lines":  {func(h *home) { oidc(h, `{"access_token":"a\r\nx: y"}`, 0o600) }, openshell.BadCredentials, "gateway login g"},
		"a token in the clear": {func(h *home) {
			h.gateway(h.user, "g", "http://127.0.0.1:1", `,"auth_mode":"oidc"`)
		}, openshell.BadCredentials, "https"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHome(t)
			h.env["OPENSHELL_GATEWAY"] = "g"
			c.make(h)
			_, err := h.discover("")
			if c.code == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			wants(t, err, c.code, c.hint)
		})
	}
	for _, name := range []string{"..", "a/b", strings.Repeat("x", 300)} {
		_, err := newHome(t).discover(name)
		wants(t, err, openshell.BadFiles, "gateway list")
	}
}

// What another user wrote does not decide where credentials are sent.
func TestDiscoverOwner(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("wants root: files of another user must be made")
	}
	h := newHome(t)
	h.gateway(h.user, "g", "http://127.0.0.1:1", "")
	where := openshell.Where{Chosen: "g", UID: 1000, Getenv: func(name string) string { return h.env[name] }}
	if _, err := openshell.Discover(where); err != nil {
		t.Errorf("root's own: %v", err)
	}
	if err := os.Chown(filepath.Join(h.user, "openshell/gateways/g/metadata.json"), 1001, 1001); err != nil {
		t.Fatal(err)
	}
	_, err := openshell.Discover(where)
	wants(t, err, openshell.BadFiles, "chown 1000")
}
