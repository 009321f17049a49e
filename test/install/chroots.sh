#!/usr/bin/env bash
# Install the packages and the tarball in clean systems, Debian 12 and 13; build belay and run the tests of its units, its
# command line and its server in Debian 13. Takes half an hour and half a gigabyte of downloads, and needs root and mmdebstrap: only with
# BELAY_INSTALL_TESTS=all. The systems are kept in BELAY_CHROOTS (build/chroots) for the next run.
#
#   test/install/chroots.sh BUILD_DIR [bookworm|trixie|trixie-build...]
# shellcheck disable=SC2016 # what is quoted is for the shell inside
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
build=${1:-build}
shift
# shellcheck source=test/support/check.sh
. test/support/check.sh
# shellcheck source=test/support/page.sh
. test/support/page.sh
# shellcheck source=test/support/systems.sh
. test/support/systems.sh
dist=$work/dist

install_deb() { # SUITE: the two commands of docs/install.md, under a minute
    local began
    cp "$dist"/*.deb "$work/$1/root/" && echo 'APT::Get::Assume-Yes "true";' >"$work/$1/etc/apt/apt.conf.d/yes" && inside "$1" 'apt-get -qq update' || return 1
    began=$SECONDS
    inside "$1" "cd /root && $(page_command docs/install.md 'apt install') && $(page_command docs/install.md 'belay run demo')" | tee "$work/log"
    [ "$(tail -1 "$work/log")" = hi ] && [ $((SECONDS - began)) -lt 60 ] && echo "took $((SECONDS - began)) s" >&3
}
readme() { # SUITE: the second command that README.md begins with; the first is the same
    [ "$(page_command README.md 'apt install')" = "$(page_command docs/install.md 'apt install')" ] &&
        inside "$1" "cd /tmp && printf '#!/bin/sh\\necho deployed with \$BELAY_TOKEN\\n' >deploy.sh && chmod +x deploy.sh && $(sed '/^## /q' README.md >"$work/readme" && page_command "$work/readme" 'belay run')" | grep -xE 'deployed with [0-9]+'
}
as_user() { # SUITE
    inside "$1" 'useradd -m alice && su alice -c "belay run demo -- id -un"' | grep -x alice
}
service() { # SUITE: what the unit starts, as its user, on its directory
    local start
    start=$(sed -n 's/^ExecStart=//p' "$work/$1/usr/lib/systemd/system/belay.service")
    inside "$1" "install -d -o belay -m 0700 /var/lib/belay && su -s /bin/sh belay -c 'BELAY_STORE=sqlite:/var/lib/belay/belay.db $start' >/tmp/log 2>&1 & "'
        for i in $(seq 200); do belay status --store http://127.0.0.1:7420 x >/dev/null 2>&1; [ $? = 69 ] || break; sleep 0.1; done
        belay run --store http://127.0.0.1:7420 demo -- echo served && stat -c %U /var/lib/belay/belay.db' >"$work/log"
    cat "$work/log"
    [ "$(tr '\n' ' ' <"$work/log")" = "served belay " ]
}
network() { # SUITE: the modules for the network are loaded, PostgreSQL's with its package, and there is nobody to talk to
    inside "$1" 'AWS_ACCESS_KEY_ID=a AWS_SECRET_ACCESS_KEY=b belay status --store "dynamodb:locks?region=xx&endpoint=https://127.0.0.1:1" k; [ $? = 69 ] &&
        { belay status --store postgresql://127.0.0.1:1/locks k; [ $? = 78 ]; } && apt-get -qq -y --no-install-recommends install /root/belay-postgresql_*.deb &&
        { belay status --store postgresql://127.0.0.1:1/locks k; [ $? = 69 ]; }'
}
later() { # PACKAGE: the same one as a later version, in $work/later
    rm -rf "$work/unpacked" && mkdir -p "$work/later" && dpkg-deb -R "$dist/$1"_*.deb "$work/unpacked" && sed -i 's/^Version: .*/&+later/; s/(= \([^)]*\))/(= \1+later)/' "$work/unpacked/DEBIAN/control" &&
        dpkg-deb --root-owner-group -Znone --build "$work/unpacked" "$work/later/$1_later.deb"
}
upgrade() { # SUITE: docs/upgrade.md says to give apt both packages
    later belay && later belay-postgresql && cp "$work"/later/*.deb "$work/$1/root/" &&
        inside "$1" 'cd /root && apt-get -s install ./belay_later.deb | grep "^Remv belay-postgresql" && apt-get -qq -y install ./belay_later.deb ./belay-postgresql_later.deb &&
            { belay status --store postgresql://127.0.0.1:1/locks k; [ $? = 69 ]; } && dpkg-query -W belay belay-postgresql | grep -c later' | tee "$work/log" && [ "$(tail -1 "$work/log")" = 2 ]
}
purge() { # SUITE: the configuration goes, the locks stay
    inside "$1" 'echo "# mine" >>/etc/belay/config.yaml; apt-get -qq -y remove belay && test -e /etc/belay/config.yaml &&
        apt-get -qq -y purge belay && ! test -e /etc/belay/config.yaml && ! test -e /usr/bin/belay && test -e /var/lib/belay/belay.db'
}
tarball() { # SUITE
    mkdir -p "$work/$1/opt/belay" && tar -xzf "$dist"/*.tar.gz -C "$work/$1/opt/belay" --strip-components=1 &&
        inside "$1" '/opt/belay/bin/belay run demo -- echo hi && /opt/belay/bin/belay doctor --help >/dev/null && ldd --version | head -1 >&2' | grep -x hi
}
tarball_network() { # SUITE: TLS, trusting the certificates where Red Hat has them
    local pki=$work/$1/etc/pki/tls/certs
    mkdir -p "$pki"
    rm -f "$work/$1/etc/ssl/certs/ca-certificates.crt"
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost \
        -keyout "$work/$1/root/key.pem" -out "$work/$1/root/cert.pem" 2>/dev/null || return 1
    inside "$1" '/opt/belay/bin/belay serve --insecure --listen 127.0.0.1:7421 --store sqlite:/root/tls.db --tls-cert /root/cert.pem --tls-key /root/key.pem >/tmp/log 2>&1 &
        for i in $(seq 200); do grep -q Serving /tmp/log && break; sleep 0.1; done
        /opt/belay/bin/belay run --store https://localhost:7421 demo -- echo untrusted
        cp /root/cert.pem /etc/pki/tls/certs/ca-bundle.crt
        /opt/belay/bin/belay run --store https://localhost:7421 demo -- echo trusted' >"$work/log" 2>"$work/err"
    cat "$work/err"
    [ "$(cat "$work/log")" = trusted ]
}
copy_source() { git ls-files -z | xargs -0 tar -c | tar -x -C "$work/$1/srv"; }
build_inside() { # NAME: with what that system has; a test fetches packages
    inside "$1" 'apt-get -qq update && cd /srv && cmake -S . -B b -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DBELAY_TESTS=ON && nice ninja -C b && mkdir build && ln -s ../b build/dev' &&
        grep -q '^HTTP_PARSER_LIBRARY:.*libllhttp' "$work/$1/srv/b/CMakeCache.txt"
}
test_inside() { # NAME: the programs of test/unit, except those that need DynamoDB Local (and Java)
    (cd test/unit && grep -L start_server test_*.c | sed 's/\.c$//') >"$work/$1/srv/names"
    inside "$1" 'cd /srv && rc=0; for t in $(cat names); do
            timeout 300 "b/$t" >/tmp/t 2>&1 || { echo "$t failed with $?"; grep -v "RUN\|OK" /tmp/t | tail -n 30; rc=1; }; done; exit $rc'
}
# What is left out needs a DynamoDB server, npm, two builds, or promtool (not in Debian 13's package prometheus); or is about
# speed, which a busy machine has not.
left_out='test_(telemetry|over_dynamodb|openapi|github_action|ci_templates|make_run|hammer|startup)\.py'
python_inside() { # NAME FOLDER: the files of tests of that folder, three at a time, with how many tests each has
    inside "$1" "cd /srv && ls test/$2 | grep '^test_.*py' | grep -vE '$left_out' | BELAY_BIN=/srv/b/belay BELAY_LIB=/srv/b/libbelay.so xargs -P 3 -I@ sh -c '
            timeout 900 python3 -B -m unittest discover -s test/$2 -p @ >/tmp/@.log 2>&1 || { tail -n 60 /tmp/@.log; echo \"@ failed\"; exit 1; }
            echo \"@: \$(grep ^Ran /tmp/@.log), \$(tail -n 1 /tmp/@.log)\"'" | tee "$work/log"
    local rc=${PIPESTATUS[0]}
    echo "      $2: $(grep -c ': Ran ' "$work/log") files, $(awk '/: Ran / { n += $3 } END { print n }' "$work/log") tests" >&3
    [ "$rc" = 0 ] && [ "$(grep -c ': Ran ' "$work/log")" -gt 15 ]
}
fuzz_inside() { inside "$1" 'cd /srv && timeout 100 b/fuzz_http --seconds 10 && timeout 100 b/fuzz_parsers --seconds 10'; }

exec 3>&1
suites=("$@")
[ "${#suites[@]}" -gt 0 ] || suites=(bookworm trixie trixie-build)
check "make package" packaging/package "$build" "$dist"
for suite in "${suites[@]}"; do
    if [ "$suite" = trixie-build ]; then
        # shellcheck disable=SC2046 # names
        check "$suite: a system with a compiler and llhttp" system "$suite" trixie \
            $(tools/setup --print build | sed 's/libhttp-parser-dev/libllhttp-dev/') libcmocka-dev python3 python3-yaml python3-pyte \
            make ca-certificates git openssl curl mandoc zsh fish binutils procps strace bsdutils faketime
        check "$suite: the source" copy_source "$suite"
        check "$suite: belay builds, with llhttp" build_inside "$suite"
        check "$suite: the unit tests pass" test_inside "$suite"
        check "$suite: the tests of the command line pass" python_inside "$suite" cli
        check "$suite: the tests of the server pass" python_inside "$suite" server
        check "$suite: the HTTP fuzzer finds nothing in llhttp" fuzz_inside "$suite"
        continue
    fi
    check "$suite: a minimal system" system "$suite" "$suite"
    check "$suite: apt install ./belay_*.deb, then belay run demo -- echo hi, in under a minute" install_deb "$suite"
    check "$suite: README.md begins with commands that work" readme "$suite"
    check "$suite: a user without rights guards a command" as_user "$suite"
    check "$suite: the service's command serves, as the user of the package" service "$suite"
    check "$suite: the modules for stores on the network load" network "$suite"
    check "$suite: both packages are upgraded together" upgrade "$suite"
    check "$suite: removed and purged, the locks stay" purge "$suite"
    check "$suite: the tarball, unpacked" tarball "$suite"
    check "$suite: the tarball trusts the certificates where Red Hat has them" tarball_network "$suite"
done
check_summary
