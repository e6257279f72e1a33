// Package archtest promises that the imports of this repository point one way
// and that every package says what it promises. It holds tests only.
package archtest
