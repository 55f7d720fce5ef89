"""`python -m momopay.sandbox`: the sandbox as a program, until Ctrl-C or SIGTERM."""

import argparse
import signal
import sys
import threading
from collections.abc import Sequence
from typing import Any

from momopay.sandbox import Sandbox
from momopay.sandbox._server import LOOPBACK

_TURN: float | None = 0.5 if sys.platform == "win32" else None  # seconds


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the sandbox until a signal and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m momopay.sandbox", description="The payments service, for tests.")
    add = parser.add_argument
    add("--port", type=int, default=8787, help="0 takes a free one (default: %(default)s)")
    add("--speed", type=float, default=1.0, help="virtual seconds per second (default: %(default)s)")
    add("--state", metavar="FILE", help="keep the state in this SQLite file")
    add("--profile", metavar="FILE", help="behave as `contract`, `met` or this file of `momopay probe` says")
    add("--host", metavar="ADDRESS", default=LOOPBACK, help="listen on this address (default: %(default)s, loopback)")
    names: Any = {"metavar": "NAME", "action": "append", "default": []}
    name_too = "answer under this name too, as other containers call it; repeatable"
    add("--allow-host", dest="allow_hosts", help=name_too, **names)
    call_too = "send callbacks to this host too, and not to loopback alone; repeatable"
    add("--callback-host", dest="callback_hosts", help=call_too, **names)
    options = vars(parser.parse_args(arguments))
    try:
        sandbox = Sandbox(**options).start()
    except (OSError, ValueError) as error:
        sys.stderr.write(f"momopay.sandbox: {error}\n")
        return 1
    # Not an exception, so that `close` runs as it does in a test and saves the state file.
    stop = threading.Event()
    for number in {signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGBREAK", signal.SIGINT)}:
        signal.signal(number, lambda _number, _frame: stop.set())
    time = f"time x{options['speed']:g}, state in {options['state'] or 'memory'}"
    sys.stdout.write(
        f"Service  {sandbox.base_url}  (any pk_test_ key; {time})\n"
        f"Phone    {sandbox.url}/\n"
        f"API      {sandbox.url}/docs\n"
    )
    # Programs that start the sandbox read its port from the first line, so they must not wait for a full buffer.
    sys.stdout.flush()
    while not stop.wait(_TURN):  # on Windows, a signal is noticed only between two waits
        pass
    sandbox.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
