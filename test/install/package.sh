#!/usr/bin/env bash
# What `make package` makes, used as a stranger would: the packages' contents, the tarball in a directory of any name.
# test/install/chroots.sh installs them in clean systems.
#
#   test/install/package.sh BUILD_DIR
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
build=${1:-build}
# shellcheck source=test/support/check.sh
. test/support/check.sh
# shellcheck source=test/support/page.sh
. test/support/page.sh
# shellcheck source=test/support/glibc.sh
. test/support/glibc.sh
dist=$work/dist

check "make package" packaging/package "$build" "$dist"
sums() { (cd "$dist" && sha256sum --check --strict SHA256SUMS) && [ "$(wc -l <"$dist/SHA256SUMS")" = "$(find "$dist" -type f ! -name SHA256SUMS | wc -l)" ]; }
check "SHA256SUMS has every file" sums
lints() { lintian --fail-on error --allow-root "$dist"/*.deb 2>&1 && [ "$(find "$dist" -name '*.deb' | wc -l)" = 4 ]; }
check "lintian finds no errors in the packages" lints

for package in belay libbelay0 libbelay-dev belay-postgresql; do
    dpkg-deb -x "$dist/${package}"_*.deb "$work/root" && dpkg-deb -e "$dist/${package}"_*.deb "$work/control-$package"
done
triplet=$(dpkg-architecture -qDEB_HOST_MULTIARCH)
contents() {
    local file
    for file in usr/bin/belay usr/lib/belay/belay-serve.so usr/lib/belay/belay-net.so usr/lib/belay/belay-otlp.so usr/lib/belay/belay-pg.so \
        usr/share/man/man1/belay-run.1.gz usr/share/bash-completion/completions/belay usr/share/zsh/vendor-completions/_belay \
        usr/share/fish/vendor_completions.d/belay.fish usr/lib/systemd/system/belay.service usr/lib/systemd/system/belay.socket \
        usr/share/doc/belay/docs/install.md usr/share/doc/belay/copyright etc/belay/config.yaml \
        "usr/lib/$triplet/libbelay.so.0" "usr/lib/$triplet/belay/belay-net.so" \
        usr/lib/belay/belay-pg.so "usr/lib/$triplet/belay/belay-pg.so" \
        "usr/lib/$triplet/libbelay.a" "usr/lib/$triplet/libbelay.so" "usr/lib/$triplet/pkgconfig/belay.pc" \
        "usr/lib/$triplet/cmake/belay/belay-config.cmake" usr/include/belay.h usr/include/belay/state.h; do
        [ -s "$work/root/$file" ] || { echo "$file is missing or empty"; return 1; }
    done
    # nothing but documents and the folder of the architecture beside: no file in a place that nobody looks at
    ! find "$work/root" -type f | grep -vE "/usr/(bin|include|lib/(belay|systemd|$triplet)|share/(doc|man|lintian|bash-completion|zsh|fish))/|/etc/belay/"
}
check "the packages have program, modules, libraries, headers, man pages, completions and units" contents
conffile() { [ "$(cat "$work/control-belay/conffiles")" = /etc/belay/config.yaml ] && [ ! -e "$work/control-libbelay0/conffiles" ]; }
check "/etc/belay/config.yaml is a conffile" conffile
config() { "$work/root/usr/bin/belay" --config "$work/root/etc/belay/config.yaml" config show; }
check "belay accepts that configuration" config
user() { grep -q 'adduser .*--system' "$work/control-belay/postinst" && grep -qx User=belay "$work/root/usr/lib/systemd/system/belay.service"; }
check "the package creates the user of its service" user
# No systemd runs here: its program for such checks reads the units, in a root that has systemd's own.
cp -r "$work/root" "$work/units"
cp -rn /usr/lib/systemd/system/. "$work/units/usr/lib/systemd/system/"
mkdir -p "$work/units/bin" && install -m 0755 /dev/null "$work/units/bin/sh"
units() { # it reports an unknown name, and exits with 0
    systemd-analyze verify --man=no --root="$work/units" belay.service belay.socket 2>&1 | tee "$work/units.log"
    [ "${PIPESTATUS[0]}" = 0 ] && [ ! -s "$work/units.log" ]
}
check "systemd accepts the units" units
misspelt() {
    cp -r "$work/units" "$work/misspelt" && sed -i 's/^ProtectSystem=/ProtectSystm=/' "$work/misspelt/usr/lib/systemd/system/belay.service" &&
        systemd-analyze verify --man=no --root="$work/misspelt" belay.service 2>&1 | grep -q "Unknown key 'ProtectSystm'"
}
check "(and this check finds a misspelt name)" misspelt
exposure() { systemd-analyze security --no-pager --offline=true --threshold="$1" --root="$work/units" belay.service; }
exposed() { exposure 15 && ! exposure 14; }
check "systemd rates the exposure of the service at 1.5, as docs/server.md says" exposed

export HOME=$work/home
unset BELAY_STORE BELAY_CONFIG LD_LIBRARY_PATH
mkdir "$HOME"
first_command() { [ "$("$work/root/usr/bin/belay" run demo -- echo hi)" = hi ]; }
check "the packaged program guards a command" first_command
# Nothing listens on port 1: the answer is libpq's.
postgresql() {
    "$1" status --store 'postgresql://127.0.0.1:1/none' demo 2>"$work/err"
    [ $? = 69 ] && grep -q "cannot connect to PostgreSQL" "$work/err"
}
check "the module of belay-postgresql is found" postgresql "$work/root/usr/bin/belay"
only_the_module_needs_libpq() {
    grep -qE '^Depends: .*libpq5' "$work/control-belay-postgresql/control" && ! grep -q libpq "$work/control-belay/control" "$work/control-libbelay0/control"
}
check "only belay-postgresql depends on libpq5" only_the_module_needs_libpq
without_the_module() {
    mv "$work/root/usr/lib/belay/belay-pg.so" "$work/belay-pg.so"
    "$work/root/usr/bin/belay" status --store 'postgresql://127.0.0.1:1/none' demo 2>"$work/err"
    local rc=$?
    mv "$work/belay-pg.so" "$work/root/usr/lib/belay/belay-pg.so"
    [ $rc = 78 ] && grep -q "belay-postgresql" "$work/err"
}
check "without it the message names the package" without_the_module
pc() { [ "$(PKG_CONFIG_LIBDIR=$work/root/usr/lib/$triplet/pkgconfig pkg-config --variable=libdir belay)" = "/usr/lib/$triplet" ]; }
check "belay.pc names Debian's folder of libraries" pc
# The example over a server needs no module; a table in DynamoDB does.
module_of_library() {
    printf '#include <belay.h>\n#include <stdio.h>\nint main(void)\n{\n    struct belay_client_options o = BELAY_CLIENT_OPTIONS_INIT;\n    struct belay_error e = BELAY_ERROR_INIT;\n    struct belay_client *c = NULL;\n\n    o.store_url = "dynamodb:locks?region=xx";\n    (void)belay_client_open(&o, &c, &e);\n    belay_client_close(c);\n    return puts(e.text) < 0;\n}\n' >"$work/user.c"
    gcc -Wall -Werror "$work/user.c" -o "$work/user" -I"$work/root/usr/include" -L"$work/root/usr/lib/$triplet" -lbelay &&
        LD_LIBRARY_PATH=$work/root/usr/lib/$triplet LD_DEBUG=files "$work/user" 2>"$work/ld" && grep -q "$work/root/usr/lib/$triplet/belay/belay-net.so" "$work/ld"
}
check "libbelay.so loads the module of its own package" module_of_library

repository() { # apt itself reads it, with directories of its own
    local apt=$work/apt
    packaging/repository "$dist" "$work/repository" && mkdir -p "$apt/state/lists/partial" "$apt/cache/archives/partial" &&
        echo "deb [trusted=yes] file:$work/repository stable main" >"$apt/sources.list" &&
        apt-get -q -o Dir::Etc::SourceList="$apt/sources.list" -o Dir::Etc::SourceParts=/nonexistent -o Dir::State="$apt/state" \
            -o Dir::Cache="$apt/cache" -o APT::Sandbox::User=root -o Dir::State::Status=/var/lib/dpkg/status update &&
        apt-cache -o Dir::Etc::SourceList="$apt/sources.list" -o Dir::Etc::SourceParts=/nonexistent -o Dir::State="$apt/state" \
            -o Dir::Cache="$apt/cache" -o Dir::State::Status=/var/lib/dpkg/status policy belay libbelay0 libbelay-dev belay-postgresql | grep -c "Candidate: $(dpkg-deb -f "$dist"/belay_*.deb Version)" | grep -x 4
}
check "make repository: apt finds the packages in it" repository

signed() { # with a key of gpg's; without its public half, apt refuses the repository
    local apt=$work/signed GNUPGHOME=$work/gpg options
    export GNUPGHOME
    mkdir -m 0700 "$GNUPGHOME" && mkdir -p "$apt/state/lists/partial" "$apt/cache/archives/partial" &&
        gpg --batch --quiet --passphrase '' --quick-generate-key 'belay test <belay@belay.invalid>' ed25519 sign never &&
        packaging/repository "$dist" "$work/signed-repository" belay@belay.invalid && gpg --batch --export belay@belay.invalid >"$apt/key.gpg" || return 1
    gpgconf --kill all
    options=(-q -o Dir::Etc::SourceList="$apt/sources.list" -o Dir::Etc::SourceParts=/nonexistent -o Dir::Etc::TrustedParts=/nonexistent -o Dir::State="$apt/state"
        -o Dir::Cache="$apt/cache" -o APT::Sandbox::User=root -o APT::Update::Error-Mode=any)
    echo "deb file:$work/signed-repository stable main" >"$apt/sources.list"
    ! apt-get "${options[@]}" update || return 1
    echo "deb [signed-by=$apt/key.gpg] file:$work/signed-repository stable main" >"$apt/sources.list"
    apt-get "${options[@]}" update
}
check "packaging/repository with a key: apt accepts the signature, and only that" signed

# ---- the tarball ----

place="$work/any place: 100%, \$HOME"
mkdir "$place"
tar -xzf "$dist"/*.tar.gz -C "$place" --strip-components=1
belay=$place/bin/belay

check "no file of the tarball needs a glibc newer than $newest_glibc" old_glibc "$place"
seen() {
    printf '#include <sys/pidfd.h>\nint main(void) { return pidfd_open(1, 0); }\n' | gcc -xc - -o "$work/new-program" &&
        [[ $(too_new "$work/new-program") == *"pidfd_open needs GLIBC_2.36"* ]]
}
check "(and this check refuses a program that does)" seen
check "the tarball is as small as docs/install.md says" small_tarball "$dist"/*.tar.gz
complete() { # every library that a file needs is glibc's or in the tarball
    local file name
    for file in "$belay" "$place"/lib/belay/* "$place/lib/libbelay.so.0"; do
        for name in $(objdump -p "$file" | awk '$1 == "NEEDED" { print $2 }'); do
            case $name in libc.so.6 | libm.so.6 | libpthread.so.0 | libdl.so.2 | libresolv.so.2 | ld-linux*) continue ;; esac
            [ "$name" = libpq.so.5 ] && [ "${file##*/}" = belay-pg.so ] && continue
            [ -e "$place/lib/belay/$name" ] || { echo "$file needs $name"; return 1; }
        done
    done
}
check "the tarball has every library that it needs, except glibc, and libpq for PostgreSQL" complete
check "the unpacked program reaches for PostgreSQL with the libpq of the system" postgresql "$belay"
tar_first() { [ "$("$belay" run demo -- echo hi)" = hi ] && "$belay" status demo; }
check "the unpacked program guards a command" tar_first

linked() { # as from /usr/local/bin
    mkdir -p "$work/bin" && ln -sf "$belay" "$work/bin/belay" && [ "$(cd / && PATH=$work/bin:$PATH belay run demo -- echo hi)" = hi ] &&
        { AWS_ACCESS_KEY_ID=a AWS_SECRET_ACCESS_KEY=b "$work/bin/belay" status --store 'dynamodb:locks?region=xx&endpoint=https://127.0.0.1:1' demo; [ $? = 69 ]; }
}
check "the unpacked program works through a link, and finds its modules" linked
# Which files a process maps, that are neither the tarball's nor glibc's.
foreign() { awk '$6 ~ /\.so/ { print $6 }' FS=' ' "/proc/$1/maps" | sort -u | grep -vE '/(libc|libm|libpthread|libdl|libresolv|ld-linux[^/]*)\.so|/libnss_|^/[^ ]*/any$'; }
serves() {
    local pid url
    "$belay" serve --store "sqlite:$work/served.db" --listen "127.0.0.1:$(free_port)" --json >"$work/listening" 2>"$work/serve.log" &
    pid=$!
    for _ in $(seq 200); do
        [ -s "$work/listening" ] && break
        sleep 0.05
    done
    url=$(grep -oE 'http://127.0.0.1:[0-9]+' "$work/listening" | head -1)
    [ "$("$belay" run --store "$url" demo -- echo hi)" = hi ] && grep -qF "$place/lib/belay/libcrypto.so.3" "/proc/$pid/maps" && ! foreign "$pid"
    local rc=$?
    kill "$pid"
    wait "$pid"
    return $rc
}
check "the unpacked server serves, with the tarball's libraries only" serves
# Nothing listens on port 1, so that the answer comes from libcurl: it was loaded, and tried.
over_the_network() {
    AWS_ACCESS_KEY_ID=a AWS_SECRET_ACCESS_KEY=b "$belay" status --store 'dynamodb:locks?region=xx&endpoint=https://127.0.0.1:1' demo 2>"$work/err"
    [ $? = 69 ] && cat "$work/err" && grep -q "127.0.0.1" "$work/err"
}
check "the unpacked program reaches for stores on the network" over_the_network

bill() {
    python3 - "$dist"/*.spdx.json "$place/lib/belay" <<'PYTHON'
import json, os, subprocess, sys
bill = json.load(open(sys.argv[1], encoding="utf-8"))
assert bill["spdxVersion"] == "SPDX-2.3" and bill["documentNamespace"] and bill["creationInfo"]["created"]
packages = {package["SPDXID"]: package for package in bill["packages"]}
ends = {relation["relatedSpdxElement"] for relation in bill["relationships"]}
assert ends == set(packages), ends ^ set(packages)
libraries = [name for name in os.listdir(sys.argv[2]) if not name.startswith("belay-")]
assert len(libraries) > 5, libraries
names = {package["name"]: package for package in packages.values()}
for expected in ("libsqlite3-dev", "libssl3", "libcurl4-openssl-dev", "libyaml-dev", "nettle-dev", "libjansson-dev"):
    assert expected in names, f"{expected} is not in the bill"
for name, package in names.items():
    if name != "belay":
        version = subprocess.check_output(["dpkg-query", "-W", "-f", "${Version}\n", name], text=True).split()[0]
        assert package["versionInfo"] == version, (package, version)
        assert version in package["externalRefs"][0]["referenceLocator"]
PYTHON
}
check "the bill of materials names every linked package with its version" bill

# ---- docs/install.md ----

typed() { # what the page says of the tarball
    mkdir "$work/typed" && cp "$dist"/*.tar.gz "$work/typed/" && (cd "$work/typed" && bash -ec "$1; $2") | grep -x hi
}
check "docs/install.md: the tarball, typed" typed "$(page_command docs/install.md 'tar -xzf belay-' | sed "s/x86_64/$(uname -m)/")" \
    "$(page_command docs/install.md 'belay-*/bin/belay run')"
# Each command of the page is typed by one of these tests.
all_typed() {
    local line start found
    sed -n 's/^    //p' docs/install.md >"$work/commands"
    [ "$(wc -l <"$work/commands")" -gt 7 ] || return 1
    grep -ohE "page_command docs/install.md '[^']+'" test/install/*.sh | sed "s/.*install.md '//; s/'$//" >"$work/starts"
    while read -r line; do
        found=
        while read -r start; do
            if [[ $line == "$start"* ]]; then found=1; fi
        done <"$work/starts"
        [ -n "$found" ] || { echo "no test types: $line"; return 1; }
    done <"$work/commands"
}
check "docs/install.md: some test types each command" all_typed

check_summary
