#!/usr/bin/env bash
# Runs every fuzz test of the tree for the time given (default 10s), one after
# the other. A tree without fuzz tests is a failure.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-10s}
ran=0
while IFS=: read -r file func; do
	echo "== $func ($file)"
	go test "./$(dirname "$file")" -run '^$' -fuzz "^$func\$" -fuzztime "$time"
	ran=$((ran + 1))
done < <(git grep -E '^func Fuzz' -- '*_test.go' | sed -E 's/^([^:]+):func (Fuzz[A-Za-z0-9_]*).*/\1:\2/')
[ "$ran" -gt 0 ] || { echo "no fuzz tests found" >&2; exit 1; }
echo "$ran fuzz tests ran"
