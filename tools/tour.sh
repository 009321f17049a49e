#!/usr/bin/env bash
# A narrated tour of belay on a store of its own, in a temporary folder, that ends by itself.
# Every command is shown before it runs, and what follows is what it really printed.
#
#   tools/tour.sh [PATH-TO-BELAY]
set -euo pipefail

belay=$(realpath "${1:-build/belay}")
work=$(mktemp -d)
mkdir "$work/bin"
ln -s "$belay" "$work/bin/belay"
export PATH="$work/bin:$PATH" BELAY_STORE="sqlite:$work/locks.db" NO_COLOR=1
export XDG_CONFIG_HOME="$work" # a tour shows what belay does by itself, not what your configuration says
unset BELAY_CONFIG BELAY_DISABLED BELAY_STATE_STORE
cd "$work"
background=()
finish() {
    [ "${#background[@]}" = 0 ] || kill "${background[@]}" 2>/dev/null || true
    wait 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT

say() {
    echo
    printf '# %s\n' "$@"
}

# Runs what it prints. The exit code that a step must have comes first: a tour that lies fails.
step() {
    local expected=$1 code=0
    shift
    printf '$ %s\n' "$*"
    bash -c "$*" 2>&1 || code=$?
    [ "$code" = 0 ] || printf '(exit code %s)\n' "$code"
    if [ "$code" != "$expected" ]; then
        printf 'tour: expected exit code %s\n' "$expected" >&2
        exit 1
    fi
}

# The same in the background; its process is belay's.
start() {
    printf '$ %s &\n' "$*"
    bash -c "exec $*" 2>&1 &
    background+=($!)
}

printf 'belay makes sure that one deploy, build or migration happens at a time.\n'
printf 'This tour uses a store of its own: one SQLite file in %s, which it removes in the end.\n' "$work"

say "Run a command under a lock. It gets the lock's token, and belay exits with its code."
step 0 "belay run deploy-api-prod -- sh -c 'echo deploying \$BELAY_KEY with token \$BELAY_TOKEN'"
step 3 "belay run deploy-api-prod -- sh -c 'exit 3'"

say "Somebody takes a lock for a longer job. It is theirs until they release it, or until its lease ends."
step 0 "belay acquire --ttl 10m --owner alice --owner-name 'Alice (release 42)' deploy-api-prod"

say "A second one is refused at once, is told who has it, and can tell by the exit code (75)."
step 75 "belay run deploy-api-prod -- echo never printed"

say "Who holds what?"
step 0 "belay list"
step 0 "belay status deploy-api-prod"

say "Alice has gone home. An administrator ends exactly that lock; who and why goes into the history." \
    "Meanwhile somebody waits in line, and gets the lock the moment it is free."
start "belay run --wait 30s --owner bob deploy-api-prod -- sh -c 'echo my turn, with token \$BELAY_TOKEN'"
sleep 0.7
step 0 "belay unlock deploy-api-prod --force --reason 'alice has gone home' --yes"
wait "${background[0]}"
background=()

say "A lock is a lease: who dies keeps it no longer than that. Here a holder is killed with -9."
start "belay run --ttl 2s migrate-db -- sleep 60"
sleep 0.5
printf '$ kill -9 %s\n' "${background[0]}"
kill -9 "${background[0]}"
{ wait "${background[0]}" || true; } 2>/dev/null
background=()
step 0 "belay run --wait 10s migrate-db -- echo the next one did not have to ask anybody"

say "Nothing is silent: the history of one lock."
step 0 "belay history deploy-api-prod"

say "And for programs, everything as JSON."
step 0 "belay status deploy-api-prod --json"

cat <<END

That was the tour. Now it is yours:

    export PATH="$(dirname "$belay"):\$PATH"
    belay run --wait 5m deploy-api-prod -- ./deploy.sh     # your own command, one at a time
    belay list
    belay --help

make test runs every test; README.md and docs/ have the rest.
END
