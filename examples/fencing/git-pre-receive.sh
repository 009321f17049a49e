#!/bin/sh
# hooks/pre-receive of the repository; clients push with: git push -o fence="$BELAY_TOKEN"
# Needs: git config receive.advertisePushOptions true
exec 9>>"$GIT_DIR/fence.lock" && flock 9 || exit 1
token=0 i=0
while [ "$i" -lt "${GIT_PUSH_OPTION_COUNT:-0}" ]; do
    option=$(printenv "GIT_PUSH_OPTION_$i")
    case $option in fence=*) token=${option#fence=} ;; esac
    i=$((i + 1))
done
highest=$(cat "$GIT_DIR/fence" 2>/dev/null || echo 1)
[ "$token" -ge "$highest" ] || { echo "token $token is too old: $highest has pushed" >&2; exit 1; }
echo "$token" >"$GIT_DIR/fence.new" && mv "$GIT_DIR/fence.new" "$GIT_DIR/fence" # never half of it, or none
