#!/usr/bin/env bash
# The service and the socket of the package under a real systemd: a minimal Debian 12, booted by systemd-nspawn. Needs
# root, mmdebstrap and systemd-container: only with BELAY_INSTALL_TESTS=all.
#
#   test/install/systemd.sh BUILD_DIR
# shellcheck disable=SC2016 # what is quoted is for the shell inside
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
build=${1:-build}
# shellcheck source=test/support/check.sh
. test/support/check.sh
# shellcheck source=test/support/systems.sh
. test/support/systems.sh
root=$work/bookworm-systemd
check "make package" packaging/package "$build" "$work/dist"
check "a minimal Debian 12 with systemd" system bookworm-systemd bookworm systemd systemd-sysv dbus

installed() { # before the boot, so that the container needs no network
    cp "$work/dist"/belay_*.deb "$root/root/" && inside bookworm-systemd 'apt-get -qq update && apt-get -qq -y install /root/belay_*.deb' &&
        chroot "$root" systemctl enable belay.socket belay.service
}
check "apt install, systemctl enable belay.socket belay.service" installed

# What an administrator does, one line of output each.
cat >"$root/root/try" <<'SCRIPT'
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
systemctl stop belay.socket belay.service
echo "result $(systemctl show --value -p Result belay.service)"
SCRIPT
cat >"$root/etc/systemd/system/try.service" <<'UNIT'
[Unit]
Wants=belay.service
After=belay.service
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
check "the socket and the service are active" says "socket active service active"
check "the server serves" says served
check "its files are its user's alone" says "files of belay 700 belay 600"
check "systemctl reload reads the configuration again" says reloaded
check "systemctl restart" says restarted
check "after kill -9 the socket keeps the client waiting for the next server" says "after a crash"
check "which systemd has started" says "restarts 1"
check "systemctl stop ends it cleanly" says "result success"
check_summary
