package capability

import (
	"context"
	"errors"
	"fmt"
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

// checkGateway asks which gateway is this person's.
func checkGateway(h *Host, _ facts) Check {
	if h.Registered == nil {
		return unprobed("the registration of an OpenShell gateway")
	}
	found, err := h.Registered()
	if err != nil {
		c := refused(err, false)
		c.Needed = "a registered gateway"
		return c
	}
	return Check{State: OK, Found: plain(found)}
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
	var later *Later
	if errors.As(err, &later) {
		c.State = Warn
	}
	return c
}

// A Later is something that is not there yet, and will be once it is needed.
type Later struct{ Sentence, Advice string }

func (e *Later) Error() string { return e.Sentence }

// Hint is how to have it now.
func (e *Later) Hint() string { return e.Advice }

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
		if h.Docker != nil && ctx.Err() == nil { // what keeps Docker away has a way to mend it
			if away := h.Docker(ctx).Err(); away != nil {
				err = away
			}
		}
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
	own := h.env("XDG_CONFIG_HOME")
	if !path.IsAbs(own) {
		own = path.Join("/", h.env("HOME"), ".config")
	}
	for _, dir := range []string{own, "/etc", "/usr/lib", "/lib"} {
		text, err := h.read(path.Join(dir, "systemd/user", product.ServiceUnit))
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
