// Package archtest promises that the repository is built as its pages say:
// imports point one way, every package says what it promises and has its place
// in the architecture, and names in the documentation exist. It holds tests only.
package archtest
