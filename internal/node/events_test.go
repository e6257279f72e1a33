package node

import (
	"slices"
	"testing"

	"github.com/mojoup/mojoup-node/pkg/console/api"
)

// TestClosingLinesInAFullDiary are noted all the same: clients that come and go
// cannot push a session's warnings out of its log.
func TestClosingLinesInAFullDiary(t *testing.T) {
	d := newDiary()
	for range most + 10 {
		d.note(api.EventClient, "a client attached")
	}
	d.close([]string{"warning: one", "", "warning: two"})
	d.noteState("gone", "")
	events, _ := d.after(most)
	var texts []string
	for _, e := range events {
		texts = append(texts, e.Kind+" "+e.Text)
	}
	if want := []string{"notice warning: one", "notice warning: two", "state gone"}; !slices.Equal(texts, want) {
		t.Errorf("a full diary ends with %q, want %q", texts, want)
	}
}
