#!/usr/bin/env bash
# `make package ARCH=arm64`: what it makes is for that processor, and runs under qemu-user. Needs root and mmdebstrap, and
# takes some minutes: only with BELAY_INSTALL_TESTS=all.
#
#   test/install/arm64.sh BUILD_DIR
# shellcheck disable=SC2016 # what is quoted is for the shell inside
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
# shellcheck source=test/support/check.sh
. test/support/check.sh
# shellcheck source=test/support/glibc.sh
. test/support/glibc.sh
# shellcheck source=test/support/page.sh
. test/support/page.sh
dist=build/dist-arm64
check "make package ARCH=arm64" make package ARCH=arm64 BELAY_NO_SETUP=1

# In the system of packaging/cross, which has the libraries of both processors.
place=build/arm64/unpacked
rm -rf "$place"
mkdir -p "$place/deb" "$place/tar" "$place/layer"
trap 'rm -rf "$work" "$place"' EXIT
for package in "$dist"/*.deb; do dpkg-deb -x "$package" "$place/deb"; done
tar -xzf "$dist"/*.tar.gz -C "$place/tar" --strip-components=1
unzip -q "$dist"/*lambda*.zip -d "$place/layer"

programs() { # of that processor, all of them
    find "$place" -type f \( -path '*/bin/*' -o -name '*.so' -o -name '*.so.*' \) >"$work/programs"
    [ "$(wc -l <"$work/programs")" -gt 25 ] && ! xargs readelf -h <"$work/programs" | grep 'Machine:' | grep -v AArch64
}
check "every program and library is for AArch64" programs
architecture() { [ "$(for package in "$dist"/*.deb; do dpkg-deb -f "$package" Architecture; done | sort -u)" = arm64 ]; }
check "the packages are arm64" architecture
check "lintian finds no errors in the packages" lintian --fail-on error --allow-root "$dist"/*.deb
check "no file of the tarball needs a glibc newer than $newest_glibc" old_glibc "$place/tar"
check "the tarball is as small as docs/install.md says" small_tarball "$dist"/*.tar.gz

emulated() { # COMMAND: with belay for the program of $1
    packaging/cross --shell arm64 "belay() { qemu-aarch64-static /src/$place/$1/bin/belay \"\$@\"; }; export HOME=\$(mktemp -d); $2"
}
guards() { # from a package, with Debian's libraries; from the tarball, with its own
    [ "$(emulated "$1" 'belay run demo -- echo hi; belay status --json demo | grep -o "\"outcome\":\"completed\""')" = $'hi\n"outcome":"completed"' ]
}
serves() {
    emulated "$1" "belay serve --store sqlite:\$HOME/served.db --listen 127.0.0.1:$(free_port) --json >\$HOME/listening 2>\$HOME/log &
        for i in \$(seq 300); do [ -s \$HOME/listening ] && break; sleep 0.1; done
        belay run --store \$(grep -oE 'http://127.0.0.1:[0-9]+' \$HOME/listening | head -1) demo -- echo served" | grep -x served
}
reaches() { # nobody listens on port 1
    emulated "$1" 'code=0; AWS_ACCESS_KEY_ID=a AWS_SECRET_ACCESS_KEY=b belay status --store "dynamodb:locks?region=xx&endpoint=https://127.0.0.1:1" demo || code=$?; [ $code = 69 ]'
}
for kind in deb/usr tar layer; do
    check "under qemu: $kind guards a command" guards "$kind"
    check "under qemu: $kind serves" serves "$kind"
    check "under qemu: $kind reaches for stores on the network" reaches "$kind"
done
postgresql() { emulated deb/usr 'code=0; belay status --store postgresql://127.0.0.1:1/locks demo || code=$?; [ $code = 69 ]'; }
check "under qemu: the package reaches for PostgreSQL" postgresql
check_summary
