// Package wire promises the method names of a gateway, which both of its
// generations share. The messages are in v00 and v01: they look alike, and
// mean different bytes.
//
// Their Go code is committed, so that building needs no protoc: `make proto`
// writes it anew.
package wire

import "github.com/mojoup/mojoup-node/pkg/sandbox/openshell/product"

// Methods of the service, as they are called.
const (
	Health         = "Health"
	GetGatewayInfo = "GetGatewayInfo"
	CreateSandbox  = "CreateSandbox"
	GetSandbox     = "GetSandbox"
	ListSandboxes  = "ListSandboxes"
	DeleteSandbox  = "DeleteSandbox"
	WatchSandbox   = "WatchSandbox"
	Exec           = "ExecSandboxInteractive" // input as it comes
	ExecOnce       = "ExecSandbox"            // the whole input at once
)

// Path is the full name of a method.
func Path(method string) string { return "/" + product.Service + "/" + method }
