"""After a connect that times out, and a call that is cancelled while it waits, other calls of the process go on."""

import asyncio
import socket

from momopay import APIConnectionError, AsyncClient
from momopay.sandbox import Sandbox

KEY = "pk_test_windows"


async def main() -> None:
    # A listener whose queue is full: no connect is answered.
    with socket.socket() as full, Sandbox() as sandbox:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        waiting = [socket.socket() for _ in range(4)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(("127.0.0.1", port))
        silent = AsyncClient(
            KEY, base_url=f"http://127.0.0.1:{port}/v1", timeout=1, deadline=1.5, max_attempts=1, budget=None
        )
        async with silent, AsyncClient(KEY, base_url=sandbox.base_url, timeout=10, max_attempts=1) as client:
            await client.wallet.balance()
            sandbox.fail_next("GET", "/wallets/service/balance", "reset_after_commit")
            for _ in range(3):
                try:
                    await silent.wallet.balance()
                except APIConnectionError as error:
                    print(type(error).__name__, str(error)[:60])
                call = asyncio.create_task(silent.wallet.balance())
                await asyncio.sleep(0.2)
                call.cancel()
                await asyncio.wait([call])
            for _ in range(2):
                try:
                    await client.wallet.balance()
                except APIConnectionError as error:
                    print("dropped:", type(error).__name__)
            balances = await asyncio.gather(*(client.wallet.balance() for _ in range(20)))
            print(f"{len(balances)} calls answered on {type(asyncio.get_running_loop()).__name__}")
        for each in waiting:
            each.close()


asyncio.run(main())
