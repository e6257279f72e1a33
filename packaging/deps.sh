#!/bin/sh
# What building and testing need from the distribution. Usage:
#   deps.sh check   say what is missing for building, and the line that installs it
#   deps.sh build   install what is missing for building (as root), else as check
#   deps.sh test    the same for testing
set -eu

build_packages() {
	command -v cc >/dev/null 2>&1 || echo gcc libc6-dev
	command -v make >/dev/null 2>&1 || echo make
	command -v git >/dev/null 2>&1 || echo git
	command -v pkg-config >/dev/null 2>&1 || echo pkg-config
	pkg-config --exists libseccomp 2>/dev/null || echo libseccomp-dev
}

test_packages() {
	build_packages
	command -v bwrap >/dev/null 2>&1 || echo bubblewrap
	command -v ip >/dev/null 2>&1 || echo iproute2
	command -v curl >/dev/null 2>&1 || echo curl
	command -v strace >/dev/null 2>&1 || echo strace
	command -v vim >/dev/null 2>&1 || echo vim
	command -v less >/dev/null 2>&1 || echo less
	command -v top >/dev/null 2>&1 || echo procps
	command -v tput >/dev/null 2>&1 || echo ncurses-bin
	command -v gh >/dev/null 2>&1 || echo gh
	[ -x /usr/bin/pytest ] || echo python3-pytest
	command -v gdb >/dev/null 2>&1 || echo gdb
	command -v shellcheck >/dev/null 2>&1 || echo shellcheck
	command -v setpriv >/dev/null 2>&1 || echo util-linux
	[ -e /etc/ssl/certs/ca-certificates.crt ] || echo ca-certificates
	# The clients of the tests that install a real package.
	command -v npm >/dev/null 2>&1 || echo nodejs npm
	command -v python3 >/dev/null 2>&1 || echo python3
	command -v pip >/dev/null 2>&1 || echo python3-pip
	# The double of a gateway makes containers of the one in Docker.
	command -v dockerd >/dev/null 2>&1 || [ -S /var/run/docker.sock ] || echo docker.io
	command -v busybox >/dev/null 2>&1 || echo busybox-static
	# The public SDK of OpenShell, and whether generated code is current.
	python3 -c 'import ensurepip, venv' 2>/dev/null || echo python3-venv
	# A real keyring, on a bus of its own.
	command -v dbus-daemon >/dev/null 2>&1 || echo dbus
	command -v gnome-keyring-daemon >/dev/null 2>&1 || echo gnome-keyring
	# The node page is looked at with a real browser.
	command -v chromium >/dev/null 2>&1 || echo chromium
	command -v protoc >/dev/null 2>&1 || echo protobuf-compiler
}

case "${1:-check}" in
check | build) missing=$(build_packages | tr '\n' ' ') ;;
test) missing=$(test_packages | tr '\n' ' ') ;;
*)
	echo "usage: deps.sh check|build|test" >&2
	exit 2
	;;
esac
missing=${missing% }

if ! command -v "${GO:-go}" >/dev/null 2>&1; then
	echo "Go is missing: install Go 1.26 or newer, then run this again" >&2
	exit 1
fi
[ -n "$missing" ] || exit 0

line="apt-get install -y --no-install-recommends $missing"
if [ "${1:-check}" = check ] || [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null 2>&1; then
	echo "missing here: $missing" >&2
	echo "to install them: sudo $line" >&2
	exit 1
fi
echo "installing: $missing" >&2
apt-get update -qq
# shellcheck disable=SC2086 # the packages are words
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
