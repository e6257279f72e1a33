//go:build !linux

package bench

func scatter(string) {}
