"""Payments into a network that stands still, in a network namespace of their own: which of them arrive afterwards?

    python tests/transport/late_arrival.py

Both clients use the same socket, with TLS and without, so one of them stands for all. Every payment connects. Then the
loopback link goes down, every payment is written, and its process waits for the answer until its timeout, or is killed
or frozen meanwhile. The link comes up again, and each server says whether the request arrived. A control is a payment
without what should prevent that: it shows that the run waited long enough. The result is a JSON object on standard
output. The exit status is 77 where there are no namespaces to be had.
"""

import json
import os
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import momopay
from momopay._transport import sockets
from namespaces import enter_namespace, set_link

TIMEOUT = 2.0
NO_NAMESPACES = 77
_ARGUMENTS: dict[str, Any] = {"amount": 100, "phone": "0712345678", "reference": "late"}


@dataclass
class Payment:
    """One payment, made by a process of its own to a server of its own."""

    end: str
    linger: bool = True
    user_timeout: bool = True
    arrived: bool = False
    outcome: str = ""
    process: int = 0
    to_child: int = 0
    from_child: int = 0
    listener: socket.socket = field(init=False, repr=False)

    @property
    def name(self) -> str:
        """What the test calls it."""
        without = ["without linger"] * (not self.linger) + ["without user timeout"] * (not self.user_timeout)
        return ", ".join([self.end, *without])

    @property
    def is_control(self) -> bool:
        """Whether nothing prevents that it arrives late."""
        return not self.user_timeout and (not self.linger or self.end == "SIGSTOP")


def payments() -> list[Payment]:
    """All that is tried, in one run: there is one link."""
    real = [Payment(end) for end in ("timeout", "SIGKILL", "SIGSTOP")]
    aborted = [Payment(end, user_timeout=False) for end in ("timeout", "SIGKILL", "SIGSTOP")]
    unprotected = [Payment(end, linger=False, user_timeout=False) for end in ("timeout", "SIGKILL")]
    return [*real, *aborted, *unprotected]


def pay(payment: Payment) -> str:
    """Make the payment, and return the error it ends with."""
    report, order = payment.from_child, payment.to_child
    original, calls = sockets.AttemptSocket.send, list[int]()

    async def send(self: sockets.AttemptSocket, data: bytes) -> None:
        if not calls:  # connected, and nothing is written
            os.write(report, b"c")
            os.read(order, 1)
        calls.append(len(data))
        await original(self, data)
        if len(calls) == 2:  # the head and the body
            os.write(report, b"w")

    setattr(sockets.AttemptSocket, "send", send)  # noqa: B010  the checkers refuse an assignment
    if not payment.linger:
        setattr(sockets, "_ABORT", getattr(sockets, "_CLOSE"))  # noqa: B009, B010
    if not payment.user_timeout:
        delattr(socket, "TCP_USER_TIMEOUT")
    base_url = f"http://127.0.0.1:{payment.listener.getsockname()[1]}/v1"
    try:
        with momopay.Client("pk_test_late", base_url=base_url, timeout=TIMEOUT, budget=None) as client:
            client.payouts.initiate(**_ARGUMENTS)
    except momopay.MomoPayError as error:
        return type(error).__name__
    return "accepted"


def start(payment: Payment) -> None:
    """Fork the payer; it begins at the first byte on its pipe."""
    child_reads, payment.to_child = os.pipe()
    payment.from_child, child_writes = os.pipe()
    payment.process = os.fork()
    if payment.process == 0:
        payment.to_child, payment.from_child = child_reads, child_writes
        os.read(child_reads, 1)
        try:
            outcome = pay(payment)
        except BaseException as error:  # noqa: BLE001  the parent's to know
            outcome = repr(error)
        os.write(child_writes, outcome.encode())
        os._exit(0)
    os.close(child_reads)
    os.close(child_writes)


def serve(payment: Payment) -> None:
    """Take one connection, and notice whether anything arrives on it."""
    with suppress(OSError):
        payment.arrived = bool(payment.listener.accept()[0].recv(65_536))


def run() -> dict[str, dict[str, Any]]:
    """Make all payments, and return what became of each."""
    _ = momopay.Client(
        "pk_test_late", base_url="http://127.0.0.1:1/v1"
    ).payouts  # loaded before the children's time runs
    every = payments()
    for payment in every:
        payment.listener = socket.create_server(("127.0.0.1", 0))
        start(payment)
    for payment in every:
        threading.Thread(target=serve, args=(payment,), daemon=True).start()
    connected = write_while_the_link_is_down(every)
    # Their deadlines count from before. The kernel gives up for those that are frozen.
    time.sleep(max(0.0, connected + TIMEOUT + 0.3 - time.monotonic()))
    set_link(up=True)
    until = time.monotonic() + 8
    while not all(payment.arrived for payment in every if payment.is_control) and time.monotonic() < until:
        time.sleep(0.02)
    time.sleep(0.5)
    for payment in every:
        os.kill(payment.process, signal.SIGKILL)
        os.waitpid(payment.process, 0)
    return {payment.name: {"arrived": payment.arrived, "outcome": payment.outcome} for payment in every}


def write_while_the_link_is_down(every: list[Payment]) -> float:
    """Write every payment, until it has ended or its process is killed or frozen; return when all had connected."""
    for payment in every:
        os.write(payment.to_child, b"s")
    for payment in every:
        os.read(payment.from_child, 1)  # connected
    connected = time.monotonic()
    set_link(up=False)
    for payment in every:
        os.write(payment.to_child, b"w")
    for payment in every:
        payment.outcome = os.read(payment.from_child, 1).decode()  # written
        if payment.end != "timeout":
            os.kill(payment.process, getattr(signal, payment.end))
    for payment in every:
        if payment.end == "timeout":
            payment.outcome += os.read(payment.from_child, 100).decode()
    return connected


if __name__ == "__main__":
    obstacle = enter_namespace(keeps_rights=False)
    if obstacle is not None:
        sys.stderr.write(f"{obstacle}\n")
        sys.exit(NO_NAMESPACES)
    print(json.dumps(run(), indent=1))  # noqa: T201
