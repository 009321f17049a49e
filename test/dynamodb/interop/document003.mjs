// Document 003, the lock around stopping a shared database, in the table of applications. Mended: `ttl` is a
// reserved word. created_at is a number of seconds, as ttl is.
const keyOf = (identifier) => ({ app_name: { S: `LOCK#DB#${identifier}` } });

export function open(send) {
    return {
        async acquire({ table, key, owner, seconds }) {
            const now = Math.floor(Date.now() / 1000);
            const done = await send("PutItem", {
                TableName: table,
                Item: {
                    ...keyOf(key),
                    owner_id: { S: owner },
                    ttl: { N: String(now + seconds) },
                    created_at: { N: String(now) },
                    lock_type: { S: "database" },
                    db_identifier: { S: key },
                },
                ConditionExpression: "attribute_not_exists(app_name) OR #ttl < :now",
                ExpressionAttributeNames: { "#ttl": "ttl" },
                ExpressionAttributeValues: { ":now": { N: String(now) } },
            });
            return done && { taken: true };
        },

        async release({ table, key, owner }) {
            return Boolean(await send("DeleteItem", {
                TableName: table,
                Key: keyOf(key),
                ConditionExpression: "owner_id = :owner",
                ExpressionAttributeValues: { ":owner": { S: owner } },
            }));
        },

        async read({ table, key }) {
            const { Item: item } = await send("GetItem", { TableName: table, Key: keyOf(key) });
            return item && {
                key: item.db_identifier.S,
                owner: item.owner_id.S,
                since: Number(item.created_at.N) * 1000,
                expires: Number(item.ttl.N) * 1000,
                live: Number(item.ttl.N) * 1000 > Date.now(),
                type: item.lock_type.S,
            };
        },
    };
}
