"""Ctrl-C ends each wait of a blocking client, and the sandbox, soon."""

import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from momopay import Client, RateBudget
from momopay.sandbox import Sandbox
from momopay.sandbox.__main__ import main as run_sandbox

KEY = "pk_test_windows"
LONGEST = 5.0  # two seconds are promised; a loaded machine may add some


def interrupted(name: str, wait: Callable[[], object]) -> None:
    """Press Ctrl-C after half a second of a wait, and see that it ends."""
    pressed = list[float]()

    def press() -> None:
        time.sleep(0.5)
        pressed.append(time.monotonic())
        if sys.platform == "win32":
            signal.raise_signal(signal.SIGINT)
        else:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    presser = threading.Thread(target=press)
    presser.start()
    with suppress(KeyboardInterrupt):
        wait()
    took = time.monotonic() - pressed[0]
    presser.join()
    assert took < LONGEST, f"{name} went on for {took:.1f} s"
    print(f"{name}: {took:.2f} s")


def client_at(url: str, budget: RateBudget | None = None) -> Client:
    return Client(KEY, base_url=url, timeout=15, deadline=60, budget=budget)


def main() -> None:
    with socket.socket() as full, socket.create_server(("127.0.0.1", 0)) as mute, Sandbox() as sandbox:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        waiting = [socket.socket() for _ in range(4)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(full.getsockname())
        for name, port in (("a connect", full.getsockname()[1]), ("a response", mute.getsockname()[1])):
            with client_at(f"http://127.0.0.1:{port}/v1") as client:
                interrupted(name, client.wallet.balance)
        for each in waiting:
            each.close()
        with client_at(sandbox.base_url, budget=RateBudget(1, 60)) as client:
            client.wallet.balance()
            interrupted("a wait for the rate budget", client.wallet.balance)
        with client_at(sandbox.base_url) as client:
            sent = client.stk.initiate(amount=1, phone="0712345678")
            interrupted("a wait for an end", lambda: client.transactions.wait(sent))
    before = signal.getsignal(signal.SIGINT)
    interrupted("the sandbox", lambda: run_sandbox(["--port", "0", "--state", f"{tempfile.mkdtemp()}/state.db"]))
    signal.signal(signal.SIGINT, before)


main()
