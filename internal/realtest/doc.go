// Package realtest promises that programs which people use really work inside
// real sessions of the finished binary: git over https, curl, Node, Python, Go,
// npm, pip and an agent's own command line, against servers of the test's own
// on loopback; and on a terminal an editor, a pager, top, a shell with its jobs,
// a dev server and a test suite. It has tests only.
//
// Each program is also run without a sandbox against the same server, so that a
// test cannot pass because the server answers nobody. Programs that are missing
// skip their test with what was wanted and found; with MOJOUP_REQUIRE_KERNEL=1
// they fail it. Packages that the tests need are fetched by npm's own client
// into MOJOUP_TEST_CACHE, or into a directory that is gone afterwards: those of
// this machine alone, in the background from the start on where the whole
// package is tested, and again where the registry does not answer.
// MOJOUP_TEST_BINARY names a node to be tested instead of the one that the tests
// build.
//
// A server is reached by a name of the test's own: the node runs in a mount
// namespace with a hosts file that points the name at loopback, and loopback is
// opened in the documented way, by the rule's "addresses" and by
// node.network.private together.
package realtest
