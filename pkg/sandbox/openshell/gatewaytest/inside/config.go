// Package inside promises that a container of the double confines what runs in
// it as a sandbox of a real gateway does, by means of its own and not by
// pretending. It is what the program supervisor does, and how the double tells
// it.
//
// Main is the container's first process: it makes the network, starts the main
// process and serves the only exit. Enter is how every process comes to be
// inside, the main one and each command: it joins that network, gives up
// everything, and becomes the program.
package inside

// Places in a container, all of them reserved by the product.
const (
	Program    = "/opt/openshell/bin/openshell-sandbox"
	ConfigPath = "/etc/openshell/double.json"
	ControlDir = "/run/openshell"
	Control    = ControlDir + "/control.sock" // to the double: what happened
	Channel    = ControlDir + "/channel.sock" // to the double: the way out of 0.1.x
	netnsFile  = ControlDir + "/netns"
)

// Config is what the double wants of a container.
type Config struct {
	UID, GID int
	// Workspace is the working directory; it is made where the image names none.
	Workspace     string
	MakeWorkspace bool

	ReadOnly, ReadWrite []string // all must be there
	Rules               []Rule
	Main                []string
	Env                 []string // of the main process; a command brings its own

	// Inner puts what runs into a network namespace of its own, below that of
	// the container: 0.0.x.
	Inner bool
	// Proxy is where what runs finds the exit.
	Proxy string
	// Host is what the host's alias means: an address to connect to, or empty
	// for the channel.
	Host string
}

// A Rule lets programs reach one host and port.
type Rule struct {
	Host     string
	Port     uint32
	Programs []string
	// Opaque rules pass bytes on unread; others refuse what is not HTTP to the
	// host itself.
	Opaque bool
}
