#!/usr/bin/env bash
# disk.sh DIR: make DIR/tree, a Debian with systemd, two people and two kernels,
# and DIR/disk.img of it. The machine's own mirror is asked.
set -euo pipefail
dir=$1
tree=$dir/tree
mirror=$(find /etc/apt -name "*.sources" -exec cat {} + -o -name sources.list -exec cat {} + | awk '$1 == "URIs:" && !m {m = $2} $1 == "deb" && !m {m = $2} END {print m}')
packages=systemd,systemd-sysv,dbus,dbus-user-session,libpam-systemd,git,iproute2,procps,kmod,initramfs-tools,vim-tiny,strace
[ -e "$tree/etc/debian_version" ] || debootstrap --variant=minbase --include="$packages" bookworm "$tree" "$mirror"
printf 'deb %s bookworm-backports main\n' "$mirror" >"$tree/etc/apt/sources.list.d/backports.list"
cp /etc/resolv.conf "$tree/etc/resolv.conf"
printf 'virtio_blk\nvirtio_pci\next4\n' >"$tree/etc/initramfs-tools/modules"
mount -t proc proc "$tree/proc"
mount --bind /dev "$tree/dev"
trap 'umount "$tree/proc" "$tree/dev"' EXIT
inside() { chroot "$tree" env DEBIAN_FRONTEND=noninteractive "$@"; }
inside apt-get update -qq
for from in bookworm bookworm-backports; do
	kernel=$(inside apt-cache show -t "$from" "linux-image-cloud-amd64/$from" 2>/dev/null | awk '/^Depends: linux-image/ {sub(",", "", $2); print $2; exit}')
	inside apt-get install -y -qq --no-install-recommends "$kernel" >/dev/null
done
inside useradd -m -u 1000 -s /bin/bash alice 2>/dev/null || true
mkdir -p "$tree/var/lib/systemd/linger"
touch "$tree/var/lib/systemd/linger/alice"
cat >"$tree/etc/systemd/system/guest.service" <<'U'
[Unit]
After=multi-user.target user@1000.service
Wants=user@1000.service
[Service]
Type=oneshot
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS0
ExecStart=/bin/sh -c 'mkdir -p /share && mount -o ro /dev/vdb /share; bash /share/guest.sh; systemctl poweroff --force --force'
[Install]
WantedBy=multi-user.target
U
ln -sf ../guest.service "$tree/etc/systemd/system/multi-user.target.wants/guest.service"
echo vm >"$tree/etc/hostname"
printf '127.0.0.1 localhost vm\n' >"$tree/etc/hosts"
: >"$tree/etc/machine-id"
printf '/dev/vda / ext4 rw 0 0\n' >"$tree/etc/fstab"
umount "$tree/proc" "$tree/dev"
trap - EXIT
rm -f "$dir/disk.img"
truncate -s 4G "$dir/disk.img.new"
mke2fs -q -t ext4 -d "$tree" "$dir/disk.img.new"
mv "$dir/disk.img.new" "$dir/disk.img"
