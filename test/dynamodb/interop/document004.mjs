// Document 004, the deployer's lock manager.
import { randomUUID } from "node:crypto";

const seconds_now = () => Math.floor(Date.now() / 1000);

export function open(send) {
    return {
        async acquire({ table, key, owner, seconds, metadata }) {
            const now = seconds_now();
            const id = randomUUID();
            const all = { lockedBy: owner, ...metadata };
            const done = await send("PutItem", {
                TableName: table,
                Item: {
                    lockKey: { S: key },
                    lockId: { S: id },
                    lockedBy: { S: owner },
                    lockedAt: { N: String(now) },
                    expiresAt: { N: String(now + seconds) },
                    lastHeartbeat: { N: String(now) },
                    metadata: { M: Object.fromEntries(Object.entries(all).map(([k, v]) => [k, { S: v }])) },
                },
                ConditionExpression: "attribute_not_exists(lockKey) OR expiresAt < :now",
                ExpressionAttributeValues: { ":now": { N: String(now) } },
            });
            return done && { id };
        },

        async release({ table, key, id }) {
            await send("DeleteItem", {
                TableName: table,
                Key: { lockKey: { S: key } },
                ConditionExpression: "lockId = :id",
                ExpressionAttributeValues: { ":id": { S: id } },
            });
            return true; // done, or held by another client by now
        },

        async heartbeat({ table, key, id, seconds }) {
            const now = seconds_now();
            return Boolean(await send("UpdateItem", {
                TableName: table,
                Key: { lockKey: { S: key } },
                UpdateExpression: "SET lastHeartbeat = :now, expiresAt = :expiresAt",
                ConditionExpression: "lockId = :id",
                ExpressionAttributeValues: {
                    ":now": { N: String(now) },
                    ":expiresAt": { N: String(now + seconds) },
                    ":id": { S: id },
                },
            }));
        },

        async forceUnlock({ table, key }) {
            await send("DeleteItem", { TableName: table, Key: { lockKey: { S: key } } });
            return true;
        },

        async read({ table, key }) {
            const { Item: item } = await send("GetItem", { TableName: table, Key: { lockKey: { S: key } } });
            return item && {
                key: item.lockKey.S,
                id: item.lockId.S,
                owner: item.lockedBy.S,
                since: Number(item.lockedAt.N) * 1000,
                expires: Number(item.expiresAt.N) * 1000,
                live: Number(item.expiresAt.N) >= seconds_now(),
                stale: seconds_now() - Number(item.lastHeartbeat.N) > 120,
                metadata: Object.fromEntries(Object.entries(item.metadata.M).map(([k, v]) => [k, v.S])),
            };
        },
    };
}
