#!/usr/bin/env bash
# `make test`: sets up what the tests need, builds, and runs every test once,
# with the race detector. As root it installs what is missing and runs the
# tests of the ordinary user too; as anybody else it says what to install.
set -euo pipefail
cd "$(dirname "$0")/.."
GO=${GO:-go}

step() { printf '\n== %s\n' "$*"; }

step "packages"
# Fetching modules and installing packages wait for different things.
"$GO" mod download & modules=$!
packaging/deps.sh test
wait "$modules"

step "build"
make -s build
./mojoup-node version

step "lint"
.ci/lint.sh

step "other systems"
make -s cross

step "tests, with the race detector"
# One pass: -race is the ordinary run. -json would hide progress; the summary
# of skips is made from the verbose output.
log=$(mktemp)
trap 'rm -f "$log"' EXIT
code=0
"$GO" test -race -count=1 -timeout 20m -v ./... >"$log" 2>&1 || code=$?
grep -E '^(ok|FAIL|---? FAIL|panic:|\?)' "$log" || true
if [ "$code" -ne 0 ]; then
	step "what failed"
	grep -nE -A40 '^ *--- FAIL|^panic:|DATA RACE|^FAIL|cannot|undefined' "$log" | tail -n 400
	exit "$code"
fi

step "skipped, and why"
.ci/skips.sh "$log"
