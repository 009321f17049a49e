#!/usr/bin/env bash
# A version that landed before (OLD, a commit) beside this one: its file, its client, its server. Builds it, which takes
# minutes: only with BELAY_INSTALL_TESTS=all. docs/upgrade.md says what holds.
#
#   test/install/upgrade.sh BUILD_DIR [OLD]
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
new=$(realpath "${1:-build}")/belay
old_commit=${2:-c0a747a}
# shellcheck source=test/support/check.sh
. test/support/check.sh
old_dir=$PWD/build/upgrade/$old_commit
old=$old_dir/build/belay
build_old() {
    [ -x "$old" ] && return
    mkdir -p "$old_dir" && git archive "$old_commit" | tar -x -C "$old_dir" && cmake -S "$old_dir" -B "$old_dir/build" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo &&
        ninja -C "$old_dir/build" belay belay_serve belay_net
}
check "the version of $old_commit builds" build_old
export HOME=$work BELAY_CONFIG=/dev/null

serve() { # PROGRAM FILE: sets url and pid
    rm -f "$work/listening"
    "$1" serve --json --listen "127.0.0.1:$(free_port)" --store "sqlite:$2" >"$work/listening" 2>"$work/serve.log" &
    pid=$!
    url=
    for _ in $(seq 200); do
        url=$(grep -soE 'http://127.0.0.1:[0-9]+' "$work/listening" | head -1) && break
        sleep 0.05
    done
    [ -n "$url" ]
}
stop() { kill "$pid" && wait "$pid"; }
token_of() { "$1" status --json --store "$2" k | python3 -c 'import json, sys; print(json.load(sys.stdin)["token"])'; }

# An early version's file is not converted: it is refused by name, and left as it was.
file() {
    local file=$work/file.db before
    "$old" acquire --store "sqlite:$file" k --id one --ttl 10m >/dev/null || return 1
    before=$(token_of "$old" "sqlite:$file")
    "$new" status --store "sqlite:$file" k 2>"$work/err"
    [ $? = 65 ] && cat "$work/err" && grep -q "'$file' was written by an early belay" "$work/err" || return 1
    [ "$(token_of "$old" "sqlite:$file")" = "$before" ] && "$old" release --store "sqlite:$file" k --id one >/dev/null
}
check "this version refuses the early version's file by name, and does not harm it" file
server() { # also with the journal of a server that was killed
    serve "$old" "$work/s3.db" && "$old" acquire --store "$url" k --id one --ttl 10m >/dev/null || return 1
    kill -9 "$pid"
    wait "$pid"
    ! timeout 20 "$new" serve --listen "127.0.0.1:$(free_port)" --store "sqlite:$work/s3.db" 2>"$work/err" && cat "$work/err" && grep -q 'early belay' "$work/err" || return 1
    serve "$old" "$work/s3.db" && "$old" release --store "$url" k --id one >/dev/null
    local rc=$?
    stop
    return $rc
}
check "so does this version's server, and the old server recovers its journal afterwards" server
old_client() {
    serve "$new" "$work/s1.db" || return 1
    "$old" acquire --store "$url" k --id one >/dev/null && "$old" renew --store "$url" k --id one >/dev/null
    local rc=$?
    "$new" run --store "$url" k -- true
    [ $? = 75 ] && "$old" release --store "$url" k --id one >/dev/null && "$old" run --store "$url" --wait 5s k -- true && [ "$rc" = 0 ]
    rc=$?
    stop
    return $rc
}
check "the old version's client works through this version's server" old_client
new_client() {
    serve "$old" "$work/s2.db" || return 1
    "$new" acquire --store "$url" k --id one >/dev/null && "$new" renew --store "$url" k --id one >/dev/null &&
        "$new" release --store "$url" k --id one >/dev/null && "$new" run --store "$url" --wait 5s k -- true
    local rc=$?
    stop
    return $rc
}
check "this version's client works through the old version's server" new_client
check_summary
