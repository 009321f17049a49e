#!/usr/bin/env bash
# For the tests in shell: a directory of their own, $work, and `check NAME COMMAND...`. Sourced, not run.
# shellcheck shell=bash
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0
failed=0

check() { # NAME COMMAND...
    local title=$1
    shift
    if "$@" >"$work/out" 2>&1; then
        passed=$((passed + 1))
        echo "ok    $title"
    else
        failed=$((failed + 1))
        echo "FAIL  $title"
        sed 's/^/      | /' "$work/out"
    fi
}

check_summary() {
    echo "$passed passed, $failed failed"
    [ "$failed" = 0 ]
}

# A port of this machine that nothing listens on, below the range that the kernel hands out.
free_port() {
    python3 "$(dirname "${BASH_SOURCE[0]}")/ports.py"
}
