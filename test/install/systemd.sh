#!/usr/bin/env bash
# The service and the socket of the package under a real systemd: a minimal Debian 12, booted by systemd-nspawn; the
# package upgraded and purged while they run. Needs
# root, mmdebstrap and systemd-container: only with BELAY_INSTALL_TESTS=all.
#
#   test/install/systemd.sh BUILD_DIR
# shellcheck disable=SC2016 # what is quoted is for the shell inside
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
build=${1:-build}
# shellcheck source=test/support/check.sh
. test/support/check.sh
# shellcheck source=test/support/page.sh
. test/support/page.sh
# shellcheck source=test/support/systems.sh
. test/support/systems.sh
root=$work/bookworm-systemd
check "make package" packaging/package "$build" "$work/dist"
check "a minimal Debian 12 with systemd" system bookworm-systemd bookworm systemd systemd-sysv dbus

installed() { # before the boot, so that the container needs no network
    cp "$work/dist"/belay_*.deb "$work/dist"/belay-postgresql_*.deb "$root/root/" &&
        inside bookworm-systemd 'apt-get -qq update && apt-get -qq -y install /root/belay_*.deb /root/belay-postgresql_*.deb'
}
newer() { # the same package as a later version
    dpkg-deb -R "$work/dist"/belay_*.deb "$work/newer" && sed -i 's/^Version: .*/&+later/' "$work/newer/DEBIAN/control" &&
        dpkg-deb --root-owner-group --build "$work/newer" "$root/root/later.deb"
}
check "apt install" installed
check "a later version of the package" newer

# What an administrator does, one line of output each.
cat >"$root/root/try" <<'SCRIPT'
ENABLE
pid() { systemctl show --value -p MainPID belay.service; }
echo "socket $(systemctl is-active belay.socket) service $(systemctl is-active belay.service)"
belay run --store http://127.0.0.1:7420 demo -- echo served
echo "files of $(stat -c '%U %a' /var/lib/belay /var/lib/belay/belay.db | xargs)"
before=$(pid)
systemctl reload belay && [ "$(pid)" = "$before" ] && journalctl -u belay | grep -q '"event":"reload' && echo reloaded
systemctl restart belay && [ "$(pid)" != "$before" ] && belay run --store http://127.0.0.1:7420 demo -- echo restarted
# The socket stays: the client waits for the next server.
kill -9 "$(pid)"
belay run --store http://127.0.0.1:7420 demo -- echo 'after a crash'
echo "restarts $(systemctl show --value -p NRestarts belay.service)"
# An upgrade, while a command holds a lock.
echo 'server: {}' >>/etc/belay/config.yaml
belay run --store http://127.0.0.1:7420 long -- sh -c 'echo $BELAY_TOKEN >/root/holds; until [ -e /root/upgraded ]; do sleep 0.1; done; belay check && echo "held all the time"' &
until [ -s /root/holds ]; do sleep 0.1; done
before=$(pid)
dpkg -i /root/later.deb >&2 </dev/null
belay status --store http://127.0.0.1:7420 --quiet long
[ "$(pid)" != "$before" ] && echo "upgraded to $(dpkg-query -W -f '${Version}' belay | grep -o later), configuration $(grep -c '^server: {}' /etc/belay/config.yaml)"
touch /root/upgraded
wait
systemctl stop belay.service
echo "result $(systemctl show --value -p Result belay.service)"
# As a front, which docs/stores/postgresql.md describes. It starts without its database.
FRONT
belay auth new --name ci >/root/ci.token 2>/root/entry
(printf 'server:\n  tokens:\n'; grep sha256 /root/entry) >/etc/belay/config.yaml
systemctl daemon-reload
systemctl stop belay.socket
systemctl start belay.socket belay.service
journalctl -u belay | grep -o 'Serving postgresql.*'
rm -r /etc/systemd/system/belay.*.d
running=$(pid)
dpkg --purge belay-postgresql belay >&2 </dev/null
[ -e "/proc/$running" ] || echo "purged: $(systemctl is-active belay.socket belay.service | xargs), left $(find /etc/systemd /etc/belay /usr -name '*belay*' 2>/dev/null | wc -l), $(ls /var/lib/belay | grep -cx belay.db) file of locks"
SCRIPT
sed -i "s/^ENABLE$/echo \"at first \$(systemctl is-active belay.socket belay.service | xargs)\"\n$(page_command docs/install.md 'systemctl enable')/" "$root/root/try"
# The bullets of the page: a command, and what 'systemctl edit' is to add to each unit.
front() {
    local page=docs/stores/postgresql.md section
    section=$(sed -n '/^\*\*As a service/,/^\*\*If the database/p' "$page" | tr '\n' ' ')
    echo "$section" | grep -o 'install -d [^`]*' || return 1
    for unit in service socket; do
        echo "mkdir -p /etc/systemd/system/belay.$unit.d"
        echo "$section" | sed 's/ - /\n/g' | sed -n "s/.*systemctl edit belay.$unit.*, add //p" | grep -o '`[^`]*`' |
            sed "s|\`\(.*\)\`|echo '\1' >>/etc/systemd/system/belay.$unit.d/front.conf|" || return 1
    done
}
check "the page says how to make the service a front" front
front >"$work/front" && sed -i -e "/^FRONT$/r $work/front" -e '/^FRONT$/d' "$root/root/try"
cat >"$root/etc/systemd/system/try.service" <<'UNIT'
[Service]
Type=oneshot
StandardOutput=file:/root/out
StandardError=file:/root/err
ExecStart=/bin/sh /root/try
ExecStopPost=systemctl --no-block exit
UNIT
mkdir -p "$root/etc/systemd/system/multi-user.target.wants"
ln -s ../try.service "$root/etc/systemd/system/multi-user.target.wants/"
boots() {
    timeout 300 systemd-nspawn --quiet --register=no --keep-unit --private-network --link-journal=no --machine="belay-$$" --directory="$root" --boot </dev/null
    cat "$root/root/out" "$root/root/err"
    [ "$(wc -l <"$root/root/out")" -gt 2 ]
}
check "it boots" boots
says() { cat "$root/root/out" "$root/root/err"; grep -qxF "$1" "$root/root/out"; }
check "the package starts nothing" says "at first inactive inactive"
check "once they are enabled, the socket and the service are active" says "socket active service active"
check "the server serves" says served
check "its files are its user's alone" says "files of belay 700 belay 600"
check "systemctl reload reads the configuration again" says reloaded
check "systemctl restart" says restarted
check "after kill -9 the socket keeps the client waiting for the next server" says "after a crash"
check "which systemd has started" says "restarts 1"
check "an upgrade of the package restarts the server, and keeps the configuration" says "upgraded to later, configuration 1"
check "a lock that is held during the upgrade is still active" says active
check "and its holder never lost it" says "held all the time"
check "systemctl stop ends it cleanly" says "result success"
check "as a front it serves the database on all addresses" says "Serving postgresql://front@db.example/locks on http://[::]:7420"
check "a purge stops the server, and leaves nothing but the locks" says "purged: inactive inactive, left 0, 1 file of locks"
check_summary
