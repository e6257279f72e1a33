package capability

import (
	"encoding/json"
	"errors"
	"io/fs"
	"path"
	"strings"
)

// Where OpenShell keeps what a client needs, as its command line documents it.
const (
	openshellProgram   = "openshell"
	openshellSystemDir = "/etc/openshell"
)

// checkBuilt stands until the docker engine is part of the program.
func checkBuilt() Check {
	return Check{State: Fail, Found: "not part of this version", Needed: "a version that has it",
		Reason: "the docker engine is not part of this version yet: set node.sandbox.engine native",
		Mend:   "mojoup-node config set node.sandbox.engine native"}
}

func checkCLI(h *Host, _ facts) Check {
	if h.LookPath == nil {
		return unprobed("the OpenShell command line")
	}
	where, err := h.LookPath(openshellProgram)
	if err != nil {
		return Check{State: Fail, Found: "no program " + openshellProgram + " in PATH", Needed: "the OpenShell command line",
			Reason: "the OpenShell command line is not installed",
			Mend:   "install OpenShell, or add its directory to PATH"}
	}
	return Check{State: OK, Found: plain(where)}
}

// checkGateway looks for the gateway that the OpenShell command line would use.
// It asks no container by name: what a gateway is called in Docker has changed
// before.
func checkGateway(h *Host, _ facts) Check {
	if endpoint := h.env("OPENSHELL_GATEWAY_ENDPOINT"); endpoint != "" {
		return registered(plain(endpoint) + " (from OPENSHELL_GATEWAY_ENDPOINT)")
	}
	roots := gatewayRoots(h)
	name := h.env("OPENSHELL_GATEWAY")
	for _, root := range roots {
		name = first(name, h.text(path.Join(root, "active_gateway")))
	}
	c := Check{State: Fail, Found: "no gateway is registered", Needed: "a registered gateway",
		Reason: "no OpenShell gateway is registered for this user",
		Mend:   "install the gateway, then: openshell gateway add https://127.0.0.1:17670 --local --name openshell"}
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
	return Check{State: OK, Found: what + "; registered, not yet asked whether it answers"}
}

// gatewayRoots are the directories to look in, the user's own first.
func gatewayRoots(h *Host) []string {
	var roots []string
	if config := h.env("XDG_CONFIG_HOME"); path.IsAbs(config) {
		roots = append(roots, path.Join(config, "openshell"))
	} else if home := h.env("HOME"); path.IsAbs(home) {
		roots = append(roots, path.Join(home, ".config/openshell"))
	}
	if system := h.env("OPENSHELL_SYSTEM_GATEWAY_DIR"); path.IsAbs(system) {
		return append(roots, path.Clean(system))
	}
	return append(roots, openshellSystemDir)
}

func gatewayEndpoint(h *Host, roots []string, name string) (string, error) {
	for _, root := range roots {
		text, err := h.read(path.Join(root, "gateways", name, "metadata.json"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", errors.New("metadata.json cannot be read: " + words(err))
		}
		var metadata struct {
			Endpoint string `json:"gateway_endpoint"`
		}
		if err := json.Unmarshal([]byte(text), &metadata); err != nil || strings.TrimSpace(metadata.Endpoint) == "" {
			return "", errors.New("metadata.json names no gateway_endpoint")
		}
		return metadata.Endpoint, nil
	}
	return "", errors.New("no metadata.json")
}
