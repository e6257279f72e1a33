//go:build !unix

package cli

// noFollow has no meaning there; no node is ever started.
const noFollow = 0
