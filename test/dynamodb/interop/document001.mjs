// Document 001, locks around a critical section. Mended: `Owner` is a reserved word; times are UTC, as compared.
import { randomUUID } from "node:crypto";

const rfc3339 = (ms) => new Date(ms).toISOString().replace(/\.\d+Z$/, "Z");
const keyOf = (resource) => ({ PK: { S: `LOCK#${resource}` }, SK: { S: "LOCK" } });

export function open(send) {
    return {
        async acquire({ table, key, owner, seconds }) {
            const now = Date.now();
            const lockID = randomUUID();
            const done = await send("PutItem", {
                TableName: table,
                Item: {
                    ...keyOf(key),
                    LockID: { S: lockID },
                    Owner: { S: owner },
                    AcquiredAt: { S: rfc3339(now) },
                    ExpiresAt: { S: rfc3339(now + seconds * 1000) },
                    TTL: { N: String(Math.floor(now / 1000) + seconds) },
                },
                ConditionExpression: "attribute_not_exists(PK) OR ExpiresAt < :now",
                ExpressionAttributeValues: { ":now": { S: rfc3339(now) } },
            });
            return done && { id: lockID };
        },

        async release({ table, key, id, owner }) {
            await send("DeleteItem", {
                TableName: table,
                Key: keyOf(key),
                ConditionExpression: "LockID = :id AND #Owner = :owner",
                ExpressionAttributeNames: { "#Owner": "Owner" },
                ExpressionAttributeValues: { ":id": { S: id }, ":owner": { S: owner } },
            });
            return true; // done, or already gone
        },

        async read({ table, key }) {
            const { Item: item } = await send("GetItem", { TableName: table, Key: keyOf(key) });
            return item && {
                key: item.PK.S.slice("LOCK#".length),
                id: item.LockID.S,
                owner: item.Owner.S,
                since: new Date(item.AcquiredAt.S).getTime(),
                expires: new Date(item.ExpiresAt.S).getTime(),
                live: item.ExpiresAt.S >= rfc3339(Date.now()),
            };
        },
    };
}
