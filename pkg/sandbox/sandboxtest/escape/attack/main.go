// Command attack promises to try one escape at a time and to say what came of
// it. It is built without cgo, so that it runs wherever a kernel does.
package main

import (
	"os"

	"github.com/mojoup/mojoup-node/pkg/sandbox/sandboxtest/escape"
)

func main() { os.Exit(escape.Main(os.Args[1:], os.Stdin, os.Stdout)) }
