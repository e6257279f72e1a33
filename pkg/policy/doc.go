// Package policy promises that a policy document means the same everywhere:
// it parses, layers, decides, explains and lints, from values alone.
package policy
