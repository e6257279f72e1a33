package egress

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"testing"

	"github.com/mojoup/mojoup-node/pkg/policy"
)

// message is one of gRPC's (PROTOCOL-HTTP2): not compressed, a length, bytes.
func message(text string) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(text))), text...)
}

func readMessage(from io.Reader) (string, error) {
	head := make([]byte, 5)
	if _, err := io.ReadFull(from, head); err != nil {
		return "", err
	}
	text := make([]byte, binary.BigEndian.Uint32(head[1:]))
	_, err := io.ReadFull(from, text)
	return string(text), err
}

// chat answers each message at once, says the key that it was asked with, and
// ends with trailers.
func chat(rw http.ResponseWriter, r *http.Request) {
	key := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	rw.Header().Set("Content-Type", "application/grpc")
	rw.Header().Set("Trailer", "Grpc-Status")
	rc := http.NewResponseController(rw)
	_ = rc.Flush()
	for {
		text, err := readMessage(r.Body)
		if err != nil {
			break
		}
		_, _ = rw.Write(message(text + " with " + key))
		_ = rc.Flush()
	}
	rw.Header().Set("Grpc-Status", "0")
	rw.Header().Set(http.TrailerPrefix+"Grpc-Message", r.Proto+" "+r.Header.Get("Te")+" "+key)
}

// services allows calls of one service, and looks into every connection.
var services = judgeFunc(func(r policy.Request) policy.Decision {
	return policy.Decision{Allowed: r.Method == "" || strings.HasPrefix(r.Path, "/talk.Chat/"), Inspect: r.Method == "", Rule: "rule 1", Layer: "repository", Reason: "it says so"}
})

// TestStreamsOfGRPC: both directions at once, trailers, and each call of a kept
// connection judged anew, with a key on its way out and back.
func TestStreamsOfGRPC(t *testing.T) {
	w, standIn := keyWorld(t, services, bindAPI)
	w.serve(443, true, chat)
	c := w.client(true)
	connections := 0
	call := func(method string, body io.Reader) *http.Response {
		t.Helper()
		req, err := http.NewRequest("POST", "https://api.x.example/"+method, body)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/grpc")
		req.Header.Set("Te", "trailers")
		req.Header.Set("Authorization", "Bearer "+standIn)
		trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
			if !info.Reused {
				connections++
			}
		}}
		res, err := c.Do(req.WithContext(httptrace.WithClientTrace(req.Context(), trace)))
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	said, talk := io.Pipe()
	open := call("talk.Chat/Both", said)
	defer open.Body.Close()
	exchange := func(text string) {
		t.Helper()
		if _, err := talk.Write(message(text)); err != nil {
			t.Fatal(err)
		}
		if got, err := readMessage(open.Body); err != nil || got != text+" with "+standIn {
			t.Fatalf("%q, %v", got, err)
		}
	}
	for i := range 3 { // each answered before the next is said
		exchange(fmt.Sprint("word ", i))
	}
	denied := call("talk.Admin/Stop", bytes.NewReader(message("x")))
	if text, _ := io.ReadAll(denied.Body); denied.StatusCode != 403 || !strings.Contains(string(text), "denied by policy") {
		t.Errorf("%d %q", denied.StatusCode, text)
	}
	denied.Body.Close()
	whole := call("talk.Chat/Once", bytes.NewReader(message("once")))
	if got, err := readMessage(whole.Body); err != nil || got != "once with "+standIn {
		t.Errorf("%q %v", got, err)
	}
	ended(t, whole, standIn)
	w.setPolicy(judgeFunc(func(policy.Request) policy.Decision { return policy.Decision{Reason: "not any more"} }))
	if late := call("talk.Chat/Once", bytes.NewReader(message("x"))); late.StatusCode != 403 {
		t.Errorf("after the policy changed: %d", late.StatusCode)
	}
	exchange("what was allowed goes on")
	_ = talk.Close()
	ended(t, open, standIn)
	if connections != 1 {
		t.Errorf("%d connections", connections)
	}
	paths := map[string]bool{}
	for _, v := range w.recorded() {
		paths[fmt.Sprint(v.Method, " ", v.Path, " ", v.Allowed)] = true
	}
	for _, want := range []string{"POST /talk.Chat/Both true", "POST /talk.Admin/Stop false", "POST /talk.Chat/Once true", "POST /talk.Chat/Once false"} {
		if !paths[want] {
			t.Errorf("%q is not recorded: %v", want, paths)
		}
	}
}

// ended reads an answer to its end, and its trailers.
func ended(t *testing.T, res *http.Response, standIn string) {
	t.Helper()
	rest, err := io.ReadAll(res.Body)
	res.Body.Close()
	if len(rest) > 0 || err != nil || res.Trailer.Get("Grpc-Status") != "0" || res.Trailer.Get("Grpc-Message") != "HTTP/2.0 trailers "+standIn {
		t.Errorf("it ended with %q, %v and %v", rest, err, res.Trailer)
	}
}
