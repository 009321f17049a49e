// The five documents' lock code, driven by one JSON object a line:
//
//     {"document": "004", "do": "acquire", "table": "locks", "key": "k", "owner": "me", "seconds": 60, ...}
//
// Each answer is one line: {"result": ...} or {"error": "..."}. The SDK comes from the folder BELAY_INTEROP.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { compete } from "./compete.mjs";

const require = createRequire(process.env.BELAY_INTEROP + "/");
const sdk = require("@aws-sdk/client-dynamodb");
const client = new sdk.DynamoDBClient({ endpoint: process.env.DYNAMODB_URL, region: "us-east-1" });

// `send("PutItem", {...})`; a condition that does not hold is `false`, not an exception.
async function send(operation, input) {
    try {
        return await client.send(new sdk[operation + "Command"](input));
    } catch (error) {
        if (error.name === "ConditionalCheckFailedException") {
            return false;
        }
        throw error;
    }
}

const documents = {};
for (const number of ["000", "001", "002", "003", "004"]) {
    documents[number] = (await import(`./document${number}.mjs`)).open(send);
}

for await (const line of createInterface({ input: process.stdin })) {
    const order = JSON.parse(line);
    const document = documents[order.document];
    let answer;
    try {
        const result = await (order.do === "compete" ? compete(document, order) : document[order.do](order));
        answer = { result: result ?? null };
    } catch (error) {
        answer = { error: `${error.name}: ${error.message}` };
    }
    process.stdout.write(JSON.stringify(answer) + "\n");
}
