#!/usr/bin/env bash
# Clean systems of Debian, for tests of what is installed. The systems are kept in BELAY_CHROOTS (build/chroots) for the
# next run. Needs root and mmdebstrap. Sourced after check.sh, not run.
# shellcheck shell=bash disable=SC2016,SC2154 # what is quoted is for the shell inside; $work is of check.sh
chroots=${BELAY_CHROOTS:-build/chroots}
mkdir -p "$chroots"

system() { # NAME SUITE [PACKAGE...]: unpack a minimal system of that suite to $work/NAME
    local name=$1 suite=$2 tar
    shift 2
    tar=$chroots/$name-$(echo "$suite $*" | md5sum | cut -c 1-8).tar # made again when the list of packages changes
    [ -s "$tar" ] || { mmdebstrap --variant=minbase ${1:+--include="$*"} "$suite" "$tar.new.tar" && mv "$tar.new.tar" "$tar"; } || return 1
    mkdir "$work/$name" && tar -xf "$tar" -C "$work/$name" --exclude='./dev/*' &&
        mknod -m 666 "$work/$name/dev/null" c 1 3 && mknod -m 666 "$work/$name/dev/zero" c 1 5 && mknod -m 666 "$work/$name/dev/full" c 1 7 && mknod -m 666 "$work/$name/dev/urandom" c 1 9 && mknod -m 666 "$work/$name/dev/tty" c 5 0 &&
        ln -s /proc/self/fd "$work/$name/dev/fd" && ln -s pts/ptmx "$work/$name/dev/ptmx" && mkdir "$work/$name/dev/pts" "$work/$name/dev/shm" && chmod 1777 "$work/$name/dev/shm" &&
        printf '127.0.0.1 localhost\n127.0.1.1 %s\n' "$(uname -n)" >"$work/$name/etc/hosts"
}
inside() { # SUITE COMMAND: in that system, with its own /proc, terminals and processes, which end with it
    local root=$work/$1
    shift
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
        unshare --fork --kill-child --pid --mount sh -c 'mount -t proc proc "$1/proc" && mount -t devpts -o newinstance,ptmxmode=0666 devpts "$1/dev/pts" && exec chroot "$1" sh -c "$2"' sh "$root" "$1" </dev/null
}
