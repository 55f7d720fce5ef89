"""A complete first payment: prompt, callback (webhook), confirmation, wait, a second call that sends nothing, refund.

Without settings it runs against the embedded sandbox and ends within seconds. With MOMOPAY_API_KEY and
MOMOPAY_BASE_URL it uses the real service, after it has asked: then real money moves.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Empty, Queue
from urllib.parse import urlsplit

from momopay import (
    Callback,
    Client,
    InvalidCallbackError,
    PollSchedule,
    WaitTimeoutError,
    normalise_phone,
    parse_callback,
    settled,
)

ORDER = "INV-42"


def main() -> None:
    """Run on the real service if its settings are present, else on the sandbox."""
    if os.environ.get("MOMOPAY_API_KEY") and os.environ.get("MOMOPAY_BASE_URL"):
        on_the_real_service()
    else:
        on_the_sandbox()


def on_the_sandbox() -> None:
    """Start a sandbox whose clock runs twenty times as fast as ours."""
    from momopay.sandbox import Sandbox

    with Sandbox(speed=20) as sandbox, callbacks() as (callback_url, inbox), tempfile.TemporaryDirectory() as folder:
        print(f"The sandbox is at {sandbox.base_url}")
        journal = f"sqlite:///{folder}/payments.db"
        with Client("pk_test_quickstart", base_url=sandbox.base_url, journal=journal) as client:
            soon = PollSchedule(first=0.5, every=0.5, limit=60)
            collect(client, "0712 345 678", callback_url, inbox, soon)
            collect(client, "0712 345 678", callback_url, inbox, soon)  # sends nothing: the order is paid
            pay_back(client, soon)
            say("Wallet", f"KES {client.wallet.balance().available_balance} left for fees")


def on_the_real_service() -> None:
    """Ask before any money moves. Callbacks need a public address, so this polls instead."""
    address = os.environ["MOMOPAY_BASE_URL"]
    kind = "test" if urlsplit(address).hostname in {"127.0.0.1", "::1", "localhost"} else "real"
    print(f"This will move {kind} money at {address}: KES 10 from your phone.")
    phone = ask_for_a_phone()
    with Client(journal="sqlite:///quickstart.db") as client:
        collect(client, phone, None, Queue(), PollSchedule())
        if ask("Pay the KES 10 back to the same phone? Type yes: ") == "yes":
            pay_back(client, PollSchedule())


def ask_for_a_phone() -> str:
    """Return a phone number, or exit if the answer is empty."""
    while answer := ask("Your phone number, or nothing to stop: "):
        try:
            return normalise_phone(answer)
        except ValueError as problem:
            print(f"The number {problem}.")
    sys.exit("Stopped; nothing was sent.")


def ask(question: str) -> str:
    """Return the answer to a question, or nothing at the end of the input."""
    try:
        return input(question).strip()
    except EOFError:
        print()
        return ""


def collect(
    client: Client, phone: str, callback_url: str | None, inbox: Queue[Callback], schedule: PollSchedule
) -> None:
    """Collect the order once: send a prompt, receive the callback, confirm it, and wait for the result."""
    order = client.stk.collect_once(
        reference=ORDER, amount=10, phone=phone, transaction_desc="Order 42", callback_url=callback_url
    )
    if order.is_new:
        say("Prompt", f"KES {order.amount}, {order.status}, fee KES {order.fee}")
    else:
        say("Again", f"no second prompt; {order.reference} is {order.status}")
    if order.is_new and callback_url is not None:
        try:
            callback = inbox.get(timeout=30)
        except Empty:
            say("Callback", "none arrived; polling follows")
        else:
            say("Callback", f"{callback.event_type}, receipt {callback.transaction.receipt}")
            confirmed = client.transactions.confirm(callback)
            say("Confirmed", f"the service's own record says {confirmed.status}")
    try:
        paid = client.transactions.wait(order, schedule=schedule)
    except WaitTimeoutError as late:
        sys.exit(f"No result yet: {late}")
    if order.is_new or paid.status != "SUCCESS":
        say("Paid" if paid.status == "SUCCESS" else "Not paid", f"{paid.status} {paid.result_desc or ''}")
    if paid.status != "SUCCESS":
        sys.exit("Run it again to try again.")


def pay_back(client: Client, schedule: PollSchedule) -> None:
    """Refund the order once, and wait until the payout is settled."""
    refund = client.payouts.refund(of=ORDER)
    say("Refund", f"KES {refund.amount} as {refund.reference}, {refund.status}")
    ended = client.transactions.wait(refund, until=settled, schedule=schedule)
    say("Settled", str(ended.status))


def say(step: str, text: str) -> None:
    """Print one step."""
    print(f"{step:>10}  {text}")


@contextmanager
def callbacks() -> Generator[tuple[str, Queue[Callback]]]:
    """Receive callbacks on a local port: 200 for a callback, 400 for anything else."""
    inbox: Queue[Callback] = Queue()

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            try:
                callback = parse_callback(body)
            except InvalidCallbackError:
                self.send_response(400)
            else:
                self.send_response(200)
                status = callback.status
                if status is not None and status.is_terminal:  # some services also report that the PIN was entered
                    inbox.put(callback)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002  the name in the base class

    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/momo", inbox
        finally:
            server.shutdown()
            thread.join()


if __name__ == "__main__":
    main()
