package admission

import "testing"

func TestReadMemoryOfThisMachine(t *testing.T) {
	r, err := ReadMemory()
	if err != nil {
		t.Fatal(err)
	}
	if r.Total < 64*mebi || r.Available <= 0 || r.Available > 1<<46 {
		t.Errorf("%+v", r)
	}
	t.Logf("%+v", r)
}

func BenchmarkReadMemory(b *testing.B) {
	for b.Loop() {
		if _, err := ReadMemory(); err != nil {
			b.Fatal(err)
		}
	}
}
