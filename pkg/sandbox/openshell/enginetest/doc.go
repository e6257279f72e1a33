// Package enginetest promises engine docker, on the double of a gateway or at
// the real one that MOJOUP_TEST_GATEWAY names, to the tests of whoever carries
// sandboxes, without their knowing of either.
package enginetest
