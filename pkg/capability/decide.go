package capability

import (
	"fmt"
	"slices"
	"strings"
)

// requirements are the checks without which an engine is not proven able. A
// report that lacks one of them proves nothing about that engine.
var requirements = []struct {
	engine Engine
	checks []string
}{
	{Native, []string{NameSystem, NameHelper, NameLandlock, NameListener, NameNamespaces}},
	{Docker, []string{NameSystem, NameLandlock, NameListener, NameUser, NameDocker, NameCLI, NameGateway, NameAnswer, NameImage, NameBinds, NameReach}},
}

// Decide turns checks into a line per engine and the verdict of the configured
// engine. It is pure. Checks are taken in the order given: the first one that
// does not pass gives the reason.
func Decide(checks []Check, configured Engine) ([]EngineVerdict, Verdict) {
	if configured == "" {
		configured = Auto
	}
	lines := make([]EngineVerdict, 0, len(requirements))
	for _, r := range requirements {
		lines = append(lines, decideEngine(checks, r.engine, r.checks))
	}
	return lines, decideVerdict(lines, configured)
}

func decideEngine(checks []Check, engine Engine, required []string) EngineVerdict {
	line := EngineVerdict{Engine: string(engine), Checks: []string{}}
	var failed, unproven string
	for _, c := range checks {
		if !slices.Contains(c.Engines, string(engine)) {
			continue
		}
		line.Checks = append(line.Checks, c.Name)
		switch c.State {
		case OK, Warn:
		case Fail:
			failed = first(failed, reason(c))
		default:
			unproven = first(unproven, reason(c))
		}
	}
	for _, name := range required {
		if !slices.Contains(line.Checks, name) {
			unproven = first(unproven, fmt.Sprintf("the check %q was not made", name))
		}
	}
	line.Able = failed == "" && unproven == ""
	line.Known = line.Able || failed != ""
	line.Reason = first(failed, unproven)
	return line
}

func decideVerdict(lines []EngineVerdict, configured Engine) Verdict {
	v := Verdict{Engine: string(configured), Sentence: SentenceUnable}
	if configured == Off {
		v.Sentence, v.Known = SentenceOff, true
		return v
	}
	asked := order(lines, configured)
	if len(asked) == 0 {
		v.Reason = fmt.Sprintf("%s is not an engine: set node.sandbox.engine to auto, native, docker or off", quote(string(configured)))
		v.Known = true
		return v
	}
	for _, line := range asked {
		if line.Able {
			v.Able, v.Known = true, true
			v.Sentence, v.Chosen = SentenceAble, line.Engine
			return v
		}
	}
	// The last one asked is what auto would fall back to: its reason is the
	// one that stands in the way on most machines.
	last := asked[len(asked)-1]
	v.Reason, v.Known = last.Reason, true
	for _, line := range asked {
		if !line.Known {
			v.Reason, v.Known = line.Reason, false
		}
	}
	return v
}

// order lists the engines that configured may take, the preferred one first.
func order(lines []EngineVerdict, configured Engine) []EngineVerdict {
	wanted := []Engine{configured}
	if configured == Auto {
		wanted = []Engine{Docker, Native}
	}
	var asked []EngineVerdict
	for _, e := range wanted {
		for _, line := range lines {
			if line.Engine == string(e) {
				asked = append(asked, line)
			}
		}
	}
	return asked
}

func reason(c Check) string {
	if c.Reason != "" {
		return c.Reason
	}
	return fmt.Sprintf("the check of %s did not pass", strings.ToLower(first(c.Title, c.Name)))
}

func first(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}
