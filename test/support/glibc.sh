#!/usr/bin/env bash
# Which glibc a program needs, of any processor. Sourced after check.sh, not run.
# shellcheck shell=bash disable=SC2154 # $work is of check.sh
newest_glibc=2.34 # RHEL 9, Amazon Linux 2023 and Lambda, Ubuntu 22.04

too_new() { # FILE...: prints the symbols that need a newer glibc than $newest_glibc
    local file
    for file in "$@"; do
        readelf -W --dyn-syms "$file" | grep -oE '[^ ]+@+GLIBC_[0-9.]+' |
            awk -F '@+GLIBC_' -v newest="$newest_glibc" -v file="$file" '{ split($2, is, "."); split(newest, may, ".");
                if (is[1] > may[1] || (is[1] == may[1] && is[2] > may[2])) print file ": " $1 " needs GLIBC_" $2 }'
    done
}

old_glibc() { # DIR: a tarball's
    local files
    mapfile -t files < <(find "$1/bin" "$1/lib" -type f)
    too_new "${files[@]}" | tee "$work/new"
    [ "${#files[@]}" -gt 10 ] && [ ! -s "$work/new" ]
}
