// Acquire the lock repeatedly, and pass a door that only one holder may be in.
import { appendFileSync, openSync, closeSync, rmSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

export async function compete(document, order) {
    const end = Date.now() + order.for_seconds * 1000;
    let taken = 0;
    let refused = 0;
    for (let turn = 0; Date.now() < end; turn++) {
        const owner = `${order.owner}-${turn}`;
        const held = await document.acquire({ ...order, owner });
        if (!held) {
            refused++;
            await sleep(10 + Math.random() * 40);
            continue;
        }
        taken++;
        try {
            closeSync(openSync(order.door, "wx")); // fails if another holder is inside
        } catch {
            appendFileSync(order.collisions, `${owner}\n`);
        }
        await sleep(10 + Math.random() * 20);
        rmSync(order.door, { force: true });
        await document.release({ ...order, owner, ...held });
        await sleep(Math.random() * 100);
    }
    return { taken, refused };
}
