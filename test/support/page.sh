#!/usr/bin/env bash
# What a page of the documentation says, for tests that type it. Sourced, not run.
# shellcheck shell=bash

page_command() { # PAGE START: the one command of that page that begins like this, without the remark after it
    sed -n 's/^    //p' "$1" | START=$2 awk 'index($0, ENVIRON["START"]) == 1 { sub(/ +# .*/, ""); print; n++ } END { exit n != 1 }' ||
        { echo "$1 has not one command that begins with '$2'" >&2; return 1; }
}

small_tarball() { # FILE: smaller than docs/install.md says
    local mib
    mib=$(grep -oE 'in less than [0-9]+ MiB' docs/install.md | grep -oE '[0-9]+') && stat -c 'the tarball has %s bytes' "$1" &&
        [ "$(stat -c %s "$1")" -lt $((mib << 20)) ]
}
