#!/usr/bin/env bash
# Plants mistakes into src/lock, one at a time, and checks that the simulator
# finds each within SEEDS seeds. Each mutants/NAME.patch says what it plants and
# which promise that breaks. A patch that no longer applies has failed: the
# mistake must be planted anew.
#
#     test/sim/mutants.sh [NAME...]
set -euo pipefail

SEEDS=${SEEDS:-20000}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export GIT_CEILING_DIRECTORIES=$work # git apply must not take the scratch copy for a part of a repository

cc=${CC:-gcc}
flags=(-std=c11 -D_GNU_SOURCE -O1 -Iinclude -Isrc -Itest)
passed=0
failed=0

compile() { # FILE... in the current directory, into obj/
    local file
    for file in "$@"; do
        "$cc" "${flags[@]}" -c "$file" -o "obj/$(tr / _ <<<"$file").o"
    done
}

link_sim() {
    "$cc" obj/*.o -Wl,--wrap=clock_unix_ms,--wrap=clock_boot_ms -lpthread -ljansson -o sim
}

verdict() { # passed|failed NAME TEXT
    printf '%-6s  %-42s %s\n' "$1" "$2" "$3"
    if [ "$1" = passed ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
    fi
}

prepare() {
    mkdir -p "$work/sound/test" "$work/sound/obj"
    cp -r "$root/include" "$root/src" "$work/sound/"
    cp -r "$root/test/sim" "$root/test/support" "$work/sound/test/"
    cd "$work/sound"
    local sources=(src/base/*.c src/lock/*.c src/freeze/*.c test/support/memstore*.c) file
    for file in test/sim/*.c; do
        case $file in */test_*) ;; *) sources+=("$file") ;; esac
    done
    compile "${sources[@]}"
    link_sim
    # Without a mistake it must find none, or finding one proves nothing.
    if ./sim --seeds 300 --brief >sim.log; then
        verdict passed "no mistake" "300 seeds find none"
    else
        verdict failed "no mistake" "$(head -n 1 sim.log)"
    fi
}

try_patch() { # PATCH
    local name files log
    name=$(basename "$1" .patch)
    rm -rf "$work/mutant"
    cp -r "$work/sound" "$work/mutant"
    cd "$work/mutant"
    if ! git apply -p1 "$1" 2>apply.log; then
        verdict failed "$name" "does not apply: $(head -n 1 apply.log)"
        return
    fi
    mapfile -t files < <(sed -n 's|^+++ b/||p' "$1")
    if ! compile "${files[@]}" 2>cc.log || ! link_sim 2>>cc.log; then
        verdict failed "$name" "does not compile: $(head -n 1 cc.log)"
        return
    fi
    if ./sim --seeds "$SEEDS" --brief >sim.log 2>&1; then
        verdict failed "$name" "not found in $SEEDS seeds"
        return
    fi
    log=$(grep -m 1 violates sim.log || true)
    if [ -n "$log" ]; then
        verdict passed "$name" "$log"
    else
        verdict failed "$name" "the simulator broke: $(tail -n 1 sim.log)"
    fi
}

prepare
if [ $# -gt 0 ]; then
    patches=("${@/#/$here/mutants/}")
    patches=("${patches[@]/%/.patch}")
else
    patches=("$here"/mutants/*.patch)
fi
for patch in "${patches[@]}"; do
    try_patch "$patch"
done
printf '%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 1 ]
