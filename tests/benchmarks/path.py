"""Count what a durable call passes through: files, calls and depth in this package, warm, with a blocking client.

It counts the SQL statements, too, BEGIN and COMMIT among them.

python tests/benchmarks/path.py            the counts for both calls, for a callback, and for a sweep over five payments
python tests/benchmarks/path.py --calls    every call, indented by its depth
"""

import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from sqlalchemy import Engine, event

import momopay
from momopay import CallbackSigner, Client, Payment
from momopay.sandbox import Sandbox

PACKAGE = str(Path(momopay.__file__).parent)


def trace(work: Callable[[], object]) -> list[tuple[int, str, str]]:
    """Do the work and return each call of this package: depth, file, name. A resumed coroutine counts once."""
    calls: list[tuple[int, str, str]] = []
    seen: set[int] = set()
    frames: list[FrameType] = []  # kept, so that no id comes twice
    depth = 0

    def profile(frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal depth
        code = frame.f_code
        if not code.co_filename.startswith(PACKAGE):
            return
        if event == "call":
            depth += 1
            if id(frame) not in seen:
                seen.add(id(frame))
                frames.append(frame)
                calls.append((depth, code.co_filename.removeprefix(PACKAGE + "/"), code.co_qualname))
        elif event == "return":
            depth -= 1

    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


def handle(_payment: Payment) -> None:
    """Do nothing, so that only what the package does is counted."""


def figures(client: Client, sandbox: Sandbox) -> Iterator[tuple[str, Callable[[], object]]]:
    for name, once in (("pay_once", client.payouts.pay_once), ("collect_once", client.stk.collect_once)):
        for number in range(3):
            once(reference=f"{name}-{number}", amount=10, phone="0712345678")
        yield name, partial(once, reference=name, amount=10, phone="0712345678")
    signer = CallbackSigner("a secret that nobody guesses")
    for number in range(3):  # the last one is counted
        reference = f"paid-{number}"
        url = signer.url("https://shop.example/momo", reference=reference)
        client.stk.collect_once(reference=reference, amount=10, phone="0712345678", callback_url=url)
        sandbox.advance(60)
        body = json.dumps(sandbox.callbacks[-1].payload).encode()
        work = partial(client.transactions.receive, url, body, handle, signer=signer)
        if number < 2:
            work()
        else:
            yield "receive", work
    for each in range(2):
        client.transactions.sweep(handler=handle)
        for number in range(5):
            client.stk.collect_once(reference=f"swept-{each}-{number}", amount=10, phone="0712345678")
        sandbox.advance(60)
    yield "sweep of 5", partial(client.transactions.sweep, handler=handle)


def main() -> None:
    statements = list[str]()

    def note(_connection: object, _cursor: object, text: str, *_rest: object) -> None:
        statements.append(text)

    event.listen(Engine, "before_cursor_execute", note)
    with (
        Sandbox() as sandbox,
        tempfile.TemporaryDirectory() as folder,
        Client(
            "pk_test_path", base_url=sandbox.base_url, journal=f"sqlite:///{folder}/payments.db", budget=None
        ) as client,
    ):
        sandbox.account("pk_test_path").rate_limit = None
        for name, work in figures(client, sandbox):
            statements.clear()
            calls = trace(work)
            files, depth = {file for _, file, _ in calls}, max(depth for depth, _, _ in calls)
            lines = [f"{name}: {len(files)} files, {len(calls)} calls, {depth} levels, {len(statements)} statements"]
            if "--calls" in sys.argv:
                lines += [f"{'  ' * depth}{file}: {call}" for depth, file, call in calls]
            sys.stdout.write("\n".join([*lines, ""]))


if __name__ == "__main__":
    main()
