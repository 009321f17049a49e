"""Migrate two databases together, with asyncio, and stop when the lock is lost: python3 migrate.py http://127.0.0.1:7420"""

import asyncio
import sys

import belay


async def migrate(fences: dict) -> None:
    await asyncio.sleep(0.1)
    print("migrated with tokens", sorted(fences))


async def main(url: str) -> None:
    async with belay.connect_async(url).lock("db-orders", "db-users", ttl="1m", wait="30s") as lock:
        work = asyncio.create_task(migrate(dict(lock.tokens)))
        loss = asyncio.create_task(lock.lost.wait())
        done, _ = await asyncio.wait([work, loss], return_when=asyncio.FIRST_COMPLETED)
        if work not in done:
            work.cancel()  # the end of the block raises LockLost
        loss.cancel()


asyncio.run(main(sys.argv[1]))
