// Document 002, execution locks. Mended: expires_at is a number when written and when compared; the same execution
// may acquire again; `status` is a reserved word.
import { randomUUID } from "node:crypto";

const seconds_now = () => Math.floor(Date.now() / 1000);

export function open(send) {
    return {
        async acquire({ table, key, owner, name, seconds, metadata }) {
            const now = seconds_now();
            const id = randomUUID();
            const done = await send("PutItem", {
                TableName: table,
                Item: {
                    lock_name: { S: key },
                    lock_id: { S: id },
                    execution_id: { S: owner },
                    user_email: { S: name ?? `${owner}@example.com` },
                    acquired_at: { S: new Date(now * 1000).toISOString().replace(/\.\d+Z$/, "Z") },
                    expires_at: { N: String(now + seconds) },
                    status: { S: "active" },
                    metadata: { M: Object.fromEntries(Object.entries(metadata ?? {}).map(([k, v]) => [k, { S: v }])) },
                },
                ConditionExpression: "attribute_not_exists(lock_name) OR expires_at < :now OR execution_id = :execution",
                ExpressionAttributeValues: { ":now": { N: String(now) }, ":execution": { S: owner } },
            });
            return done && { id };
        },

        // It keeps the record, expired as of now.
        async release({ table, key, owner }) {
            return Boolean(await send("UpdateItem", {
                TableName: table,
                Key: { lock_name: { S: key } },
                UpdateExpression: "SET #status = :released, expires_at = :now",
                ConditionExpression: "execution_id = :execution",
                ExpressionAttributeNames: { "#status": "status" },
                ExpressionAttributeValues: {
                    ":released": { S: "released" },
                    ":now": { N: String(seconds_now()) },
                    ":execution": { S: owner },
                },
            }));
        },

        async renew({ table, key, owner, seconds }) {
            return Boolean(await send("UpdateItem", {
                TableName: table,
                Key: { lock_name: { S: key } },
                UpdateExpression: "SET expires_at = :expires",
                ConditionExpression: "execution_id = :execution AND expires_at > :now",
                ExpressionAttributeValues: {
                    ":expires": { N: String(seconds_now() + seconds) },
                    ":now": { N: String(seconds_now()) },
                    ":execution": { S: owner },
                },
            }));
        },

        async read({ table, key }) {
            const { Item: item } = await send("GetItem", { TableName: table, Key: { lock_name: { S: key } } });
            return item && {
                key: item.lock_name.S,
                id: item.lock_id.S,
                owner: item.execution_id.S,
                name: item.user_email?.S,
                since: new Date(item.acquired_at.S).getTime(),
                expires: Number(item.expires_at.N) * 1000,
                live: item.status.S === "active" && Number(item.expires_at.N) >= seconds_now(),
                status: item.status.S,
                metadata: Object.fromEntries(Object.entries(item.metadata?.M ?? {}).map(([k, v]) => [k, v.S])),
            };
        },
    };
}
