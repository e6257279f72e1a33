// Package upstream promises a small Messages API: it checks what it is sent as
// the real service's documentation describes it, answers what the test says,
// streaming or whole, and remembers every request.
package upstream

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// maxBody bounds one request, in bytes. An agent sends its tools and its
// instructions with each.
const maxBody = 32 << 20

// A Block is one piece of a message's content.
type Block struct {
	Type string `json:"type"` // text, tool_use, tool_result, or one we only carry
	Text string `json:"text,omitempty"`
	// ID, Name and Input are of a tool_use.
	ID    string          `json:"id,omitempty"`
	Name  string          `json:"name,omitempty"`
	Input json.RawMessage `json:"input,omitempty"`
	// ToolUseID and Content are of a tool_result.
	ToolUseID string          `json:"tool_use_id,omitempty"`
	Content   json.RawMessage `json:"content,omitempty"`
}

// Blocks is a message's content, which may also be sent as a plain string.
type Blocks []Block

// UnmarshalJSON reads either form.
func (b *Blocks) UnmarshalJSON(raw []byte) error {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		*b = Blocks{{Type: "text", Text: text}}
		return nil
	}
	return json.Unmarshal(raw, (*[]Block)(b))
}

// A Message is one turn of a conversation.
type Message struct {
	Role    string `json:"role"`
	Content Blocks `json:"content"`
}

// A Request is the part of a call to /v1/messages that matters here.
type Request struct {
	Model     string    `json:"model"`
	MaxTokens int       `json:"max_tokens"`
	Stream    bool      `json:"stream"`
	Messages  []Message `json:"messages"`
	Tools     []struct {
		Name string `json:"name"`
	} `json:"tools"`
}

// Last is the content of the user's last message: agents put messages of the
// role "system" after it.
func (r Request) Last() Blocks {
	for _, m := range slices.Backward(r.Messages) {
		if m.Role == "user" {
			return m.Content
		}
	}
	return nil
}

// Text is the text of the blocks, joined.
func (b Blocks) Text() string {
	var out []string
	for _, block := range b {
		if block.Type == "text" {
			out = append(out, block.Text)
		}
	}
	return strings.Join(out, "\n")
}

// Result is what the first tool_result among the blocks says, if there is one.
func (b Blocks) Result() (string, bool) {
	for _, block := range b {
		if block.Type != "tool_result" {
			continue
		}
		var text Blocks
		if json.Unmarshal(block.Content, &text) == nil {
			return text.Text(), true
		}
		return string(block.Content), true
	}
	return "", false
}

// HasTool reports whether the caller offered a tool.
func (r Request) HasTool(name string) bool {
	for _, t := range r.Tools {
		if t.Name == name {
			return true
		}
	}
	return false
}

// Seen is one request that came in.
type Seen struct {
	Method, Path string
	// Key is what stood in x-api-key or after Bearer.
	Key     string
	Message *Request // nil where it was no call to /v1/messages
	Status  int
}

// Server answers. Answer is required; Keys, if not empty, are the only ones
// that are let in.
type Server struct {
	// Answer says what to reply. Blocks are of type text or tool_use.
	Answer func(Request) []Block
	Keys   []string

	mu sync.Mutex
	// mu guards what follows.
	seen []Seen
	next int
}

// Requests returns what came in so far, in order of arrival.
func (s *Server) Requests() []Seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Seen(nil), s.seen...)
}

// A refusal is an error as the API words it.
type refusal struct {
	status        int
	kind, message string
}

func (e *refusal) Error() string { return e.message }

func invalid(format string, args ...any) *refusal {
	return &refusal{http.StatusBadRequest, "invalid_request_error", fmt.Sprintf(format, args...)}
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	seen := Seen{Method: r.Method, Path: r.URL.Path, Key: key(r), Status: http.StatusOK}
	id := s.id()
	w.Header().Set("Request-Id", "req_"+id)
	req, err := s.read(r, seen.Key)
	seen.Message = req
	no := (*refusal)(nil)
	if errors.As(err, &no) {
		seen.Status = no.status
	}
	s.mu.Lock()
	s.seen = append(s.seen, seen)
	s.mu.Unlock()
	switch {
	case no != nil:
		writeJSON(w, no.status, map[string]any{
			"type": "error", "error": map[string]string{"type": no.kind, "message": no.message}, "request_id": "req_" + id,
		})
	case r.URL.Path == "/v1/messages/count_tokens":
		writeJSON(w, http.StatusOK, map[string]int{"input_tokens": tokens(*req)})
	case req.Stream:
		stream(w, id, *req, s.Answer(*req))
	default:
		whole(w, id, *req, s.Answer(*req))
	}
}

func (s *Server) id() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next++
	return fmt.Sprintf("%024d", s.next)
}

func key(r *http.Request) string {
	if k := r.Header.Get("X-Api-Key"); k != "" {
		return k
	}
	k, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return k
}

// read checks a request in the order in which the service does: who, where,
// how, what.
func (s *Server) read(r *http.Request, key string) (*Request, error) {
	switch {
	case key == "", len(s.Keys) > 0 && !slices.Contains(s.Keys, key):
		return nil, &refusal{http.StatusUnauthorized, "authentication_error", "invalid x-api-key"}
	case r.URL.Path != "/v1/messages" && r.URL.Path != "/v1/messages/count_tokens":
		return nil, &refusal{http.StatusNotFound, "not_found_error", "Not Found"}
	case r.Method != http.MethodPost:
		return nil, &refusal{http.StatusMethodNotAllowed, "invalid_request_error", "Method Not Allowed"}
	case r.Header.Get("Anthropic-Version") == "":
		return nil, invalid("anthropic-version: header is required")
	}
	if t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || t != "application/json" {
		return nil, invalid("content-type must be application/json")
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err != nil || len(body) > maxBody {
		return nil, &refusal{http.StatusRequestEntityTooLarge, "request_too_large", "Request exceeds the maximum size"}
	}
	req := &Request{}
	if err := json.Unmarshal(body, req); err != nil {
		return nil, invalid("The request body is not valid JSON: %v", err)
	}
	return req, req.check(r.URL.Path == "/v1/messages")
}

func (r *Request) check(call bool) error {
	switch {
	case r.Model == "":
		return invalid("model: Field required")
	case len(r.Messages) == 0:
		return invalid("messages: at least one message is required")
	case call && r.MaxTokens < 1:
		return invalid("max_tokens: Field required")
	case r.Messages[0].Role != "user":
		return invalid("messages: first message must use the \"user\" role")
	}
	return nil
}

// tokens is a rough count: four bytes each, at least one.
func tokens(r Request) int {
	n := 1
	for _, m := range r.Messages {
		for _, b := range m.Content {
			n += (len(b.Text) + len(b.Content)) / 4
		}
	}
	return n
}

func stopReason(blocks []Block) string {
	for _, b := range blocks {
		if b.Type == "tool_use" {
			return "tool_use"
		}
	}
	return "end_turn"
}

type usage struct {
	In  int `json:"input_tokens"`
	Out int `json:"output_tokens"`
}

type message struct {
	ID           string  `json:"id"`
	Type         string  `json:"type"`
	Role         string  `json:"role"`
	Model        string  `json:"model"`
	Content      []Block `json:"content"`
	StopReason   *string `json:"stop_reason"`
	StopSequence *string `json:"stop_sequence"`
	Usage        usage   `json:"usage"`
}

func whole(w http.ResponseWriter, id string, req Request, blocks []Block) {
	reason := stopReason(blocks)
	writeJSON(w, http.StatusOK, message{
		ID: "msg_" + id, Type: "message", Role: "assistant", Model: req.Model, Content: blocks,
		StopReason: &reason, Usage: usage{tokens(req), len(blocks)},
	})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the caller may be gone
}

// An event is one server-sent event; its type stands in both places.
type event map[string]any

// stream sends the answer word by word. The order of events is the API's:
//
//	message_start → ping → per block: content_block_start → deltas →
//	content_block_stop → message_delta → message_stop
func stream(w http.ResponseWriter, id string, req Request, blocks []Block) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.Header().Set("Cache-Control", "no-cache")
	w.WriteHeader(http.StatusOK)
	flush := http.NewResponseController(w)
	send := func(kind string, e event) {
		e["type"] = kind
		b, err := json.Marshal(e)
		if err != nil {
			panic("BUG: an event that is not JSON: " + err.Error())
		}
		_ = flush.SetWriteDeadline(time.Now().Add(10 * time.Second))
		_, _ = fmt.Fprintf(w, "event: %s\ndata: %s\n\n", kind, b)
		_ = flush.Flush()
	}
	send("message_start", event{"message": message{
		ID: "msg_" + id, Type: "message", Role: "assistant", Model: req.Model, Content: []Block{}, Usage: usage{tokens(req), 1},
	}})
	send("ping", event{})
	for i, b := range blocks {
		sendBlock(send, i, b)
	}
	send("message_delta", event{
		"delta": map[string]any{"stop_reason": stopReason(blocks), "stop_sequence": nil},
		"usage": map[string]int{"output_tokens": 1 + len(blocks)},
	})
	send("message_stop", event{})
}

func sendBlock(send func(string, event), index int, b Block) {
	begin := map[string]any{"type": b.Type}
	part := func(s string) map[string]any { return map[string]any{"type": "text_delta", "text": s} }
	text := b.Text
	if b.Type == "tool_use" {
		begin["id"], begin["name"], begin["input"] = b.ID, b.Name, struct{}{}
		part = func(s string) map[string]any { return map[string]any{"type": "input_json_delta", "partial_json": s} }
		text = string(b.Input)
	} else {
		begin["text"] = ""
	}
	send("content_block_start", event{"index": index, "content_block": begin})
	for _, word := range strings.SplitAfter(text, " ") {
		send("content_block_delta", event{"index": index, "delta": part(word)})
	}
	send("content_block_stop", event{"index": index})
}
