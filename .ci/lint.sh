#!/usr/bin/env bash
# Formatting, vet, module files, shell scripts, the length of things, and what
# is banned here, each with its reason.
set -euo pipefail
cd "$(dirname "$0")/.."
GO=${GO:-go}
bad=0
say() {
	printf 'lint: %s\n' "$*" >&2
	bad=1
}

unformatted=$(gofmt -l cmd internal pkg .ci)
[ -z "$unformatted" ] || say "not formatted (make fmt): $unformatted"
# The tags of the build, so that what that compiled is not compiled again.
"$GO" vet -tags osusergo,netgo ./... || say "go vet found something"
"$GO" vet .ci/summary.go .ci/summary_test.go || say "go vet found something"
"$GO" mod verify >/dev/null || say "go.sum does not match the modules"
untidy=$("$GO" mod tidy -diff 2>&1) || say "go.mod is not tidy (go mod tidy):"$'\n'"$(grep '^[-+]' <<<"$untidy" | head -n 20)"

# Files that are not committed yet count too, as they will be.
mine() { git grep --untracked -InE "$@" || [ $? -eq 1 ]; }

ban() { # pattern, reason, which files…
	local found
	found=$(mine "$1" -- "${@:3}" | grep -vE 'panic\(.*"BUG|panic\(http\.ErrAbortHandler\)' || true)
	[ -z "$found" ] || say "$2:"$'\n'"$found"
}
code=('*.go' ':!*_test.go' ':!*.pb.go' ':!internal/realtest' ':!pkg/sandbox/sandboxtest' ':!pkg/sandbox/openshell/gatewaytest')
ban 'time\.Sleep\(' 'a sleep hides a missing signal' "${code[@]}"
ban 'os\.Exit\(|log\.Fatal' 'only main exits: elsewhere defers would be skipped' "${code[@]}" ':!cmd' ':!.ci' ':!pkg/sandbox/openshell/forwarder/main.go'
ban 'os\.Is(Not)?Exist\(|os\.IsPermission\(' 'does not unwrap: use errors.Is' "${code[@]}"
ban '^func init\(\)' 'a hidden order of execution' "${code[@]}"
ban 'context\.(Background|TODO)\(\)' 'a part takes its context from its caller' "${code[@]}" ':!cmd' ':!internal/cli/cli.go' ':!pkg/sandbox/openshell/forwarder/main.go'
ban 'panic\(' 'an error has a text and a next step; only a fault of this program ("BUG: …") may panic, or a handler that cuts an answer off in the way of net/http' "${code[@]}"
# Hosts come from the clients of the machine, so that company mirrors work.
ban 'npmjs[.]|yarnpkg[.]|pypi[.]org|pythonhosted[.]|crates[.]io|(proxy|sum)[.]golang[.]|(deb|security)[.]debian[.]|(archive|security)[.]ubuntu[.]|maven[.](org|apache|google)|repo1?[.]maven' \
	'a package registry by name' .
ban '(^|[^A-Za-z0-9_.-])/wor[k]/' 'a path of somebody'"'"'s machine' .

# Longer files hide a seam.
long=$(git ls-files --cached --others --exclude-standard -- '*.go' '*.c' '*.h' '*.sh' ':!*.pb.go' | while read -r file; do
	[ ! -e "$file" ] || awk 'END { if (NR > 700) print FILENAME ": " NR " lines" }' "$file"
done)
[ -z "$long" ] || say "files over 700 lines:"$'\n'"$long"
# A longer function needs a comment that says why.
long=$(git ls-files --cached --others --exclude-standard -- '*.go' ':!*.pb.go' | while read -r file; do
	[ ! -e "$file" ] || awk '
		/^func / && !/}$/ { start = FNR; told = before ~ /^\/\//; name = $0 }
		/^}/ && start { if (FNR - start > 100 && !told) print FILENAME ":" start ": " FNR - start " lines: " name; start = 0 }
		{ before = $0 }' "$file"
done)
[ -z "$long" ] || say "functions over 100 lines without a comment:"$'\n'"$long"

if command -v shellcheck >/dev/null 2>&1; then
	shellcheck -x packaging/*.sh .ci/run .ci/*.sh || say "shellcheck found something"
else
	echo "lint: skipped shellcheck: not installed"
fi
[ "$bad" -ne 0 ] || echo "lint: nothing found"
exit "$bad"
