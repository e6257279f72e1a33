package cli

import (
	"bytes"
	"testing"

	"github.com/mojoup/mojoup-node/internal/fault"
	"github.com/mojoup/mojoup-node/internal/residue"
)

// What a look finds, what it could not find out, and neither, are three exit
// codes and never the same words.
func TestVerifySaysWhatItFound(t *testing.T) {
	left := []residue.Thing{{Kind: residue.KindSocket, Says: "a socket\nis there"}}
	for name, tt := range map[string]struct {
		r              residue.Report
		code           int
		stdout, stderr string
	}{
		"nothing": {residue.Report{}, 0, "nothing is left\n", ""},
		"left":    {residue.Report{Left: left}, fault.ExitNegative, "a socket\\nis there\n", ""},
		"unknown": {residue.Report{Unknown: []string{"no answer"}}, fault.ExitUnknown, "", "mojoup-node: could not find out: no answer\n"},
		"both":    {residue.Report{Left: left, Unknown: []string{"no answer"}}, fault.ExitNegative, "a socket\\nis there\n", "mojoup-node: could not find out: no answer\n"},
	} {
		var stdout, stderr bytes.Buffer
		err := sayLeft(Process{Stdout: &stdout, Stderr: &stderr, Getenv: func(string) string { return "" }}, tt.r, false)
		code := 0
		if err != nil {
			code = int(err.(exitCode))
		}
		if code != tt.code || stdout.String() != tt.stdout || stderr.String() != tt.stderr {
			t.Errorf("%s: code %d, %q, %q", name, code, stdout.String(), stderr.String())
		}
	}
}
