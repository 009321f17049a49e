#!/usr/bin/env bash
# The image of `make image`, unpacked by umoci and started as its configuration says: by its user, on a read-only root,
# with a volume at /data. Needs root, mmdebstrap and umoci: only with BELAY_INSTALL_TESTS=all.
#
#   test/install/image.sh
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
# shellcheck source=test/support/check.sh
. test/support/check.sh
# shellcheck source=test/support/page.sh
. test/support/page.sh
dist=build/dist
check "make image" env BELAY_NO_SETUP=1 bash -c "$(page_command docs/install.md 'make image')"

unpacked() {
    mkdir "$work/oci" && tar -xf "$dist"/*-oci.tar -C "$work/oci" &&
        umoci unpack --image "$work/oci:$(basename "$dist"/*-oci.tar -oci.tar | sed 's/^belay-//')" "$work/bundle"
}
check "umoci unpacks it" unpacked
field() { python3 -c 'import json, sys; value = json.load(open(sys.argv[1]))["process"]
for name in sys.argv[2:]: value = value[name]
print("\n".join(value) if isinstance(value, list) else value)' "$work/bundle/config.json" "$@"; }
uid=$(field user uid)
gid=$(field user gid)
mapfile -t args < <(field args)
mapfile -t env < <(field env)
not_root() { [ "$uid" -gt 0 ] && [ "$gid" -gt 0 ]; }
check "it runs as a user that is not root" not_root

# In namespaces of its own; all of it ends with the shell inside. $1: what runs beside the server.
started() {
    # shellcheck disable=SC2016 # for the shell inside
    unshare --fork --kill-child --pid --mount --net sh -c '
        root=$1 uid=$2 gid=$3 script=$4; shift 4
        ip link set lo up 2>/dev/null
        mount --bind "$root" "$root" && mount -o remount,ro,bind "$root" && mount -t proc proc "$root/proc" &&
        mount -t tmpfs -o "uid=$uid,gid=$gid,mode=0700" data "$root/data" && mount -t tmpfs dev "$root/dev" && mknod -m 666 "$root/dev/null" c 1 3 && mknod -m 666 "$root/dev/urandom" c 1 9 &&
        exec chroot --userspec="$uid:$gid" "$root" env -i "$@" sh -c "$script"' sh "$work/bundle/rootfs" "${as_uid:-$uid}" "${as_gid:-$gid}" "$1" "${env[@]}"
}
# Without tokens it serves nobody else: then it says so and ends.
refused() { ! started "${args[*]}" >"$work/log" 2>&1 && grep -q tokens "$work/log"; }
check "without tokens it does not start" refused
served() {
    started "cd /data && belay auth new --name ci --role locker >/data/token 2>/data/line; chmod 600 /data/token
        { echo 'server:'; echo '  tokens:'; grep -o '{.*}' /data/line | sed 's/^/    - /'; } >/data/config.yaml
        ${args[*]} --config /data/config.yaml >/data/log 2>&1 &
        for i in \$(seq 100); do belay list >/dev/null 2>&1 && grep -q Serving /data/log && break; sleep 0.1; done
        BELAY_AUTH_TOKEN=\$(cat /data/token) belay run --store http://127.0.0.1:7420 demo -- echo served
        belay list --quiet >/dev/null && echo healthy
        belay status --store postgresql://127.0.0.1:1/locks k 2>/dev/null; [ \$? = 69 ] && echo has-postgresql
        touch /etc/x 2>/dev/null || echo read-only" >"$work/log" 2>&1
    cat "$work/log"
    [ "$(tr '\n' ' ' <"$work/log")" = "served healthy has-postgresql read-only " ]
}
check "with a token it serves, its health check passes, PostgreSQL's module loads, and its root is read-only" served
# As OpenShift does it: any user that the image does not know, of the group root.
other_user() { local as_uid=1000730000 as_gid=0; served; }
check "it also serves as another user" other_user
foreign_volume() {
    ! as_uid=$uid started "umask 077; cd /; belay acquire --store sqlite:/etc/belay.db k" >"$work/log" 2>&1 && cat "$work/log" && grep -q "the directory '/etc'" "$work/log"
}
check "a path that it may not write to is named" foreign_volume
check_summary
