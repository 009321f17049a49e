#!/bin/sh
# dynamodb-write.sh VALUE: one conditional write to the table 'settings', with the key 'name'.
content=$(printf %s "$1" | sed 's/[\\"]/\\&/g') # as in JSON
exec curl -sS --fail-with-body --aws-sigv4 "aws:amz:$AWS_REGION:dynamodb" -u "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY" \
    -H 'Content-Type: application/x-amz-json-1.0' -H 'X-Amz-Target: DynamoDB_20120810.UpdateItem' -d @- \
    "${AWS_ENDPOINT_URL:-https://dynamodb.$AWS_REGION.amazonaws.com}" <<REQUEST
{"TableName": "settings", "Key": {"name": {"S": "release"}},
 "UpdateExpression": "SET content = :content, fence = :token",
 "ConditionExpression": "attribute_not_exists(fence) OR fence <= :token",
 "ExpressionAttributeValues": {":content": {"S": "$content"}, ":token": {"N": "$BELAY_TOKEN"}}}
REQUEST
