package openshell

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/product"
)

// Ways of saying who we are.
const (
	AuthMTLS  = "mtls"
	AuthOIDC  = "oidc"
	AuthPlain = "plaintext"
)

// Where is whose registrations are looked for.
type Where struct {
	// Chosen is the setting node.openshell.gateway: the name of a registered
	// gateway. Empty means the one that the person's own command line takes.
	Chosen string
	// Getenv is the person's environment, not the node's.
	Getenv func(string) string
	// UID is the person's, who must own what is trusted here, or root.
	UID int
}

// Registration is a gateway as it is registered, before anything was asked of
// it.
type Registration struct {
	Name      string // empty for one that is known by its address only
	Endpoint  string // URL
	Auth      string
	Workspace string
	// Dir holds its credentials. It is the person's own: nothing secret is
	// taken from the system's registrations.
	Dir string
	UID int
}

// title is what messages call it.
func (r Registration) title() string {
	if r.Name == "" {
		return "the OpenShell gateway at " + r.Endpoint
	}
	return "the OpenShell gateway " + r.Name
}

// entry is a registration as it is written. What is not named here is not
// used.
type entry struct {
	Endpoint   string `json:"gateway_endpoint"`
	Remote     bool   `json:"is_remote"`
	RemoteHost string `json:"remote_host"`
	Auth       string `json:"auth_mode"`
}

// Discover finds the gateway that is set, or else the one that the command
// line of OpenShell would take, by the same files and variables. It connects
// to nothing.
func Discover(w Where) (Registration, error) {
	name, endpoint := w.Chosen, ""
	if name == "" {
		endpoint = strings.TrimSpace(w.Getenv(product.EnvEndpoint))
		name = strings.TrimSpace(w.Getenv(product.EnvGateway))
	}
	if name == "" && endpoint == "" {
		var err error
		if name, err = w.active(); err != nil {
			return Registration{}, err
		}
	}
	if endpoint != "" && name == "" {
		name = w.registeredAt(endpoint)
	}
	reg := Registration{Name: name, Endpoint: endpoint, UID: w.UID, Workspace: strings.TrimSpace(w.Getenv(product.EnvWorkspace))}
	if reg.Workspace == "" {
		reg.Workspace = product.DefaultWorkspace
	}
	var m entry
	if name != "" {
		if !fileName(name) {
			return Registration{}, &Error{Code: BadFiles, Sentence: fmt.Sprintf("%q cannot be the name of an OpenShell gateway", word(name)),
				Advice: "choose one: " + product.CommandGateways}
		}
		reg.Dir = path.Join(w.userRoot(), product.GatewaysDir, name)
		var err error
		// Where the address is given, a registration need not be there.
		if m, err = w.metadata(name); err != nil && (endpoint == "" || !errors.Is(err, NotRegistered)) {
			return Registration{}, err
		}
		if endpoint == "" {
			reg.Endpoint = m.Endpoint
		}
	}
	return reg.settle(m)
}

// settle decides how to connect and refuses what cannot be.
func (r Registration) settle(m entry) (Registration, error) {
	at, err := url.Parse(r.Endpoint)
	if err != nil || at.Scheme != "http" && at.Scheme != "https" || at.Hostname() == "" || at.User != nil || len(r.Endpoint) > 2048 {
		return Registration{}, &Error{Code: BadFiles, Sentence: fmt.Sprintf("%s has no valid address: %q", Registration{Name: r.Name}.title(), word(r.Endpoint)),
			Advice: "register it anew: " + product.CommandAdd + " " + product.DefaultEndpoint + " --local"}
	}
	if m.Remote || !onThisMachine(at.Hostname()) {
		host := at.Hostname()
		if m.RemoteHost != "" {
			host = m.RemoteHost
		}
		return Registration{}, &Error{Code: RemoteGateway, Sentence: fmt.Sprintf("%s runs on another machine (%s), where the repository is not", r.title(), word(host)),
			Advice: "choose one of this machine: mojoup-node config set node.openshell.gateway NAME, or node.sandbox.engine native"}
	}
	switch {
	case m.Auth == AuthOIDC && at.Scheme == "http":
		return Registration{}, &Error{Code: BadCredentials, Sentence: r.title() + " is registered to be sent its token unencrypted",
			Advice: "register its https address: " + product.CommandAdd}
	case m.Auth == AuthOIDC:
		r.Auth = AuthOIDC
	case at.Scheme == "http":
		r.Auth = AuthPlain
	case m.Auth == "", m.Auth == AuthMTLS, m.Auth == AuthPlain:
		// An https address asks for certificates whatever the registration says.
		r.Auth = AuthMTLS
	default:
		return Registration{}, &Error{Code: BadCredentials, Sentence: fmt.Sprintf("%s signs people in by %q, which this node cannot", r.title(), word(m.Auth)),
			Advice: "register it with mutual TLS or OIDC: " + product.CommandAdd + " " + r.Endpoint + " --local"}
	}
	// Found out now rather than at the first call.
	switch r.Auth {
	case AuthOIDC:
		if _, err := r.token(); err != nil {
			return Registration{}, err
		}
		_, err = r.material()
	case AuthMTLS:
		_, err = r.material()
	}
	return r, err
}

// onThisMachine reports whether a host is this machine by its very name. A
// name that only resolves to it may resolve elsewhere the next time.
func onThisMachine(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// fileName reports whether a name is a single component of a path.
func fileName(name string) bool {
	return name != "" && name != "." && name != ".." && len(name) <= 255 && !strings.ContainsAny(name, "/\x00\n\r")
}

// userRoot is where the person's own registrations are; empty for a person
// without a home.
func (w Where) userRoot() string {
	if config := w.Getenv("XDG_CONFIG_HOME"); path.IsAbs(config) {
		return path.Join(config, product.ConfigDir)
	}
	if home := w.Getenv("HOME"); path.IsAbs(home) {
		return path.Join(home, ".config", product.ConfigDir)
	}
	return ""
}

// roots are where registrations are looked for, the person's own first.
func (w Where) roots() []string {
	system := product.SystemDir
	if other := w.Getenv(product.EnvSystemDir); path.IsAbs(other) {
		system = path.Clean(other)
	}
	return slices.DeleteFunc([]string{w.userRoot(), system}, func(root string) bool { return root == "" })
}

// active is the name that the command line would take. A file that names
// nothing valid is passed over, as it does.
func (w Where) active() (string, error) {
	for _, root := range w.roots() {
		text, err := trusted(path.Join(root, product.ActiveFile), w.UID, readable)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", err
		}
		if name := strings.TrimSpace(string(text)); fileName(name) {
			return name, nil
		}
	}
	return "", &Error{Code: NotRegistered, Sentence: "no OpenShell gateway is registered for this user",
		Advice: "install the gateway, then: " + product.CommandAdd + " " + product.DefaultEndpoint + " --local --name " + product.Program}
}

// metadata reads a registration: the person's own hides the system's.
func (w Where) metadata(name string) (entry, error) {
	for _, root := range w.roots() {
		where := path.Join(root, product.GatewaysDir, name, product.MetadataFile)
		text, err := trusted(where, w.UID, readable)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return entry{}, err
		}
		var m entry
		if err := json.Unmarshal(text, &m); err != nil || m.Endpoint == "" {
			return entry{}, &Error{Code: BadFiles, Sentence: fmt.Sprintf("%s is not a registration: it names no gateway_endpoint", plain(where)),
				Advice: "register the gateway anew: " + product.CommandAdd + " " + product.DefaultEndpoint + " --local --name " + name, Err: err}
		}
		return m, nil
	}
	return entry{}, &Error{Code: NotRegistered, Sentence: fmt.Sprintf("the OpenShell gateway %s is chosen, but not registered", plain(name)),
		Advice: "see what is: " + product.CommandGateways + "; then: mojoup-node config set node.openshell.gateway NAME, or " + product.CommandSelect + " NAME"}
}

// registeredAt is the name under which an address is registered, or "".
func (w Where) registeredAt(endpoint string) string {
	same := func(name string) bool {
		m, err := w.metadata(name)
		return err == nil && strings.TrimSuffix(m.Endpoint, "/") == strings.TrimSuffix(endpoint, "/")
	}
	if name, err := w.active(); err == nil && same(name) {
		return name
	}
	for _, root := range w.roots() {
		for _, name := range entries(path.Join(root, product.GatewaysDir)) {
			if fileName(name) && same(name) {
				return name
			}
		}
	}
	return ""
}
