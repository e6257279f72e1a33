#!/usr/bin/env bash
# Names every skipped test of a verbose `go test` log with its reason. With
# MOJOUP_REQUIRE_KERNEL=1 a skip that is not in the list below is a failure.
set -euo pipefail
log=$1

# Tests that are for other commands than `make test`: name, then which.
elsewhere='Tools|Soak'

skipped=$(awk '/^ *--- SKIP/ { name=$3; getline reason; sub(/^ */, "", reason); print name ": " reason }' "$log")
ran=$(grep -cE '^ *--- PASS' "$log" || true)
count=$(printf '%s' "$skipped" | grep -c . || true)
[ -z "$skipped" ] || printf '%s\n' "$skipped"
printf '%s passed, 0 failed, %s skipped\n' "$ran" "$count"

if [ "${MOJOUP_REQUIRE_KERNEL:-}" = 1 ]; then
	foreign=$(printf '%s\n' "$skipped" | grep -vE "$elsewhere" | grep . || true)
	if [ -n "$foreign" ]; then
		echo "skipped where nothing may be skipped" >&2
		exit 1
	fi
fi
