package console

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"

	"github.com/mojoup/mojoup-node/pkg/console/api"
)

// events answers with a session's log, one object a line, and sends each part
// as soon as it is there. A refusal comes first or not at all: an error after
// the first line cuts the answer off, which the client sees.
func (h handler) events(w http.ResponseWriter, r *http.Request) {
	began := false
	flush := http.NewResponseController(w)
	err := h.node.Events(r.Context(), r.Context().Value(callerKey{}).(Caller), r.PathValue("id"), r.URL.Query().Has("follow"), func(events []api.Event) error {
		var lines bytes.Buffer
		enc := json.NewEncoder(&lines)
		enc.SetEscapeHTML(false) // as encode has it
		for _, e := range events {
			if err := enc.Encode(e); err != nil {
				return err
			}
		}
		if !began {
			began = true
			w.Header().Set("Content-Type", "application/x-ndjson")
		}
		if _, err := w.Write(lines.Bytes()); err != nil {
			return err
		}
		return flush.Flush()
	})
	switch {
	case err != nil && !began:
		h.refuse(w, err)
	case err != nil && r.Context().Err() == nil:
		h.log.Error("sending a session's log", "err", err)
		panic(http.ErrAbortHandler) // net/http's way to cut an answer off
	}
}

// recording answers with what was recorded of a session's terminal.
func (h handler) recording(w http.ResponseWriter, r *http.Request) {
	from, err := h.node.Recording(r.Context(), r.Context().Value(callerKey{}).(Caller), r.PathValue("id"))
	if err != nil {
		h.refuse(w, err)
		return
	}
	defer from.Close()
	w.Header().Set("Content-Type", "application/x-asciicast")
	if _, err := io.Copy(w, from); err != nil && r.Context().Err() == nil {
		h.log.Error("sending a recording", "err", err)
		panic(http.ErrAbortHandler) // as events has it
	}
}
