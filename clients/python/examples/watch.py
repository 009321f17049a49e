"""Print what happens to the locks, with asyncio: python3 watch.py http://127.0.0.1:7420 [PREFIX]"""

import asyncio
import sys

import belay


async def main(url: str, prefix: str = "") -> None:
    async with belay.connect_async(url) as client, await client.events(prefix) as events:
        print("watching", flush=True)
        async for event in events:
            print(event["timestamp"], event["event"], event["lock_key"], event["reason"] or "", flush=True)


asyncio.run(main(*sys.argv[1:]))
