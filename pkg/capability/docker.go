package capability

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// Oldest versions of Docker.
const (
	leastAPI = "1.41" // Docker Engine 20.10
	// leastEngine is what OpenShell's support matrix asks for. Older engines
	// were seen to work, so they are a warning.
	leastEngine = 28
)

// DockerTrouble is in which way Docker did not answer.
type DockerTrouble string

// The ways, each with a sentence of its own.
const (
	DockerAnswers   DockerTrouble = ""
	DockerDown      DockerTrouble = "down"      // nothing listens
	DockerForbidden DockerTrouble = "forbidden" // no permission to connect
	DockerSilent    DockerTrouble = "silent"    // connected, no answer in time
	DockerErrs      DockerTrouble = "errs"      // answered with an error
	DockerMisset    DockerTrouble = "misset"    // DOCKER_HOST or a relative cannot be used
	DockerTooNew    DockerTrouble = "too new"   // speaks no API version that this build knows
)

// DockerAnswer is what asking the Docker daemon gave. Texts are as received.
type DockerAnswer struct {
	Address string // where it was asked, for example unix:///var/run/docker.sock
	Trouble DockerTrouble
	Detail  string // of the trouble
	Group   string // that owns the socket, where forbidden and known

	// Rootless, Remapped and Snap are kinds of Docker whose containers see other
	// users or other files than this node.
	Rootless, Remapped, Snap bool

	API, LeastAPI string // the newest and oldest API version that it speaks
	Engine        string // version of the engine
}

// A DockerError says why Docker cannot be asked.
type DockerError struct{ reason, mend string }

func (e *DockerError) Error() string { return e.reason }

// Hint is how to mend it.
func (e *DockerError) Hint() string { return e.mend }

// Err is nil where Docker answered, however old it is.
func (a DockerAnswer) Err() error {
	if a.Trouble == DockerAnswers {
		return nil
	}
	c := judgeDocker(a)
	return &DockerError{c.Reason, c.Mend}
}

func checkDocker(ctx context.Context, h *Host, _ facts) Check {
	if h.Docker == nil {
		return unprobed("Docker")
	}
	a := h.Docker(ctx)
	c := judgeDocker(a)
	if rootless := h.env("XDG_RUNTIME_DIR") + "/docker.sock"; a.Trouble == DockerDown && h.env("DOCKER_HOST") == "" &&
		strings.HasPrefix(rootless, "/run/") && h.exists(rootless) {
		c.Mend = "a rootless Docker is set up: export DOCKER_HOST=unix://" + plain(rootless) + ", or: " + c.Mend
	}
	if v := h.env("DOCKER_API_VERSION"); v != "" {
		c.Found += "; DOCKER_API_VERSION=" + plain(v) + " is ignored, the version is negotiated"
	}
	c.Needed = "Docker running, API " + leastAPI + " (Engine 20.10) or later"
	return c
}

// judgeDocker turns an answer into a check. It is pure.
func judgeDocker(a DockerAnswer) Check {
	at := plain(a.Address)
	c := Check{State: Fail, Found: "at " + at}
	switch a.Trouble {
	case DockerAnswers:
		return judgeVersions(a)
	case DockerDown:
		c.Found = "nothing listens at " + at
		c.Reason = "Docker is not running"
		c.Mend = "sudo systemctl start docker"
	case DockerForbidden:
		group := first(plain(a.Group), "docker")
		c.Found = "no permission to open " + at
		c.Reason = "this user may not talk to Docker: its socket belongs to the group " + group
		c.Mend = "sudo usermod -aG " + group + " \"$USER\", then log in again"
	case DockerSilent:
		c.Found = "no answer from " + at
		c.Reason = "Docker did not answer in time"
		c.Mend = "sudo systemctl restart docker"
	case DockerErrs:
		c.Found = at + " answered: " + plain(a.Detail)
		c.Reason = "Docker answered with an error"
		c.Mend = "look at its log: journalctl -u docker"
	case DockerMisset:
		c.Found = "DOCKER_HOST=" + at + ": " + plain(a.Detail)
		c.Reason = "the variables that say where Docker is cannot be used"
		c.Mend = "set DOCKER_HOST to unix:///path or tcp://host:port, with DOCKER_CERT_PATH where it asks for TLS, or unset them"
	case DockerTooNew:
		c.Found = "at " + at + ": " + plain(a.Detail)
		c.Reason = "Docker speaks no API version that this version of the node knows"
		c.Mend = "upgrade mojoup-node"
	default:
		c.State = Unknown
		c.Reason = "whether Docker runs could not be found out"
	}
	return c
}

func judgeVersions(a DockerAnswer) Check {
	found := fmt.Sprintf("Engine %s, API %s", first(plain(a.Engine), "of unknown version"), first(plain(a.API), "unknown"))
	if !atLeast(a.API, leastAPI) {
		return Check{State: Fail, Found: found,
			Reason: fmt.Sprintf("Docker is too old: API %s found, %s (Engine 20.10) is the oldest supported", first(plain(a.API), "unknown"), leastAPI),
			Mend:   "upgrade Docker"}
	}
	switch {
	case a.Rootless:
		return Check{State: Fail, Found: found + ", rootless", Reason: "Docker is rootless: files made in a container would belong to other users here",
			Mend: "use a Docker that root runs: unset DOCKER_HOST, or: mojoup-node config set node.sandbox.engine native"}
	case a.Remapped:
		return Check{State: Fail, Found: found + ", with remapped users", Reason: "Docker remaps users: files made in a container would belong to other users here",
			Mend: "take userns-remap out of /etc/docker/daemon.json, or: mojoup-node config set node.sandbox.engine native"}
	case a.Snap:
		return Check{State: Warn, Found: found + ", from a snap", Reason: "Docker from a snap sees only files below home directories",
			Mend: "keep repositories and the node's state below your home, or install Docker's own packages"}
	}
	if !atLeast(a.Engine, strconv.Itoa(leastEngine)) {
		return Check{State: Warn, Found: found,
			Reason: fmt.Sprintf("OpenShell's support matrix asks for Docker %d or later", leastEngine),
			Mend:   fmt.Sprintf("upgrade Docker to %d or later", leastEngine)}
	}
	return Check{State: OK, Found: found}
}

// atLeast compares dotted versions by their first two numbers. What cannot be
// read is too old.
func atLeast(version, least string) bool {
	have, ok := numbers(version)
	want, _ := numbers(least)
	return ok && (have[0] > want[0] || have[0] == want[0] && have[1] >= want[1])
}

func numbers(version string) (n [2]int, ok bool) {
	for i, part := range strings.SplitN(version, ".", 3) {
		if i == len(n) {
			break
		}
		v, err := strconv.ParseUint(part, 10, 16)
		if err != nil {
			return n, false
		}
		n[i] = int(v)
	}
	return n, true
}
