#!/usr/bin/env bash
# The layer of `make package` and deploy/lambda/function.py, in what a function of AWS Lambda sees: the layer at /opt, the
# function at /var/task, a read-only root, only /tmp to write to, no HOME, a user without rights. Amazon Linux itself is
# not used: the system is this one's /usr.
#
#   test/install/lambda.sh BUILD_DIR
# shellcheck disable=SC2016 # what is quoted is for the shell inside
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
build=${1:-build}
# shellcheck source=test/support/check.sh
. test/support/check.sh
root=$work/root
check "make package" packaging/package "$build" "$work/dist"

sandbox() { # a root of directories to mount to, and the links that /usr expects
    local name
    mkdir -p "$root/usr" "$root/opt" "$root/var/task" "$root/tmp" "$root/dev" "$root/proc" "$root/etc" && touch "$root/dev/null" "$root/dev/urandom" || return 1
    for name in bin lib lib32 lib64; do if [ -L "/$name" ]; then cp -P "/$name" "$root/$name"; fi; done
    echo 'sbx:x:993:990::/nowhere:/sbin/nologin' >"$root/etc/passwd"
    # Debian's alternatives, such as awk, and the loader's list of libraries are in /etc.
    cp -rP /etc/alternatives /etc/ld.so.cache "$root/etc/"
    unzip -q "$work/dist"/*lambda*.zip -d "$root/opt" && cp deploy/lambda/function.py "$root/var/task/" && chmod -R go+rX "$root" && chmod 755 "$work"
}
check "the layer, unpacked to /opt" sandbox
namespaces=(--mount)
[ "$(id -u)" = 0 ] || namespaces=(--mount --user --map-root-user)
if ! unshare "${namespaces[@]}" true 2>"$work/log"; then
    # In a chroot whose root is no mount point, a mount could not be kept from the system around it.
    echo "skip  the function in its sandbox: $(cat "$work/log")"
    check_summary
    exit
fi

lambda() { # COMMAND: with the variables that Lambda sets
    local user='exec setpriv --reuid 993 --regid 990 --clear-groups --no-new-privs'
    [ "$(id -u)" = 0 ] || user='exec'
    env -i BELAY_STORE="${store:-}" unshare "${namespaces[@]}" sh -c 'root=$1
        mount --bind "$root" "$root" && mount --bind /usr "$root/usr" && mount -o remount,ro,bind "$root/usr" && mount -t tmpfs -o mode=1777 tmp "$root/tmp" &&
        mount --rbind /proc "$root/proc" && mount --bind /dev/null "$root/dev/null" && mount --bind /dev/urandom "$root/dev/urandom" && mount -o remount,ro,bind "$root" || exit 99
        exec chroot "$root" env -i BELAY_STORE="$BELAY_STORE" LANG=en_US.UTF-8 TZ=:UTC PATH=/var/lang/bin:/usr/local/bin:/usr/bin:/bin:/opt/bin \
            LD_LIBRARY_PATH=/var/lang/lib:/lib64:/usr/lib64:/var/runtime:/var/runtime/lib:/var/task:/var/task/lib:/opt/lib PYTHONPATH=/opt/python:/var/runtime \
            LAMBDA_TASK_ROOT=/var/task AWS_LAMBDA_FUNCTION_NAME=deploy AWS_LAMBDA_FUNCTION_MEMORY_SIZE=128 AWS_REGION=eu-central-1 \
            AWS_ACCESS_KEY_ID=a AWS_SECRET_ACCESS_KEY=b \
            sh -c "cd /var/task; $2" sh "$3"' sh "$root" "$user sh -c \"\$1\" sh" "$1" </dev/null
}
invoke() { # HANDLER EVENT: as the runtime calls it
    lambda "/usr/bin/python3 -B -c 'import sys, json, function
class Context:
    def get_remaining_time_in_millis(self): return ${remaining_ms:-30000}
print(json.dumps(function.$1(json.loads(sys.argv[1]), Context()), sort_keys=True))' '$2'"
}
restricted() { [ "$(lambda 'touch /x /opt/x /var/task/x 2>/dev/null || echo read-only; touch /tmp/x && echo "${HOME-no home}"')" = $'read-only\nno home' ]; }
check "(the sandbox is read-only, except for /tmp, and has no HOME)" restricted
found() { lambda 'command -v belay && belay --version' | tee "$work/log" && [ "$(head -1 "$work/log")" = /opt/bin/belay ]; }
check "belay is in the PATH" found
# Nothing listens on port 1, so that the answer comes from libcurl.
dynamodb() { lambda 'belay status --store "dynamodb:locks?endpoint=https://127.0.0.1:1" k; [ $? = 69 ]'; }
check "the module for DynamoDB loads" dynamodb

port=$(free_port)
"$build/belay" serve --json --listen "127.0.0.1:$port" --store "sqlite:$work/locks.db" >"$work/listening" 2>"$work/serve.log" &
server=$!
trap 'kill "$server"; wait "$server"; rm -rf "$work"' EXIT
for _ in $(seq 300); do
    [ -s "$work/listening" ] && break
    sleep 0.1
done
store=http://127.0.0.1:$port
runs() { invoke run_command '{"key": "deploy-api", "command": ["sh", "-c", "echo token $BELAY_TOKEN"]}' | tee "$work/log" && grep -qxE '\{"locked": true, "output": "token [0-9]+\\n"\}' "$work/log"; }
check "run_command guards a program" runs
client() { invoke with_client '{"key": "deploy-api"}' | tee "$work/log" && grep -qxE '\{"locked": true, "token": [0-9]+\}' "$work/log"; }
check "with_client guards Python" client
# A handler of one's own, in a folder, that uses both ways; Lambda imports it by its path.
own_handler() {
    mkdir -p "$root/var/task/jobs" && cat >"$root/var/task/jobs/nightly.py" <<'PYTHON'
import os
import subprocess

import belay


def handler(event, context):
    with belay.connect(os.environ["BELAY_STORE"]).lock(event["key"]) as lock:
        nested = subprocess.run(["belay", "run", event["key"], "--", "true"], capture_output=True, check=False)
        return [lock.token > 0, nested.returncode]
PYTHON
    lambda "/usr/bin/python3 -B -c 'import importlib, json
print(json.dumps(importlib.import_module(\"jobs.nightly\").handler({\"key\": \"nightly\"}, None)))'" | tee "$work/log" && [ "$(cat "$work/log")" = "[true, 75]" ]
}
check "a handler in a folder, with a key of its own" own_handler
# The wait is half of the time that is left.
held() {
    local remaining_ms=9000
    "$build/belay" acquire --store "$store" deploy-api --ttl 10m >/dev/null || return 1
    invoke run_command '{"key": "deploy-api", "command": ["true"]}' | tee "$work/log"
    grep -qE '"locked": false, "message": ".*held by' "$work/log" || return 1
    invoke with_client '{"key": "deploy-api"}' | tee "$work/log"
    grep -qE '"locked": false, "message": ".*held by' "$work/log"
}
check "both say who holds the lock" held
check_summary
