package capability

import (
	"slices"
	"time"
)

// Engine is a value of the setting node.sandbox.engine.
type Engine string

// The engines that can be configured. The empty Engine is read as [Auto].
const (
	Auto   Engine = "auto"   // docker where its checks pass, else native
	Native Engine = "native" // namespaces, Landlock and seccomp made by the node itself
	Docker Engine = "docker" // one OpenShell sandbox per session
	Off    Engine = "off"    // sessions are ordinary processes
)

// State is how one check came out.
type State string

// The states of a check. Only [OK] and [Warn] let an engine pass.
const (
	OK      State = "ok"      // found as needed
	Warn    State = "warn"    // works, but somebody should know
	Fail    State = "fail"    // the engines that it decides cannot run
	Unknown State = "unknown" // could not be found out
	Skipped State = "skipped" // not tried, because an earlier check made it pointless
)

// A Check is one question about the machine and what was found. All texts are
// plain and safe to print: what comes from elsewhere has been cleaned.
type Check struct {
	Name   string `json:"name"`  // stable, for programs; see the Name constants
	Title  string `json:"title"` // for people
	State  State  `json:"state"`
	Found  string `json:"found"`
	Needed string `json:"needed,omitempty"`
	Mend   string `json:"mend,omitempty"` // how to get there: a command, or a sentence
	// Reason is one plain sentence without full stop for the verdict. It is set
	// on every check that is neither ok nor skipped.
	Reason string `json:"reason,omitempty"`
	// Engines names the engines that this check decides. Empty means that it
	// informs and decides nothing. Never null.
	Engines []string `json:"engines"`
}

// Names of the checks, in the order in which they are reported.
const (
	NameSystem     = "system"
	NameHelper     = "helper"
	NameLandlock   = "landlock"
	NameListener   = "seccomp-listener"
	NameNamespaces = "namespaces"
	NameLimits     = "limits"
	NameTUN        = "tun"
	NameGroups     = "groups"
	NameUser       = "docker-user"
	NameDocker     = "docker"
	NameCLI        = "openshell-cli"
	NameGateway    = "openshell-gateway"
	NameAnswer     = "openshell-answer"
	NameBinds      = "bind-mounts"
	NameImage      = "sandbox-image"
	NameReach      = "docker-reach"
	NamePrivateTmp = "gateway-tmp"
	NameTIOCSTI    = "legacy-tiocsti"
	NameCore       = "core-handler"
	NameVsock      = "vsock"
	NameSession    = "user-session"
)

// EngineVerdict is the line of one engine.
type EngineVerdict struct {
	Engine string `json:"engine"`
	// Able reports whether every check that decides the engine passed.
	Able bool `json:"able"`
	// Known is false where nothing failed but something could not be found out.
	Known  bool     `json:"known"`
	Reason string   `json:"reason,omitempty"` // of the first check that did not pass
	Checks []string `json:"checks"`           // names of those that decide it; never null
}

// The sentences of a verdict.
const (
	SentenceAble   = "Agents run in a sandbox"
	SentenceUnable = "This machine cannot sandbox agents"
	SentenceOff    = "Sandboxing is switched off on this node"
	// NotOffered is what a node that is able, but was not asked, adds.
	NotOffered = "not offered: set node.roles.sandbox"
)

const needLinux = "sandboxes need Linux"

// Verdict answers for the configured engine. The zero value is "no".
type Verdict struct {
	Able     bool   `json:"able"`
	Sentence string `json:"sentence"`         // one of the Sentence constants
	Reason   string `json:"reason,omitempty"` // why not, in one sentence
	Engine   string `json:"engine"`           // as configured
	Chosen   string `json:"chosen,omitempty"` // the engine that sessions get; "" where not able
	// Known is false where it could not be found out whether the machine is
	// able, which the command line answers with exit 3 instead of 1.
	Known bool `json:"known"`
}

// String is the whole verdict as a person reads it: the sentence and, after a
// colon, the reason.
func (v Verdict) String() string {
	if v.Sentence == "" {
		v.Sentence = SentenceUnable
	}
	if v.Reason == "" {
		return v.Sentence
	}
	return v.Sentence + ": " + v.Reason
}

// Report is everything that was found.
type Report struct {
	Checks  []Check         `json:"checks"`  // in a fixed order; never null
	Engines []EngineVerdict `json:"engines"` // native, docker; never null
	Verdict Verdict         `json:"verdict"`
	At      time.Time       `json:"at"`
	Took    time.Duration   `json:"tookNanoseconds"`
}

// Shown is the state with which a check of r is to be shown. One that did not
// pass and is of other engines than the one in use counts as skipped: nobody
// needs Docker for the native engine. One that failed, but cannot change the
// verdict of the configured engine, is a warning.
func (r Report) Shown(c Check) State {
	switch {
	case c.State == OK || c.State == Skipped:
		return c.State
	case r.ofOthers(c):
		return Skipped
	case c.State == Warn || r.Verdict.Able:
		return Warn
	}
	for _, e := range c.Engines {
		if asks(Engine(r.Verdict.Engine), Engine(e)) {
			return c.State
		}
	}
	return Warn
}

// ofOthers reports whether a check decides other engines only than the one that
// sessions get, or would get.
func (r Report) ofOthers(c Check) bool {
	used := Engine(r.Verdict.Engine)
	if r.Verdict.Able {
		used = Engine(r.Verdict.Chosen)
	}
	return len(c.Engines) > 0 && used != Off && !slices.ContainsFunc(c.Engines, func(e string) bool { return asks(used, Engine(e)) })
}

// asks reports whether the verdict of configured rests upon engine.
func asks(configured, engine Engine) bool {
	return configured == engine || configured == Auto || configured == ""
}
