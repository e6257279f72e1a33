// Package sandboxtest promises that whatever passes [Test] is a
// [sandbox.Engine].
//
// The suite runs real commands. What only an engine that confines can hold is
// asked where [Options].Confines says that it does; the table of escapes of
// package escape is tried there too, and the same attempts are shown to work
// outside. Test it twice: as root, where sessions run as another user, and as
// an ordinary user (set MOJOUP_TEST_ATTACK to a built attack program if that
// user has no Go).
package sandboxtest
