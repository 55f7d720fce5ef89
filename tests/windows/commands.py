"""The command line on Windows: a pipe that nobody reads, and time zones."""

import os
import subprocess
import sys

from momopay.sandbox import Sandbox

MOMOPAY = [sys.executable, "-c", "import sys; from momopay.cli import main; sys.exit(main())"]


def run(*arguments: str, is_read: bool, **settings: str) -> tuple[int, str]:
    """Run a command, and read what it prints or hang up before it begins; return its status and its errors."""
    reading, writing = os.pipe()
    process = subprocess.Popen(
        [*MOMOPAY, *arguments],
        env=os.environ | settings,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL if is_read else writing,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(reading)
    os.close(writing)
    _, errors = process.communicate()
    return process.returncode, errors


def main() -> None:
    with Sandbox() as sandbox:
        account = {"MOMOPAY_API_KEY": "pk_test_windows", "MOMOPAY_BASE_URL": sandbox.base_url}
        ended = run("balance", is_read=False, **account)
        assert ended == (130, ""), ended
        print("a pipe that nobody reads ends a command without a word")
        ended = run("transactions", "list", "--timezone", "Africa/Nairobi", is_read=True, **account)
        assert ended == (0, ""), ended
        print("Africa/Nairobi is a zone")


main()
