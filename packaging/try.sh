#!/bin/sh
# A first session: makes a demo repository, runs a command in a sandbox in it,
# and shows what it could and could not do. Leaves nothing behind. Usage:
#   try.sh PATH-OF-mojoup-node
set -eu

node=$(realpath "$1")
demo=$(mktemp -d "${TMPDIR:-/tmp}/mojoup-try.XXXXXX")
export MOJOUP_CONFIG="$demo/node.toml" MOJOUP_STATE_DIR="$demo/state" MOJOUP_RUNTIME_DIR="$demo/run"
finish() {
	"$node" serve --stop >/dev/null 2>&1 || true
	rm -rf "$demo"
}
trap finish EXIT
trap 'exit 130' INT TERM

echo "== can this machine sandbox agents?"
"$node" doctor | tail -n 1

repo="$demo/repository"
mkdir -p "$repo/.mojoup"
cd "$repo"
git init -q .
git config user.name demo
git config user.email demo@demo.example
cat >.mojoup/policy.json <<'POLICY'
{
  "version": 1,
  "agents": { "sandbox": "required" },
  // Nothing is reachable unless a rule allows it. This rule is read-only and
  // takes its hosts from the settings of this machine's own pip.
  "network": { "rules": [ { "preset": "pypi" } ] },
}
POLICY
cat >agent.sh <<'AGENT'
# What an agent, or something that misleads it, may try.
try() { # sentence, command…
	sentence=$1
	shift
	if "$@" >/dev/null 2>&1; then echo "  could      $sentence"; else echo "  could not  $sentence"; fi
}
try "write in the repository" sh -c 'echo hello >made-inside'
try "commit in the repository" sh -c 'git add made-inside && git commit -qm "made inside"'
try "use the toolchains of the machine" git --version
try "write a git hook that the host would run" sh -c 'echo "#!/bin/sh" >.git/hooks/pre-commit'
try "change git's configuration of the repository" git config core.fsmonitor ./evil
try "change the policy that it runs under" sh -c 'echo "{}" >.mojoup/policy.json'
try "read the keys in your home" ls ~/.ssh
try "see the processes of the machine" sh -c '[ "$(ls -d /proc/[0-9]* | wc -l)" -gt 20 ]'
try "talk to Docker" ls /var/run/docker.sock /run/docker.sock
try "reach the metadata service" sh -c 'exec 3<>/dev/tcp/169.254.169.254/80'
try "make namespaces of its own" unshare --user true
AGENT

echo
echo "== a session: mojoup-node run -- bash agent.sh"
"$node" run -- bash agent.sh
echo
echo "== a host that the policy does not allow: curl https://example.com"
"$node" run -- curl -sS --max-time 20 https://example.com || true
echo
echo "== a host that it does: the index of pip"
"$node" run -- sh -c 'PIP_DISABLE_PIP_VERSION_CHECK=1 pip download --no-deps -q -d /tmp/p six && ls /tmp/p' || true
echo
echo "== what was enforced and recorded"
last=$("$node" session list --past --json | sed -n 's/^ *"id": "\(.*\)",/\1/p' | sed -n 2p)
"$node" session show "$last"
echo
echo "== and outside, afterwards"
ls -A
git status --short
"$node" status | head -n 1
