#!/bin/bash
# A machine whose first process is a real systemd: machine.sh PLACE INSTALLED NAME, as root, in new
# namespaces for mounts and control groups. PLACE is an empty folder, INSTALLED becomes the machine's
# /usr/local, NAME is that of its control group. Writes the process id of its systemd, then has a
# machine until the standard input ends; so it goes with whoever started it, however he ends.
#
# The programs are this machine's own (/usr, read-only); all else is new: processes, mounts, host
# name, network, IPC, control groups, /dev, /etc, /run, /tmp, /var. Nothing that it does is to be
# seen outside: mounts are private, and /proc/sys and /sys, which are not, are read-only (systemd
# would set kernel parameters).
set -euo pipefail

# In the new namespaces: the mounts that belong to them, then systemd.
if [ "$1" = inside ]; then
	cd "$2"
	# The process id outside: of this shell, which systemd takes over.
	read -r pid _ </proc/self/stat
	mount -t proc proc proc
	mount --bind proc/sys proc/sys
	mount -o remount,bind,ro proc/sys
	mount -t sysfs -o ro sysfs sys
	mount -t cgroup2 cgroup sys/fs/cgroup
	mkdir old
	pivot_root . old
	cd /
	umount -l old
	rmdir old
	echo "$pid"
	# Of the control groups of version 1 it knows nothing, where there are any. What is the kernel's
	# own it leaves alone, and could not do otherwise.
	exec env -i container=trackway-test PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin \
		setpriv --bounding-set=-sys_boot,-sys_module,-sys_rawio,-sys_time,-syslog \
		/usr/lib/systemd/systemd --show-status=0 </dev/null >&2
fi

self=$(readlink -f "$0")
place=$1
installed=$2
name=$3
# Who ends us ends the machine, by the end of our standard input: not half of it.
trap '' HUP INT TERM

mount --make-rprivate /
# Below the group that we are in. (From the first namespace, the options of this mount would be
# those of the whole hierarchy.)
groups=$(mktemp -d)
mount -t cgroup2 cgroup "$groups"
group=$groups/$name
mkdir "$group"

# Ends all that is left of the machine, and its control groups.
finish() {
	local status=$?
	set +e
	# systemd first, with which all go that are in its namespace: who waits for it reaps it.
	if [ -n "${machine:-}" ]; then
		local first
		first=$(cat "/proc/$machine/task/$machine/children" 2>/dev/null)
		# shellcheck disable=SC2086 # a word, and a space
		kill -KILL ${first:-$machine} 2>/dev/null
		wait "$machine"
	fi
	[ ! -w "$group/cgroup.kill" ] || echo 1 >"$group/cgroup.kill"
	for _ in $(seq 200); do
		find "$group" -depth -type d -exec rmdir {} + 2>/dev/null || true
		[ -d "$group" ] || break
		sleep 0.05
	done
	[ ! -d "$group" ] || status=1
	umount "$groups"
	rmdir "$groups"
	exit $status
}
trap finish EXIT

mount -t tmpfs -o mode=755 trackway-test "$place"
cd "$place"
mkdir dev etc home opt proc root run sys tmp usr var
for folder in bin lib lib32 lib64 libx32 sbin; do
	# Where they are not links into /usr, this is not a system that we know how to copy.
	[ ! -L /$folder ] || cp -P /$folder .
done
mount --bind /usr usr
mount --bind "$installed" usr/local
mount -o remount,bind,ro usr
mount -t tmpfs -o mode=755 run run
mount -t tmpfs -o mode=1777 tmp tmp
mount -t tmpfs -o mode=755 dev dev
mkdir dev/shm dev/pts
for device in full:1:7 null:1:3 random:1:8 tty:5:0 urandom:1:9 zero:1:5; do
	IFS=: read -r device major minor <<<"$device"
	# Not those of /dev: a change of their owner or mode would be seen there.
	mknod -m 666 "dev/$device" c "$major" "$minor"
done
mount -t tmpfs -o mode=1777 shm dev/shm
mount -t devpts -o newinstance,ptmxmode=666,mode=620 devpts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd

mkdir -p etc/pam.d etc/systemd/system etc/systemd/logind.conf.d
for known in alternatives ld.so.conf ld.so.conf.d; do
	[ ! -e /etc/$known ] || cp -a /etc/$known etc/
done
ldconfig -r . 2>/dev/null
: >etc/fstab
echo trackway-test >etc/hostname
echo 0123456789abcdef0123456789abcdef >etc/machine-id
printf '%s\n' 'passwd: files systemd' 'group: files systemd' >etc/nsswitch.conf
printf '%s\n' root:x:0:0::/root:/bin/sh messagebus:x:100:100::/:/bin/false \
	alice:x:2000:2000::/home/alice:/bin/sh nobody:x:65534:65534::/:/bin/false >etc/passwd
printf '%s\n' root:x:0: messagebus:x:100: alice:x:2000: nogroup:x:65534: >etc/group
install -d -m 700 -o 2000 -g 2000 home/alice
# Who logs in here is who he says; systemd-logind(8) knows of it.
for service in login systemd-user; do
	printf '%s\n' 'account required pam_permit.so' 'session required pam_systemd.so' \
		>etc/pam.d/$service
done
# Whoever has logged out is gone at once.
printf '%s\n' '[Login]' UserStopDelaySec=0 >etc/systemd/logind.conf.d/test.conf
printf '%s\n' '[Unit]' Requires=basic.target After=basic.target AllowIsolate=yes \
	>etc/systemd/system/default.target
printf '%s\n' '[Unit]' Requires=basic.target After=basic.target AllowIsolate=yes \
	>etc/systemd/system/bare.target
# What is mounted, or loaded into the kernel, at the start of a machine.
for unit in modprobe@.service dev-hugepages.mount sys-fs-fuse-connections.mount \
	sys-kernel-config.mount sys-kernel-debug.mount sys-kernel-tracing.mount \
	proc-sys-fs-binfmt_misc.automount; do
	ln -s /dev/null etc/systemd/system/$unit
done

# In its control group from the start, and gone if we are killed.
(
	read -r pid _ </proc/self/stat
	echo "$pid" >"$group/cgroup.procs"
	exec setpriv --pdeathsig KILL \
		unshare --mount --pid --fork --kill-child --uts --ipc --cgroup --net \
		bash "$self" inside "$place"
) </dev/null &
machine=$!
# Whoever waits for the process id need not wait where there will be none.
exec >/dev/null
# Nobody writes there: it ends when the other end is closed.
cat >/dev/null
