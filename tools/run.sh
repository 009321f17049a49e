#!/usr/bin/env bash
# What `make run` does: `belay serve` on an embedded store in build/run, until Ctrl-C.
#
#   tools/run.sh [PATH-TO-BELAY]
#
# BELAY_RUN_DIR      where its store and its configuration are (build/run)
# BELAY_RUN_SECONDS  stop by itself after so long; 0: never. By default 0 on a terminal, and 30 where there is
#                    nobody to press Ctrl-C: without a terminal, or when CI is set
set -euo pipefail

belay=$(realpath "${1:-build/belay}")
folder=${BELAY_RUN_DIR:-build/run}
mkdir -p "$folder"
folder=$(realpath "$folder")
if [ -z "${BELAY_RUN_SECONDS:-}" ]; then
    BELAY_RUN_SECONDS=0
    if [ ! -t 0 ] || [ -n "${CI:-}" ]; then BELAY_RUN_SECONDS=30; fi
fi

# Its own file, so that yours does not change what this shows.
[ -e "$folder/belay.yaml" ] || echo '# The configuration of make run; docs/server.md says what can be here.' >"$folder/belay.yaml"
unset BELAY_CONFIG BELAY_DISABLED BELAY_STORE

address=127.0.0.1:7420
if (exec 3<>/dev/tcp/127.0.0.1/7420) 2>/dev/null; then
    echo "Port 7420 is in use; taking a free one."
    address=127.0.0.1:0
fi
[ "$BELAY_RUN_SECONDS" = 0 ] || echo "Nobody is here to press Ctrl-C: it stops after $BELAY_RUN_SECONDS s (BELAY_RUN_SECONDS)."

serve=("$belay" serve --config "$folder/belay.yaml" --store "sqlite:$folder/belay.db" --listen "$address")
if [ "$BELAY_RUN_SECONDS" = 0 ]; then
    exec "${serve[@]}"
fi
# In the foreground: otherwise the signal is sent twice, to it and to its group, and a second one ends it at once.
exec timeout --foreground --preserve-status --signal=INT "$BELAY_RUN_SECONDS" "${serve[@]}"
