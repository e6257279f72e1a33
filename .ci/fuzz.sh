#!/usr/bin/env bash
# Runs every fuzz test of the tree for the time given (default 10s), one after
# the other. A tree without fuzz tests is a failure, and so is one that finds
# something.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-10s}
found=$(grep -rE '^func Fuzz' --include='*_test.go' cmd internal pkg | sort) || { echo "no fuzz tests found" >&2; exit 1; }
log=$(mktemp)
trap 'rm -f "$log"' EXIT
ran=0 failed=0
while IFS=: read -r file declared; do
	func=${declared#func }
	func=${func%%(*}
	printf '\n== %s (%s)\n' "$func" "$file"
	if "${GO:-go}" test "./$(dirname "$file")" -run '^$' -fuzz "^$func\$" -fuzztime "$time" 2>&1 | tee "$log"; then
		ran=$((ran + 1))
	elif grep -q 'context deadline exceeded' "$log" && ! grep -q 'Failing input' "$log"; then
		# An input was being tried when time was up, which go test calls a failure.
		ran=$((ran + 1))
	else
		failed=$((failed + 1))
	fi
done <<<"$found"
printf '\n%s passed, %s failed, 0 skipped\n' "$ran" "$failed"
[ "$failed" -eq 0 ]
