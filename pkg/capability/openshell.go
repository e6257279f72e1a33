package capability

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/product"
)

// checkUser refuses the one user that a gateway runs nothing as.
func checkUser(h *Host, _ facts) Check {
	if h.UID == 0 {
		return Check{State: Fail, Found: "user 0", Reason: "OpenShell runs no sandbox as user 0, and this node is root",
			Mend: "run the node as an ordinary user, or: mojoup-node config set node.sandbox.engine native"}
	}
	return Check{State: OK, Found: fmt.Sprintf("user %d", h.UID)}
}

func checkCLI(ctx context.Context, h *Host, _ facts) Check {
	if h.LookPath == nil {
		return unprobed("the OpenShell command line")
	}
	where, err := h.LookPath(product.Program)
	if err != nil {
		return Check{State: Fail, Found: "no program " + product.Program + " in PATH", Needed: "the OpenShell command line",
			Reason: "the OpenShell command line is not installed",
			Mend:   "install OpenShell, or add its directory to PATH"}
	}
	if h.CLIVersion == nil {
		return Check{State: OK, Found: plain(where)}
	}
	version, err := h.CLIVersion(ctx, where)
	if err != nil {
		return Check{State: Warn, Found: plain(where) + ": " + plain(err.Error()), Needed: "the OpenShell command line",
			Reason: "the OpenShell command line does not say its version", Mend: "install OpenShell anew"}
	}
	return Check{State: OK, Found: plain(version) + " at " + plain(where)}
}

// checkGateway looks for the gateway that the OpenShell command line would use.
// It asks no container by name: what a gateway is called in Docker has changed
// before.
func checkGateway(h *Host, _ facts) Check {
	if endpoint := h.env(product.EnvEndpoint); endpoint != "" {
		return registered(plain(endpoint) + " (from " + product.EnvEndpoint + ")")
	}
	roots := gatewayRoots(h)
	name := h.env(product.EnvGateway)
	for _, root := range roots {
		name = first(name, h.text(path.Join(root, product.ActiveFile)))
	}
	c := Check{State: Fail, Found: "no gateway is registered", Needed: "a registered gateway",
		Reason: "no OpenShell gateway is registered for this user",
		Mend:   "install the gateway, then: " + product.CommandAdd + " " + product.DefaultEndpoint + " --local --name " + product.Program}
	if name == "" {
		return c
	}
	if name != path.Base(name) || name == "." || name == ".." {
		c.Found, c.Reason = "the active gateway has the name "+quote(name), "the name of the active OpenShell gateway is not valid"
		return c
	}
	endpoint, err := gatewayEndpoint(h, roots, name)
	if err != nil {
		c.Found = "gateway " + quote(name) + ": " + plain(err.Error())
		c.Reason = "the OpenShell gateway " + quote(name) + " is chosen, but not registered"
		return c
	}
	return registered(plain(name) + " at " + plain(endpoint))
}

func registered(what string) Check {
	return Check{State: OK, Found: what + "; registered"}
}

// gatewayRoots are the directories to look in, the user's own first.
func gatewayRoots(h *Host) []string {
	var roots []string
	if config := h.env("XDG_CONFIG_HOME"); path.IsAbs(config) {
		roots = append(roots, path.Join(config, product.ConfigDir))
	} else if home := h.env("HOME"); path.IsAbs(home) {
		roots = append(roots, path.Join(home, ".config", product.ConfigDir))
	}
	if system := h.env(product.EnvSystemDir); path.IsAbs(system) {
		return append(roots, path.Clean(system))
	}
	return append(roots, product.SystemDir)
}

func gatewayEndpoint(h *Host, roots []string, name string) (string, error) {
	for _, root := range roots {
		text, err := h.read(path.Join(root, product.GatewaysDir, name, product.MetadataFile))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", errors.New(product.MetadataFile + " cannot be read: " + words(err))
		}
		var metadata struct {
			Endpoint string `json:"gateway_endpoint"`
		}
		if err := json.Unmarshal([]byte(text), &metadata); err != nil || strings.TrimSpace(metadata.Endpoint) == "" {
			return "", errors.New(product.MetadataFile + " names no gateway_endpoint")
		}
		return metadata.Endpoint, nil
	}
	return "", errors.New("no " + product.MetadataFile)
}

// GatewayAnswer is what a gateway says of itself.
type GatewayAnswer struct {
	Version string
	Family  string   // "0.0.x" or "0.1.x"
	Drivers []string // what it runs sandboxes on; nil where this person may not ask
}

// refused makes a check of an error that is a sentence.
func refused(err error, unknown bool) Check {
	c := Check{State: Fail, Found: plain(err.Error()), Reason: plain(err.Error())}
	if unknown {
		c.State = Unknown
	}
	var hint interface{ Hint() string }
	if errors.As(err, &hint) {
		c.Mend = plain(hint.Hint())
	}
	return c
}

func checkAnswer(ctx context.Context, h *Host, _ facts) Check {
	if h.Gateway == nil {
		return unprobed("the OpenShell gateway")
	}
	a, err := h.Gateway(ctx)
	if err != nil {
		return refused(err, ctx.Err() != nil)
	}
	c := Check{State: OK, Found: "OpenShell " + plain(a.Version)}
	switch {
	case a.Family == "0.1.x":
		c.Found += "; this family is known by its descriptors and its public SDK only: it was never run here"
	case a.Drivers == nil:
		c.Found += "; what it runs sandboxes on may not be asked"
	}
	if a.Drivers != nil && !slices.Contains(a.Drivers, product.Driver) {
		runs := plain(strings.Join(a.Drivers, ", "))
		return Check{State: Fail, Found: c.Found + " on " + first(runs, "nothing"), Reason: "the OpenShell gateway does not run sandboxes on Docker, but on " + first(runs, "nothing"),
			Mend: "set compute_drivers = [\"docker\"] in its gateway.toml and restart it"}
	}
	return c
}

func checkImage(ctx context.Context, h *Host, _ facts) Check {
	if h.Image == nil {
		return unprobed("the sandbox image")
	}
	found, err := h.Image(ctx)
	if err != nil {
		return refused(err, ctx.Err() != nil)
	}
	return Check{State: OK, Found: plain(found)}
}

func checkBinds(ctx context.Context, h *Host, _ facts) Check {
	if h.Binds == nil {
		return unprobed("mounts of this machine")
	}
	if err := h.Binds(ctx); err != nil {
		return refused(err, ctx.Err() != nil)
	}
	return Check{State: OK, Found: "a sandbox with one was accepted, and deleted again"}
}

func checkReach(ctx context.Context, h *Host, _ facts) Check {
	if h.Reach == nil {
		return Check{State: OK, Found: "not tried at every start; mojoup-node doctor does, and each session's own check"}
	}
	if err := h.Reach(ctx); err != nil {
		return refused(err, ctx.Err() != nil)
	}
	return Check{State: OK, Found: "a container saw a file of this node, and reached its port"}
}

// checkPrivateTmp looks at the gateway's unit: one with a /tmp of its own does
// not see repositories there.
func checkPrivateTmp(h *Host, _ facts) Check {
	var units []string
	for _, root := range gatewayRoots(h) {
		units = append(units, path.Join(path.Dir(root), "systemd/user", product.ServiceUnit))
	}
	for _, dir := range []string{"/etc", "/usr/lib", "/lib"} {
		units = append(units, path.Join(dir, "systemd/user", product.ServiceUnit))
	}
	for _, unit := range units {
		text, err := h.read(unit)
		if err != nil {
			continue
		}
		for line := range strings.Lines(text) {
			switch strings.ToLower(strings.TrimSpace(line)) {
			case "privatetmp=true", "privatetmp=yes", "privatetmp=1", "privatetmp=on":
				return Check{State: OK, Found: "its own (PrivateTmp): repositories below /tmp and /var/tmp cannot be used with it"}
			}
		}
		return Check{State: OK, Found: "this machine's"}
	}
	return Check{State: OK, Found: "no unit of the gateway is installed"}
}
