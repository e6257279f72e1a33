package upstream

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func post(t *testing.T, url, key, body string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Anthropic-Version", "2023-06-01")
	if key != "" {
		req.Header.Set("X-Api-Key", key)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

const question = `{"model": "m", "max_tokens": 9, "stream": %STREAM, "messages": [{"role": "user", "content": "two words"}]}`

// echo says what it was asked and uses a tool.
func echo(r Request) []Block {
	return []Block{{Type: "text", Text: "said: " + r.Last().Text()}, {Type: "tool_use", ID: "t1", Name: "Bash", Input: json.RawMessage(`{"command": "true"}`)}}
}

func TestStream(t *testing.T) {
	s := &Server{Answer: echo}
	web := httptest.NewServer(s)
	defer web.Close()
	resp := post(t, web.URL+"/v1/messages?beta=true", "k", strings.Replace(question, "%STREAM", "true", 1))
	if ct := resp.Header.Get("Content-Type"); resp.StatusCode != 200 || !strings.HasPrefix(ct, "text/event-stream") {
		t.Fatalf("%s, %s", resp.Status, ct)
	}
	var kinds []string
	var text, tool strings.Builder
	lines := bufio.NewScanner(resp.Body)
	kind := ""
	for lines.Scan() {
		if k, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
			kind = k
			kinds = append(kinds, k)
		}
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			var e struct {
				Type  string
				Delta struct {
					Text string
					JSON string `json:"partial_json"`
				}
			}
			if err := json.Unmarshal([]byte(data), &e); err != nil || e.Type != kind {
				t.Errorf("event %q has data %s (%v)", kind, data, err)
			}
			text.WriteString(e.Delta.Text)
			tool.WriteString(e.Delta.JSON)
		}
	}
	want := []string{"message_start", "ping", "content_block_start", "content_block_delta", "content_block_delta", "content_block_delta", "content_block_stop",
		"content_block_start", "content_block_delta", "content_block_delta", "content_block_stop", "message_delta", "message_stop"}
	if d := cmp.Diff(want, kinds); d != "" {
		t.Errorf("events (-want +got):\n%s", d)
	}
	if text.String() != "said: two words" || tool.String() != `{"command": "true"}` {
		t.Errorf("text %q, tool %q", text.String(), tool.String())
	}
	got := s.Requests()
	if len(got) != 1 || got[0].Key != "k" || got[0].Path != "/v1/messages" || got[0].Message.Last().Text() != "two words" {
		t.Errorf("requests %+v", got)
	}
}

func TestWhole(t *testing.T) {
	web := httptest.NewServer(&Server{Answer: echo})
	defer web.Close()
	resp := post(t, web.URL+"/v1/messages", "k", strings.Replace(question, "%STREAM", "false", 1))
	var m message
	if err := json.NewDecoder(resp.Body).Decode(&m); err != nil {
		t.Fatal(err)
	}
	if m.Content[0].Text != "said: two words" || *m.StopReason != "tool_use" {
		t.Errorf("message %+v", m)
	}
	resp = post(t, web.URL+"/v1/messages/count_tokens", "k", `{"model": "m", "messages": [{"role": "user", "content": [{"type": "text", "text": "12345678"}]}]}`)
	if b, err := io.ReadAll(resp.Body); err != nil || strings.TrimSpace(string(b)) != `{"input_tokens":3}` {
		t.Errorf("count %s (%v)", b, err)
	}
}

func TestRefusals(t *testing.T) {
	s := &Server{Answer: echo, Keys: []string{"k"}}
	web := httptest.NewServer(s)
	defer web.Close()
	tests := []struct {
		name, path, key, body string
		want                  int
		kind                  string
	}{
		{"no key", "/v1/messages", "", question, 401, "authentication_error"},
		{"wrong key", "/v1/messages", "x", question, 401, "authentication_error"},
		{"elsewhere", "/api/x", "k", question, 404, "not_found_error"},
		{"not JSON", "/v1/messages", "k", "{", 400, "invalid_request_error"},
		{"no model", "/v1/messages", "k", `{"max_tokens": 1}`, 400, "invalid_request_error"},
		{"no messages", "/v1/messages", "k", `{"model": "m", "max_tokens": 1}`, 400, "invalid_request_error"},
		{"no limit", "/v1/messages", "k", `{"model": "m", "messages": [{"role": "user", "content": "a"}]}`, 400, "invalid_request_error"},
		{"first is not the user", "/v1/messages", "k", `{"model": "m", "max_tokens": 1, "messages": [{"role": "assistant", "content": "a"}]}`, 400, "invalid_request_error"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			resp := post(t, web.URL+tt.path, tt.key, tt.body)
			var e struct {
				Error struct{ Type, Message string }
			}
			if err := json.NewDecoder(resp.Body).Decode(&e); err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != tt.want || e.Error.Type != tt.kind || e.Error.Message == "" {
				t.Errorf("%d %+v, want %d %s", resp.StatusCode, e, tt.want, tt.kind)
			}
		})
	}
	if got := s.Requests(); len(got) != len(tests) || got[0].Status != 401 {
		t.Errorf("requests %+v", got)
	}
}
