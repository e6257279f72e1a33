package capability

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// hinted is an error as package openshell makes them.
type hinted struct{ sentence, hint string }

func (e hinted) Error() string { return e.sentence }
func (e hinted) Hint() string  { return e.hint }

// TestB08_WhatTheGatewayLacks: each refusal is one sentence with a mend, and
// decides engine docker and nothing else.
func TestB08_WhatTheGatewayLacks(t *testing.T) {
	says := hinted{"bind mounts are off at the gateway", "set enable_bind_mounts = true"}
	for name, tt := range map[string]struct {
		change func(h *Host)
		check  string
		state  State
		reason string
		mend   string
	}{
		"root": {func(h *Host) { h.UID = 0 }, NameUser, Fail, "OpenShell runs no sandbox as user 0, and this node is root", "native"},
		"silent": {func(h *Host) {
			h.Gateway = func(context.Context) (GatewayAnswer, error) { return GatewayAnswer{}, says }
		},
			NameAnswer, Fail, says.sentence, says.hint},
		"another driver": {func(h *Host) {
			h.Gateway = func(context.Context) (GatewayAnswer, error) {
				return GatewayAnswer{Version: "0.0.111", Drivers: []string{"podman"}}, nil
			}
		}, NameAnswer, Fail, "the OpenShell gateway does not run sandboxes on Docker, but on podman", "compute_drivers"},
		"no driver": {func(h *Host) {
			h.Gateway = func(context.Context) (GatewayAnswer, error) { return GatewayAnswer{Drivers: []string{}}, nil }
		}, NameAnswer, Fail, "the OpenShell gateway does not run sandboxes on Docker, but on nothing", "compute_drivers"},
		"no binds": {func(h *Host) { h.Binds = func(context.Context) error { return says } }, NameBinds, Fail, says.sentence, says.hint},
		"no image": {func(h *Host) { h.Image = func(context.Context) (string, error) { return "", says } }, NameImage, Fail, says.sentence, says.hint},
		"no image yet": {func(h *Host) {
			h.Image = func(context.Context) (string, error) {
				return "", fmt.Errorf("looking: %w", &Later{"it is fetched when it is needed", "docker pull it"})
			}
		}, NameImage, Warn, "looking: it is fetched when it is needed", "docker pull it"},
		"firewall": {func(h *Host) { h.Reach = func(context.Context) error { return says } }, NameReach, Fail, says.sentence, says.hint},
		"rootless": {func(h *Host) {
			h.Docker = func(context.Context) DockerAnswer { return DockerAnswer{API: "1.51", Engine: "28.0.0", Rootless: true} }
		}, NameDocker, Fail, "Docker is rootless: files made in a container would belong to other users here", "unset DOCKER_HOST"},
		"remapped": {func(h *Host) {
			h.Docker = func(context.Context) DockerAnswer { return DockerAnswer{API: "1.51", Engine: "28.0.0", Remapped: true} }
		}, NameDocker, Fail, "Docker remaps users: files made in a container would belong to other users here", "userns-remap"},
		"snap": {func(h *Host) {
			h.Docker = func(context.Context) DockerAnswer { return DockerAnswer{API: "1.51", Engine: "28.0.0", Snap: true} }
		}, NameDocker, Warn, "Docker from a snap sees only files below home directories", "below your home"},
		"mute command line": {func(h *Host) {
			h.CLIVersion = func(context.Context, string) (string, error) { return "", errors.New("exit status 1") }
		}, NameCLI, Warn, "the OpenShell command line does not say its version", "install OpenShell anew"},
	} {
		t.Run(name, func(t *testing.T) {
			h := goodHost()
			h.Registered = func() (string, error) { return "a gateway; registered", nil }
			if _, v := Decide(Examine(t.Context(), h, Docker).Checks, Docker); !v.Able {
				t.Fatalf("a good host cannot: %s", v)
			}
			tt.change(&h)
			c := check(t, h, tt.check)
			if c.State != tt.state || c.Reason != tt.reason || !strings.Contains(c.Mend, tt.mend) {
				t.Errorf("%s: %q, mend %q", c.State, c.Reason, c.Mend)
			}
			wellSaid(t, c)
			checks := Examine(t.Context(), h, Docker).Checks
			if _, v := Decide(checks, Docker); v.Able != (tt.state == Warn) || !v.Able && v.Reason != tt.reason {
				t.Errorf("verdict %q", v)
			}
			if _, v := Decide(checks, Native); !v.Able {
				t.Errorf("native is failed for it: %q", v)
			}
		})
	}
}

// TestReachIsTriedWhereAsked: at a node's start nothing that takes seconds is
// tried, and engine docker is not failed for that.
func TestReachIsTriedWhereAsked(t *testing.T) {
	h := goodHost()
	h.Reach = nil
	if c := check(t, h, NameReach); c.State != OK || !strings.Contains(c.Found, "not tried") {
		t.Errorf("%s: %s", c.State, c.Found)
	}
}

func TestB57_PrivateTmpIsSaid(t *testing.T) {
	for text, want := range map[string]string{
		"[Service]\nPrivateTmp=true\n": "repositories below /tmp", "[Service]\nPrivateTmp=yes\n": "repositories below /tmp", "[Service]\nPrivateTmp=no\n": "this machine's",
	} {
		h := goodHost()
		h.Getenv = environment(map[string]string{"HOME": "/home/me"})
		h.Files = changed(map[string]string{"/usr/lib/systemd/user/openshell-gateway.service": text})
		if c := check(t, h, NamePrivateTmp); !strings.Contains(c.Found, want) {
			t.Errorf("%q: %s", text, c.Found)
		}
	}
}
