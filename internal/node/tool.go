package node

import (
	"fmt"

	"github.com/mojoup/mojoup-node/pkg/policy"
)

// toolPackages are the tools' packages in npm.
var toolPackages = map[string]string{
	"claude": "@anthropic-ai/claude-code", "codex": "@openai/codex", "copilot": "@github/copilot",
	"kilo": "@kilocode/cli", "opencode": "opencode-ai",
}

// installed says how to get a tool that is not there.
func installed(tool string) string {
	return fmt.Sprintf("%s is not installed where a session can see it: `npm install -g %s`, then run again", tool, toolPackages[tool])
}

// toolNotices name the hosts of a tool that the policy does not let it reach:
// the tool itself would only say that it has no connection.
func toolNotices(e *policy.Effective, tool string) (notices []string) {
	for _, r := range e.ToolRefusals() {
		notices = append(notices, fmt.Sprintf("%s cannot reach %s:%d: %s", tool, r.Host, r.Port, r.Decision.Reason))
	}
	return notices
}

// inImage says how a program gets into the image of engine docker.
func inImage(program string) string {
	if toolPackages[program] != "" {
		return fmt.Sprintf("the image of sessions does not have it: mojoup-node image build --tool %s", program)
	}
	return "the image of sessions does not have it: mojoup-node image build --package NAME installs one of Debian's packages"
}
