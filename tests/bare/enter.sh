#!/usr/bin/env bash
# enter.sh ROOT DIRECTORY [rw|ro PATH]… -- COMMAND…
#
# Runs COMMAND in DIRECTORY of the file system ROOT, with each PATH of this machine mounted at the same path in it.
# It is the first process of a new mount and process namespace, collects the orphans in it, and ends it.
set -euo pipefail
root=$1 directory=$2
shift 2
mount --bind "$root" "$root"
mount --rbind /dev "$root/dev"
mount --rbind /sys "$root/sys"
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mkdir "$root/run/lock"
while [ "$1" != -- ]; do
  mkdir -p "$root$2"
  mount --rbind "$2" "$root$2"
  [ "$1" = rw ] || mount -o remount,bind,ro "$root$2"
  shift 2
done
shift
mkdir "$root/run/old"
cd "$root"
pivot_root . run/old
umount --lazy /run/old
rmdir /run/old
cd "$directory"
"$@"
exit
