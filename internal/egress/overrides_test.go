package egress

import (
	"net/http"
	"strings"
	"testing"
)

// judged wants a request that asks for another one to get this status: with 200
// the host hears of it, and with 403 the other one is said to be the reason.
func (w *world) judged(got *heard, h2 bool, req *http.Request, want int) {
	w.t.Helper()
	before := got.count()
	status, said, _ := w.do(w.client(h2), req)
	if status != want || (got.count() > before) != (want == 200) || want == 403 && !strings.Contains(said, "in its place") {
		w.t.Errorf("h2 %t %s %v: %d %s", h2, req.URL.Path, req.Header, status, said)
	}
}

// A field by which a server may take a request for another is judged as that one.
func TestOverridesAreJudged(t *testing.T) {
	w := newWorld(t, rules(t, `{"rules": [{"hosts": ["api.x.example"], "methods": ["GET", "POST"], "paths": ["/a/**"]}]}`))
	var got heard
	w.serve(443, true, got.ServeHTTP)
	for _, h2 := range []bool{false, true} {
		for _, tt := range []struct {
			name, value string
			want        int
		}{
			{"X-HTTP-Method-Override", "DELETE", 403}, {"X-HTTP-Method-Override", " delete", 403}, {"X-HTTP-Method", "PUT", 403}, {"X-Method-Override", "PATCH", 403},
			{"X-HTTP-Method-Override", "GET", 200}, {"X-HTTP-Method-Override", "", 200},
			{"X-Original-URL", "/admin", 403}, {"X-Rewrite-URL", "/a/../b?x", 403}, {"X-Original-URL", "elsewhere", 403}, {"X-Original-URL", "/a/c?x", 200},
		} {
			req, _ := http.NewRequest("POST", "https://api.x.example/a/b", nil)
			req.Header.Set(tt.name, tt.value)
			w.judged(&got, h2, req, tt.want)
		}
	}
}

// Two fields together are judged as both say, a name with an underscore is the
// same to many servers, and a push is at its own path or nowhere.
func TestOverridesAreJudgedTogether(t *testing.T) {
	w := newWorld(t, rules(t, `{"rules": [
		{"hosts": ["api.x.example"], "methods": ["GET", "POST"], "paths": ["/a/**"]},
		{"hosts": ["api.x.example"], "methods": ["DELETE"], "paths": ["/a/mine"]},
		{"hosts": ["api.x.example"], "methods": ["GET"], "paths": ["/b/**"]},
		{"hosts": ["api.x.example"], "methods": ["GET", "POST"], "paths": ["/r.git/**"], "push": ["refs/heads/agent/*"]}]}`))
	var got heard
	w.serve(443, true, got.ServeHTTP)
	const method, path = "X-HTTP-Method-Override", "X-Original-URL"
	for _, h2 := range []bool{false, true} {
		for _, tt := range []struct {
			path   string
			fields []string
			want   int
		}{
			{"/a/mine", []string{method, "DELETE"}, 200},
			{"/a/mine", []string{method, "GET", path, "/b/x"}, 403}, // POST /b/x, where a server heeds one of them only
			{"/a/mine", []string{method, "DELETE", path, "/a/other"}, 403},
			{"/a/mine", []string{method, "DELETE", "X-Rewrite-URL", "/b/x"}, 403},
			{"/a/mine", []string{"X_HTTP_METHOD_OVERRIDE", "PUT"}, 403},
			{"/a/mine", []string{"x-original_url", "/admin"}, 403},
			{"/a/mine", []string{path, "/r.git/git-receive-pack"}, 403},
			{"/a/mine", []string{method, "GET", "X-HTTP-Method", "GET", "X-Method-Override", "GET", "X_HTTP_Method", "GET"}, 403},
			{"/a/mine", []string{method, "GET", path, "/a/other"}, 200},
		} {
			req, _ := http.NewRequest("POST", "https://api.x.example"+tt.path, nil)
			for i := 0; i < len(tt.fields); i += 2 {
				req.Header[tt.fields[i]] = []string{tt.fields[i+1]}
			}
			w.judged(&got, h2, req, tt.want)
		}
	}
}
