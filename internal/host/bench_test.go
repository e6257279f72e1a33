package host

import (
	"os"
	"testing"
)

func BenchmarkGather(b *testing.B) {
	var trust Trust
	for range b.N {
		if _, err := Gather(b.Context(), &trust, "/root", os.Environ()); err != nil {
			b.Fatal(err)
		}
	}
}
