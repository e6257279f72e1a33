#!/usr/bin/env bash
# `make test-vm`: what no container shows, in a virtual machine with Debian's own
# kernels: control groups of version 2 with all controllers, as root and as an
# ordinary user, a service manager that gives some, a system node as a service, a
# reboot in the middle of a session, a machine that sleeps, a clock that is set,
# and a kernel whose Landlock is too old. It needs root, to make the disk, and
# about twenty minutes without KVM.
# Its files stay in MOJOUP_VM (default: mojoup-vm in the cache directory).
set -euo pipefail
cd "$(dirname "$0")/../.."
here=$PWD/.ci/vm
dir=${MOJOUP_VM:-${XDG_CACHE_HOME:-$HOME/.cache}/mojoup-vm}
mkdir -p "$dir"
[ "$(id -u)" = 0 ] || { echo "making a disk needs root" >&2; exit 1; }
for tool in qemu-system-x86_64 debootstrap mke2fs; do
	command -v "$tool" >/dev/null || { echo "missing: $tool (Debian: qemu-system-x86 debootstrap e2fsprogs)" >&2; exit 1; }
done

# The newest kernel of the backports, and the release's own, which is too old.
[ -e "$dir/disk.img" ] || "$here/disk.sh" "$dir"
kernel() { find "$dir/tree/boot" -name "vmlinuz-$1*" -printf '%f\n' | sort -V | tail -1 | sed s/vmlinuz-//; }
new=$(kernel 6.12) old=$(kernel 6.1.)

# What the machine runs: the node, and the tests of what depends on groups.
share=$dir/share
rm -rf "$share"
mkdir -p "$share/bin" "$share/tree"
make -s build
cp mojoup-node "$share/bin/"
git ls-files -z | tar -c --null -T - | tar -x -C "$share/tree"
for package in pkg/sandbox/native pkg/sandbox/native/cgroup; do
	CGO_ENABLED=1 "${GO:-go}" test -c -tags osusergo,netgo -ldflags '-linkmode external -extldflags "-static"' \
		-o "$share/bin/$(basename $package).test" "./$package"
done
cp "$here/guest.sh" "$share/"

boot() { # KERNEL STAGE SECONDS
	rm -f "$dir/share.img"
	mke2fs -q -t ext4 -d "$share" "$dir/share.img" 400M 2>/dev/null
	# Whoever sleeps is woken through the monitor.
	rm -f "$dir"/monitor.*
	mkfifo "$dir/monitor.in" "$dir/monitor.out"
	(
		exec 3<>"$dir/monitor.in" 4<>"$dir/monitor.out"
		while sleep 40; do echo system_wakeup >&3; done
	) &
	local waker=$!
	# Emulation as it is everywhere. The older emulators get one instruction
	# wrong that newer kernels use where they find it.
	timeout "$3" qemu-system-x86_64 -machine q35,accel=tcg -cpu qemu64,-cx16 -m 3072 -smp 1 \
		-nographic -no-reboot -net none -chardev "pipe,id=monitor,path=$dir/monitor" -mon monitor \
		-kernel "$dir/tree/boot/vmlinuz-$1" -initrd "$dir/tree/boot/initrd.img-$1" \
		-append "root=/dev/vda rw console=ttyS0 quiet loglevel=3 systemd.show_status=0 panic=-1 systemd.mask=serial-getty@ttyS0.service stage=$2" \
		-drive "file=$dir/run.img,if=virtio,format=raw,cache=unsafe" \
		-drive "file=$dir/share.img,if=virtio,format=raw,cache=unsafe,readonly=on" </dev/null 2>&1 | tee "$dir/console.$2" |
		tr -d '\r' | sed -u -n '/== stage/,$p' | tee -a "$dir/log"
	kill $waker
}

: >"$dir/log"
cp --sparse=always "$dir/disk.img" "$dir/run.img"
for stage in ${STAGES:-old groups people reboot after sleep clock}; do
	case $stage in
	old) boot "$old" "$stage" 600 ;;
	*) boot "$new" "$stage" 1800 ;;
	esac
done
for stage in ${STAGES:-old groups people reboot after sleep clock}; do
	grep -aq "== stage $stage: passed" "$dir/log" || { echo "stage $stage did not pass: $dir/log" >&2; exit 1; }
done
echo "every stage passed"
