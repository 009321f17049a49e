#!/usr/bin/env bash
# A narrated tour of belay, with a store of its own in a temporary directory.
# Each command is printed before it runs; the output is real.
#
#   tools/tour.sh [PATH-TO-BELAY]
set -euo pipefail

belay=$(realpath "${1:-build/belay}")
work=$(mktemp -d)
mkdir "$work/bin"
ln -s "$belay" "$work/bin/belay"
export PATH="$work/bin:$PATH" BELAY_STORE="sqlite:$work/locks.db" NO_COLOR=1
export XDG_CONFIG_HOME="$work" # show the defaults, not your configuration
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

# Print and run a command. The first argument is the expected exit code; any other code fails the tour.
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

# The same in the background; the process is belay itself.
start() {
    printf '$ %s &\n' "$*"
    bash -c "exec $*" 2>&1 &
    background+=($!)
}

printf 'belay runs one deployment, build or migration at a time.\n'
printf 'This tour uses a store of its own, an SQLite file in %s, and removes it at the end.\n' "$work"

say "Run a command under a lock. The command gets the fencing token, and belay exits with its exit code."
step 0 "belay run deploy-api-prod -- sh -c 'echo deploying \$BELAY_KEY with token \$BELAY_TOKEN'"
step 3 "belay run deploy-api-prod -- sh -c 'exit 3'"

say "Alice acquires a lock for a longer job. She holds it until she releases it, or until its lease expires."
step 0 "belay acquire --ttl 10m --owner alice --owner-name 'Alice (release 42)' deploy-api-prod"

say "A second client is refused at once: belay prints the holder and exits with 75."
step 75 "belay run deploy-api-prod -- echo never printed"

say "List the locks, and show one of them."
step 0 "belay list"
step 0 "belay status deploy-api-prod"

say "Alice has gone home. Bob waits in the queue; an administrator ends Alice's lock, and Bob gets it at once." \
    "The history records who ended the lock and why."
start "belay run --wait 30s --owner bob deploy-api-prod -- sh -c 'echo my turn, with token \$BELAY_TOKEN'"
sleep 0.7
step 0 "belay unlock deploy-api-prod --force --reason 'alice has gone home' --yes"
wait "${background[0]}"
background=()

say "A lock is a lease: a dead holder keeps it only until the lease expires. Here the holder is killed with -9."
start "belay run --ttl 2s migrate-db -- sleep 60"
sleep 0.5
printf '$ kill -9 %s\n' "${background[0]}"
kill -9 "${background[0]}"
{ wait "${background[0]}" || true; } 2>/dev/null
background=()
step 0 "belay run --wait 10s migrate-db -- echo the lock was free again by itself"

say "The history of one lock."
step 0 "belay history deploy-api-prod"

say "Every command can print JSON, for programs."
step 0 "belay status deploy-api-prod --json"

cat <<END

That was the tour. Try it yourself:

    export PATH="$(dirname "$belay"):\$PATH"
    belay run --wait 5m deploy-api-prod -- ./deploy.sh     # your own command
    belay list
    belay --help

README.md and docs/ describe the rest; make test runs every test.
END
