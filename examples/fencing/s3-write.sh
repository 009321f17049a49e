#!/usr/bin/env bash
# s3-write.sh URL VALUE: the object's first line is the token that wrote it. S3 cannot compare tokens: the writer
# does, and If-Match makes S3 reject the write if the object has changed since.
set -euo pipefail
url=$1 body=$BELAY_TOKEN$'\n'$2 old=$(mktemp)
s3() {
    curl -sS --aws-sigv4 "aws:amz:$AWS_REGION:s3" -u "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY" \
        -H "x-amz-content-sha256: $(printf %s "$1" | sha256sum | cut -d ' ' -f 1)" "${@:2}" "$url"
}
read -r status etag < <(s3 "" -o "$old" -w '%{http_code} %header{etag}\n')
case $status in
200) condition="If-Match: $etag" highest=$(head -n 1 "$old") ;;
404) condition='If-None-Match: *' highest=0 ;;
*) exit 1 ;;
esac
rm "$old"
[ "$BELAY_TOKEN" -ge "$highest" ] || { echo "token $BELAY_TOKEN is too old: $highest has written" >&2; exit 1; }
s3 "$body" --fail-with-body -X PUT --data-binary "$body" -H "$condition"
