#!/bin/busybox sh
# shellcheck shell=dash
#
# /init of the test machine: loads the modules in /m/order, mounts the host's
# directory and runs /share/run.sh. The status in /share/rc tells the host that
# the run came to its end; a kernel that panics leaves none.
/bin/busybox --install -s /bin
# /sbin first: iproute2's ip, not the applet.
export PATH=/sbin:/bin HOME=/root
ip() { /sbin/ip "$@"; }
mount -t proc proc /proc
if grep -q rds_probe /proc/cmdline; then
	# The host only wants to know whether an accelerator works at all.
	echo "rds-probe-ok"
	poweroff -f
fi
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
mount -t tmpfs run /run
mkdir -p /run/netns
while read -r m; do
	insmod "/m/$m" || echo "init: insmod $m failed"
done </m/order
ip link set lo up
if mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144 share /share; then
	/share/run.sh
	rc=$?
	dmesg >/share/dmesg.txt
	sync
	echo "$rc" >/share/rc
else
	echo "init: cannot mount the share"
fi
sync
poweroff -f
