package daemon

import "testing"

// TestHowFarAnImageIs counts what Docker says of one.
func TestHowFarAnImageIs(t *testing.T) {
	l := layers{}
	for _, tc := range []struct {
		step  pullStep
		about bool
		want  Pulled
	}{
		{pullStep{Status: "Pulling from mojoup/x", ID: "latest"}, false, Pulled{}},
		{pullStep{Status: "Already exists", ID: "a"}, true, Pulled{Layers: 1, Done: 1}},
		{pullStep{Status: "Pulling fs layer", ID: "b"}, true, Pulled{Layers: 2, Done: 1}},
		{pullStep{Status: "Downloading", ID: "b", ProgressDetail: struct{ Current, Total int64 }{5, 20}}, true, Pulled{Layers: 2, Done: 1, Bytes: 5, Total: 20}},
		{pullStep{Status: "Downloading", ID: "c", ProgressDetail: struct{ Current, Total int64 }{7, -1}}, true, Pulled{Layers: 3, Done: 1, Bytes: 12, Total: 27}},
		{pullStep{Status: "Download complete", ID: "b"}, true, Pulled{Layers: 3, Done: 1, Bytes: 27, Total: 27}},
		{pullStep{Status: "Extracting", ID: "b", ProgressDetail: struct{ Current, Total int64 }{1, 20}}, true, Pulled{Layers: 3, Done: 1, Bytes: 27, Total: 27}},
		{pullStep{Status: "Pull complete", ID: "b"}, true, Pulled{Layers: 3, Done: 2, Bytes: 27, Total: 27}},
		{pullStep{Status: "Digest: sha256:1"}, false, Pulled{Layers: 3, Done: 2, Bytes: 27, Total: 27}},
		{pullStep{Status: "Waiting"}, false, Pulled{Layers: 3, Done: 2, Bytes: 27, Total: 27}},
	} {
		if about, got := l.take(tc.step), l.sum(); about != tc.about || got != tc.want {
			t.Errorf("%+v: about a layer %v, %+v; want %v, %+v", tc.step, about, got, tc.about, tc.want)
		}
	}
}
