// Command mojoup-node is the door to everything in this repository: the
// command tree of package cli.
package main

import (
	"os"

	"github.com/mojoup/mojoup-node/internal/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:], cli.ThisProcess())) }
