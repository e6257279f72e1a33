#!/usr/bin/env bash
# `make test`: sets up what the tests need, builds, and runs every test once,
# with the race detector, the long ones too. As root it installs what is
# missing and runs the tests of the ordinary user as well; as anybody else it
# says what to install. A test is skipped with its reason, or fails where
# MOJOUP_REQUIRE_KERNEL=1.
set -euo pipefail
cd "$(dirname "$0")/.."
export GO=${GO:-go} MOJOUP_TEST_LONG=1

started=$SECONDS
step() {
	printf '\n== %s   (after %ss)\n' "$*" "$((SECONDS - started))"
}

step "packages and modules, and whether it builds for other systems"
# Installing waits for a mirror, fetching for another one, and what needs no C
# compiler can be compiled meanwhile.
"$GO" version
others=$(mktemp)
log=$(mktemp)
# What is fetched from npm is fetched once, also where a test is run again.
cache=$(mktemp -d)
chmod 755 "$cache" # somebody else's sessions run what is in it
export MOJOUP_TEST_CACHE=${MOJOUP_TEST_CACHE:-$cache}
daemon=
trap 'rm -rf "$others" "$log" "$cache"; [ -z "$daemon" ] || kill "$daemon"' EXIT
(
	set -e
	"$GO" mod download
	make -s cross
) >"$others" 2>&1 &
background=$!
packaging/deps.sh test || { wait; exit 1; }
if [ "$(id -u)" = 0 ] && [ "${MOJOUP_REQUIRE_KERNEL:-}" = 1 ] && ! getent passwd 1000 >/dev/null; then
	# Root's sessions of somebody else need somebody else.
	useradd --create-home --uid 1000 mojoup-test
fi
answers() { curl -sf --unix-socket /var/run/docker.sock http://docker/_ping >/dev/null; }
if [ "$(id -u)" = 0 ] && [ "${MOJOUP_REQUIRE_KERNEL:-}" = 1 ] && ! answers; then
	# The double of a gateway makes real containers, and nobody has started Docker.
	dockerd >/tmp/mojoup-test-dockerd.log 2>&1 &
	daemon=$!
	for _ in $(seq 120); do
		! answers || break
		sleep 0.5
	done
fi
if ! wait "$background"; then
	cat "$others"
	exit 1
fi

step "build"
make -s build
./mojoup-node version

step "lint"
.ci/lint.sh

step "tests, with the race detector"
# One pass: -race is the ordinary run. A test that failed among all the others
# and passes alone is told last, as unsteady: to be mended, not to be hidden.
"$GO" test .ci/summary.go .ci/summary_test.go
"$GO" build -o "$log" .ci/summary.go
"$GO" test -race -count=1 -timeout 40m -json ./... 2>&1 | "$log" -again
