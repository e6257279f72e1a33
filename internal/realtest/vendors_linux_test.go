package realtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/mojoup/mojoup-node/internal/realtest/upstream"
)

// vendorHosts are the services that the five tools speak to.
var vendorHosts = []string{
	"api.anthropic.com", "platform.claude.com",
	"api.openai.com", "chatgpt.com", "auth.openai.com",
	"api.github.com", "api.githubcopilot.com", "api.individual.githubcopilot.com",
	"api.kilo.ai",
}

// wellSaid is what each of them answers, whatever it is asked.
const wellSaid = "the upstream answers: all is well"

// vendors are the services of all five tools, told apart by the host that is
// asked. Each speaks as much of its protocol as its tool needs for an answer.
type vendors struct {
	// lets says which tokens are let in, now.
	lets func(token string) bool
	// tokens makes new ones for refresh tokens; nil where nobody does.
	tokens http.Handler
	// command, if not empty, is what the model has the tool run before it
	// answers.
	command string

	mu sync.Mutex
	// mu guards asked.
	asked []asked
}

// asked is one request that came in.
type asked struct {
	host, method, path, token string
	status                    int
	answers                   bool // was for the model
	body                      []byte
}

func (a asked) String() string {
	return fmt.Sprintf("%s %s%s as %q: %d", a.method, a.host, a.path, a.token, a.status)
}

// requests are those that came in so far.
func (v *vendors) requests() []asked {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.asked)
}

// A noted is an answer whose status is remembered.
type noted struct {
	http.ResponseWriter
	status int
}

func (n *noted) WriteHeader(status int) {
	n.status = status
	n.ResponseWriter.WriteHeader(status)
}

func (n *noted) Unwrap() http.ResponseWriter { return n.ResponseWriter }

// ServeHTTP implements [http.Handler].
func (v *vendors) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 32<<20))
	if err != nil {
		return // whoever asked has gone
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	one := asked{host: host, method: r.Method, path: r.URL.Path, token: tokenOf(r), body: body}
	said := &noted{w, http.StatusOK}
	one.answers = v.serve(said, r, host, one.token, body)
	one.status = said.status
	v.mu.Lock()
	v.asked = append(v.asked, one)
	v.mu.Unlock()
}

// tokenOf is what stands in a request's headers in place of a key.
func tokenOf(r *http.Request) string {
	if k := r.Header.Get("X-Api-Key"); k != "" {
		return k
	}
	kind, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if strings.EqualFold(kind, "Bearer") || strings.EqualFold(kind, "token") {
		return token
	}
	return r.Header.Get("Authorization")
}

// serve answers, and reports whether that was an answer of the model.
func (v *vendors) serve(w http.ResponseWriter, r *http.Request, host, token string, body []byte) bool {
	path := r.URL.Path
	switch {
	case path == "/v1/oauth/token" || path == "/oauth/token":
		if v.tokens == nil {
			w.WriteHeader(http.StatusNotFound)
			return false
		}
		v.tokens.ServeHTTP(w, r)
		return false
	case r.Header.Get("Upgrade") != "": // at which it goes on without a WebSocket
		w.WriteHeader(http.StatusUpgradeRequired)
		return false
	case !v.lets(token):
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"type":"error","error":{"type":"authentication_error","message":"the token is not valid"},"message":"Bad credentials"}`)
		return false
	case host == "api.anthropic.com":
		up := &upstream.Server{Answer: v.messages}
		up.ServeHTTP(w, r)
		return path == "/v1/messages"
	case strings.HasSuffix(path, "/responses"):
		v.responses(w, body)
		return true
	case strings.HasSuffix(path, "/chat/completions"):
		v.completions(w, body)
		return true
	}
	if text, ok := vendorFacts[host+path]; ok {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, text)
		return false
	}
	w.WriteHeader(http.StatusNotFound)
	return false
}

// vendorFacts are answers that never change.
var vendorFacts = map[string]string{
	"chatgpt.com/backend-api/wham/accounts/check": `{"accounts":[{"id":"account-of-me","workspace_backend_origin":"https://chatgpt.com","account_routing_override":"NO_CONSTRAINT"}],"default_account_id":"account-of-me"}`,
	"api.github.com/copilot_internal/user": `{"login":"me","id":1,"access_type_sku":"monthly_subscriber","copilot_plan":"individual","chat_enabled":true,
		"endpoints":{"api":"https://api.individual.githubcopilot.com","telemetry":"https://telemetry.individual.githubcopilot.com"}}`,
	"api.individual.githubcopilot.com/models": copilotModels,
	"api.githubcopilot.com/models":            copilotModels,
	"api.kilo.ai/api/openrouter/models": `{"data":[{"id":"anthropic/claude-sonnet-4.5","name":"Claude Sonnet 4.5","created":1,"context_length":200000,
		"architecture":{"input_modalities":["text"],"output_modalities":["text"],"tokenizer":"Claude"},"top_provider":{"max_completion_tokens":8192},
		"supported_parameters":["tools","max_tokens"],"pricing":{"prompt":"0","completion":"0"}}]}`,
}

// copilotModels are some of those that Copilot CLI knows by name.
var copilotModels = func() string {
	var all []string
	for _, name := range []string{"claude-sonnet-4.5", "claude-sonnet-4.6", "claude-sonnet-5", "gpt-5.4", "gpt-5-mini"} {
		all = append(all, `{"id":"`+name+`","name":"`+name+`","object":"model","vendor":"Anthropic","version":"`+name+`",
	"model_picker_enabled":true,"preview":false,"is_chat_default":true,"is_chat_fallback":true,"policy":{"state":"enabled","terms":""},
	"billing":{"is_premium":false,"multiplier":1},"supported_endpoints":["/chat/completions"],
	"capabilities":{"type":"chat","family":"`+name+`","object":"model_capabilities","tokenizer":"o200k_base",
		"limits":{"max_context_window_tokens":200000,"max_output_tokens":16000,"max_prompt_tokens":128000},
		"supports":{"streaming":true,"tool_calls":true,"parallel_tool_calls":true}}}`)
	}
	return `{"data":[` + strings.Join(all, ",") + `]}`
}()

// messages answers one of Anthropic's.
func (v *vendors) messages(r upstream.Request) []upstream.Block {
	if _, ran := r.Last().Result(); !ran && v.command != "" && r.HasTool("Bash") {
		return []upstream.Block{{Type: "tool_use", ID: "toolu_1", Name: "Bash", Input: v.call("command")}}
	}
	return []upstream.Block{{Type: "text", Text: wellSaid}}
}

// call are the arguments for a shell that takes its command by that name.
func (v *vendors) call(name string) json.RawMessage {
	b, err := json.Marshal(map[string]any{name: v.command, "description": "wait for what the test does"})
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return b
}

// offered is what a tool offers its model, in either of OpenAI's protocols.
type offered struct {
	Stream bool `json:"stream"`
	Input  []struct {
		Type   string          `json:"type"`
		Output json.RawMessage `json:"output"`
	} `json:"input"`
	Tools []struct {
		Name     string `json:"name"`
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	} `json:"tools"`
}

// shell is the tool that runs commands, and what it calls its command.
func (o offered) shell() (name, argument string) {
	for _, t := range o.Tools {
		switch name := t.Name + t.Function.Name; name {
		case "bash":
			return name, "command"
		case "exec_command":
			return name, "cmd"
		}
	}
	return "", ""
}

// running is what Codex says of a command that has not ended after a while.
var running = regexp.MustCompile(`Process running with session ID (\d+)`)

// next is what the model has the tool do: run the command, then wait until it
// has ended, then nothing. Calls are those before.
func (v *vendors) next(asks offered) (name, arguments string, calls int) {
	last := ""
	for _, i := range asks.Input {
		if i.Type == "function_call_output" {
			last = string(i.Output)
			calls++
		}
	}
	shell, argument := asks.shell()
	switch {
	case v.command == "" || shell == "":
		return "", "", calls
	case calls == 0:
		return shell, string(v.call(argument)), calls
	}
	if m := running.FindStringSubmatch(last); m != nil {
		return "write_stdin", `{"session_id": ` + m[1] + `, "chars": "", "yield_time_ms": 10000}`, calls
	}
	return "", "", calls
}

// responses speaks as much of OpenAI's Responses as a tool needs.
func (v *vendors) responses(w http.ResponseWriter, body []byte) {
	var asks offered
	_ = json.Unmarshal(body, &asks) // what it cannot say, it does not offer
	item := `{"type":"message","id":"msg_1","role":"assistant","status":"completed","content":[{"type":"output_text","text":"` + wellSaid + `","annotations":[]}]}`
	text := true
	if name, arguments, calls := v.next(asks); name != "" {
		escaped, err := json.Marshal(arguments)
		if err != nil {
			panic("BUG: " + err.Error())
		}
		item = fmt.Sprintf(`{"type":"function_call","id":"fc_%d","call_id":"call_%[1]d","status":"completed","name":%q,"arguments":%s}`, calls+1, name, escaped)
		text = false
	}
	w.Header().Set("Content-Type", "text/event-stream")
	send := func(kind, more string) {
		fmt.Fprintf(w, "event: %s\ndata: {\"type\":%q,%s}\n\n", kind, kind, more)
	}
	send("response.created", `"response":{"id":"resp_1","created_at":1,"model":"gpt-5"}`)
	send("response.output_item.added", `"output_index":0,"item":`+strings.Replace(item, wellSaid, "", 1))
	if text {
		send("response.output_text.delta", `"item_id":"msg_1","output_index":0,"content_index":0,"delta":"`+wellSaid+`"`)
	}
	send("response.output_item.done", `"output_index":0,"item":`+item)
	send("response.completed", `"response":{"id":"resp_1","output":[`+item+`],"usage":{"input_tokens":1,"input_tokens_details":{"cached_tokens":0},"output_tokens":1,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":2}}`)
}

// completions speaks as much of OpenAI's Chat Completions as a tool needs.
func (v *vendors) completions(w http.ResponseWriter, body []byte) {
	var asks offered
	_ = json.Unmarshal(body, &asks)
	message, reason := `"content":"`+wellSaid+`"`, "stop"
	if shell, argument := asks.shell(); v.command != "" && shell != "" && !bytes.Contains(body, []byte(`"role":"tool"`)) {
		arguments, err := json.Marshal(string(v.call(argument)))
		if err != nil {
			panic("BUG: " + err.Error())
		}
		message, reason = fmt.Sprintf(`"content":null,"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":%q,"arguments":%s}}]`, shell, arguments), "tool_calls"
	}
	const usage = `"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}`
	const head = `"id":"chat_1","created":1,"model":"claude-sonnet-4.5"`
	if !asks.Stream {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{%s,"object":"chat.completion","choices":[{"index":0,"finish_reason":%q,"message":{"role":"assistant",%s}}],%s}`, head, reason, message, usage)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	chunk := func(choice, more string) {
		fmt.Fprintf(w, "data: {%s,\"object\":\"chat.completion.chunk\",\"choices\":[%s]%s}\n\n", head, choice, more)
	}
	chunk(`{"index":0,"delta":{"role":"assistant",`+message+`},"finish_reason":null}`, "")
	chunk(`{"index":0,"delta":{},"finish_reason":"`+reason+`"}`, ","+usage)
	_, _ = io.WriteString(w, "data: [DONE]\n\n")
}

// open allows the services at the test's address, each on its own.
func (v *vendors) open() string {
	hosts, err := json.Marshal(vendorHosts)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return fmt.Sprintf(`{"version": 1, "network": {"rules": [{"name": "the test's services", "hosts": %s, "ports": [443], "addresses": ["127.0.0.0/8"]}]}}`, hosts)
}
