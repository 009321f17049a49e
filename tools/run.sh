#!/usr/bin/env bash
# `make run`: run `belay serve` on an embedded store in build/run, until Ctrl-C.
#
#   tools/run.sh [PATH-TO-BELAY]
#
# BELAY_RUN_DIR      directory of the store and the configuration; default: build/run
# BELAY_RUN_SECONDS  stop after this time; 0: never. Default: 0 on a terminal; 30 without a terminal or if CI is set
set -euo pipefail

belay=${1:-build/belay} # as given: the server prints it in the commands to try next
folder=${BELAY_RUN_DIR:-build/run}
mkdir -p "$folder"
folder=$(realpath "$folder")
if [ -z "${BELAY_RUN_SECONDS:-}" ]; then
    BELAY_RUN_SECONDS=0
    if [ ! -t 0 ] || [ -n "${CI:-}" ]; then BELAY_RUN_SECONDS=30; fi
fi

# A configuration of its own, so that yours does not change the result.
[ -e "$folder/belay.yaml" ] || echo '# The configuration of make run; see docs/server.md.' >"$folder/belay.yaml"
unset BELAY_CONFIG BELAY_DISABLED BELAY_STORE

address=127.0.0.1:7420
if (exec 3<>/dev/tcp/127.0.0.1/7420) 2>/dev/null; then
    echo "Port 7420 is in use; using a free port."
    address=127.0.0.1:0
fi
[ "$BELAY_RUN_SECONDS" = 0 ] || echo "The server stops after $BELAY_RUN_SECONDS s (BELAY_RUN_SECONDS)."

serve=("$belay" serve --config "$folder/belay.yaml" --store "sqlite:$folder/belay.db" --listen "$address")
if [ "$BELAY_RUN_SECONDS" = 0 ]; then
    exec "${serve[@]}"
fi
# --foreground: otherwise timeout sends the signal to the server and to its group, and the second one ends it at once.
exec timeout --foreground --preserve-status --signal=INT "$BELAY_RUN_SECONDS" "${serve[@]}"
