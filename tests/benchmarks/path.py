"""Count what a durable call passes through: files, calls and depth in this package, warm, with a blocking client.

python tests/benchmarks/path.py            the counts for both calls
python tests/benchmarks/path.py --calls    every call, indented by its depth
"""

import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import momopay
from momopay import Client
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


def main() -> None:
    with (
        Sandbox() as sandbox,
        tempfile.TemporaryDirectory() as folder,
        Client("pk_test_path", base_url=sandbox.base_url, journal=f"sqlite:///{folder}/payments.db") as client,
    ):
        for name, once in (("pay_once", client.payouts.pay_once), ("collect_once", client.stk.collect_once)):
            for number in range(3):
                once(reference=f"{name}-{number}", amount=10, phone="0712345678")
            calls = trace(partial(once, reference=name, amount=10, phone="0712345678"))
            files = {file for _, file, _ in calls}
            lines = [f"{name}: {len(files)} files, {len(calls)} calls, {max(d for d, _, _ in calls)} levels"]
            if "--calls" in sys.argv:
                lines += [f"{'  ' * depth}{file}: {call}" for depth, file, call in calls]
            sys.stdout.write("\n".join([*lines, ""]))


if __name__ == "__main__":
    main()
