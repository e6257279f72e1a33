package child

import "testing"

func TestTryNamespaces(t *testing.T) {
	if err := TryNamespaces(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestTryListener(t *testing.T) {
	if err := TryListener(t.Context()); err != nil {
		t.Fatal(err)
	}
}
