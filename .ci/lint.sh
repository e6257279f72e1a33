#!/usr/bin/env bash
# Formatting, vet, module files, shell scripts, and calls that are banned
# here, each with its reason.
set -euo pipefail
cd "$(dirname "$0")/.."
GO=${GO:-go}
bad=0
say() { echo "$*" >&2; bad=1; }

unformatted=$(gofmt -l cmd internal pkg)
[ -z "$unformatted" ] || say "not formatted: $unformatted"
"$GO" vet ./... || say "go vet found something"
"$GO" mod verify >/dev/null || say "go.sum does not match the modules"
"$GO" mod tidy -diff >/dev/null || say "go.mod is not tidy: run go mod tidy"

ban() { # pattern, files excluded, reason
	found=$(git grep -nE "$1" -- '*.go' ':!*_test.go' ${2:+":!$2"} || true)
	[ -z "$found" ] || say "$3:"$'\n'"$found"
}
ban 'time\.Sleep' '' 'a sleep hides a missing signal'
ban 'os\.Exit' 'cmd/**' 'only main exits: elsewhere defers would be skipped'
ban 'os\.IsNotExist|os\.IsPermission' '' 'does not unwrap: use errors.Is'
ban '^func init\(\)' '' 'hidden order of execution'
ban 'context\.Background\(\)' 'cmd/**' 'a part takes its context from its caller'

if command -v shellcheck >/dev/null 2>&1; then
	shellcheck -x packaging/*.sh .ci/run .ci/*.sh || say "shellcheck found something"
fi
exit "$bad"
