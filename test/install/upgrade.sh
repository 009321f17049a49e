#!/usr/bin/env bash
# Versions from before (OLD, commits) beside this one: their files, their clients, their servers. Builds them, which takes
# minutes: only with BELAY_INSTALL_TESTS=all. docs/upgrade.md says what holds. By default, the two that landed before and
# the first one that has the schema of today.
#
#   test/install/upgrade.sh BUILD_DIR [OLD...]
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
new=$(realpath "${1:-build}")/belay
versions=("${@:2}")
[ "${#versions[@]}" -gt 0 ] || versions=(c0a747a 86fc235 0660e5f)
# shellcheck source=test/support/check.sh
. test/support/check.sh
schema_of() { sed -n 's/^enum { SCHEMA_VERSION = \([0-9]*\) };$/\1/p'; }
build_old() {
    [ -x "$old" ] && return
    mkdir -p "$old_dir" && git archive "$old_commit" | tar -x -C "$old_dir" && cmake -S "$old_dir" -B "$old_dir/build" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo &&
        ninja -C "$old_dir/build" belay belay_serve belay_net
}
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
    local file=$work/$old_commit-file.db before
    "$old" acquire --store "sqlite:$file" k --id one --ttl 10m >/dev/null || return 1
    before=$(token_of "$old" "sqlite:$file")
    "$new" status --store "sqlite:$file" k 2>"$work/err"
    [ $? = 65 ] && cat "$work/err" && grep -q "'$file' was written by an early belay" "$work/err" || return 1
    [ "$(token_of "$old" "sqlite:$file")" = "$before" ] && "$old" release --store "sqlite:$file" k --id one >/dev/null
}
server() { # also with the journal of a server that was killed
    serve "$old" "$work/$old_commit-s3.db" && "$old" acquire --store "$url" k --id one --ttl 10m >/dev/null || return 1
    kill -9 "$pid"
    wait "$pid"
    ! timeout 20 "$new" serve --listen "127.0.0.1:$(free_port)" --store "sqlite:$work/$old_commit-s3.db" 2>"$work/err" && cat "$work/err" && grep -q 'early belay' "$work/err" || return 1
    serve "$old" "$work/$old_commit-s3.db" && "$old" release --store "$url" k --id one >/dev/null
    local rc=$?
    stop
    return $rc
}
old_client() {
    serve "$new" "$work/$old_commit-s1.db" || return 1
    "$old" acquire --store "$url" k --id one >/dev/null && "$old" renew --store "$url" k --id one >/dev/null
    local rc=$?
    "$new" run --store "$url" k -- true
    [ $? = 75 ] && "$old" release --store "$url" k --id one >/dev/null && "$old" run --store "$url" --wait 5s k -- true && [ "$rc" = 0 ]
    rc=$?
    stop
    return $rc
}
new_client() {
    serve "$old" "$work/$old_commit-s2.db" || return 1
    "$new" acquire --store "$url" k --id one >/dev/null && "$new" renew --store "$url" k --id one >/dev/null &&
        "$new" release --store "$url" k --id one >/dev/null && "$new" run --store "$url" --wait 5s k -- true
    local rc=$?
    stop
    return $rc
}
# A file of the same schema is used as it is, with its journal: the lock is held, and its token is not granted again.
# shellcheck disable=SC2016 # for the shell inside
kept() {
    local file=$work/$old_commit-kept.db before
    serve "$old" "$file" && "$old" acquire --store "$url" k --id one --ttl 10m >/dev/null && before=$(token_of "$old" "$url") || return 1
    kill -9 "$pid"
    wait "$pid"
    serve "$new" "$file" || return 1
    "$new" run --store "$url" k -- true
    [ $? = 75 ] && [ "$(token_of "$new" "$url")" = "$before" ] && "$old" release --store "$url" k --id one >/dev/null &&
        [ "$("$new" run --store "$url" k -- sh -c 'echo $BELAY_TOKEN')" -gt "$before" ]
    local rc=$?
    stop
    return $rc
}

for old_commit in "${versions[@]}"; do
    old_dir=$PWD/build/upgrade/$old_commit
    old=$old_dir/build/belay
    check "$old_commit builds" build_old
    if [ "$(git show "$old_commit:src/store/sqlite/sqlite_internal.h" | schema_of)" = "$(schema_of <src/store/sqlite/sqlite_internal.h)" ]; then
        check "$old_commit: the file of a server that was killed is used as it is" kept
    else
        check "$old_commit: this version refuses its file by name, and does not harm it" file
        check "$old_commit: so does this version's server, and the old server recovers its journal afterwards" server
    fi
    check "$old_commit: its client works through this version's server" old_client
    check "$old_commit: this version's client works through its server" new_client
done
check_summary
