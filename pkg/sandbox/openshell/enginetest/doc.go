// Package enginetest promises engine docker on the double of a gateway to the
// tests of whoever carries sandboxes, without their knowing of either.
package enginetest
