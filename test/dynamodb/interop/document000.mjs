// Document 000, build locks of a chat bot. Corrected: the reserved words `status` and `ttl` are aliased.
export function open(send) {
    return {
        async acquire({ table, key, owner, name, seconds, component, environment, correlationId }) {
            const now = Math.floor(Date.now() / 1000);
            const done = await send("PutItem", {
                TableName: table,
                Item: {
                    lockKey: { S: key },
                    lockedBy: { S: owner },
                    lockedByName: { S: name ?? owner },
                    lockedAt: { S: new Date().toISOString() },
                    status: { S: "IN_PROGRESS" },
                    ttl: { N: String(now + seconds) },
                    component: { S: component ?? "router" },
                    environment: { S: environment ?? "plt" },
                    ...(correlationId ? { correlationId: { S: correlationId } } : {}),
                },
                ConditionExpression:
                    "attribute_not_exists(lockKey) OR #ttl < :now OR #status IN (:completed, :failed)",
                ExpressionAttributeNames: { "#ttl": "ttl", "#status": "status" },
                ExpressionAttributeValues: {
                    ":now": { N: String(now) },
                    ":completed": { S: "COMPLETED" },
                    ":failed": { S: "FAILED" },
                },
            });
            return done && { taken: true };
        },

        async release({ table, key, failed }) {
            await send("UpdateItem", {
                TableName: table,
                Key: { lockKey: { S: key } },
                UpdateExpression: "SET #status = :status, completedAt = :at",
                ExpressionAttributeNames: { "#status": "status" },
                ExpressionAttributeValues: {
                    ":status": { S: failed ? "FAILED" : "COMPLETED" },
                    ":at": { S: new Date().toISOString() },
                },
            });
            return true;
        },

        async read({ table, key }) {
            const { Item: item } = await send("GetItem", { TableName: table, Key: { lockKey: { S: key } } });
            return item && {
                key: item.lockKey.S,
                owner: item.lockedBy.S,
                name: item.lockedByName.S,
                since: new Date(item.lockedAt.S).getTime(),
                expires: Number(item.ttl.N) * 1000,
                live: item.status.S === "IN_PROGRESS" && Number(item.ttl.N) * 1000 > Date.now(),
                status: item.status.S,
                component: item.component?.S,
                environment: item.environment?.S,
                correlationId: item.correlationId?.S,
            };
        },
    };
}
