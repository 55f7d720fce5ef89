"""Which rule allows what."""

import subprocess
import sys

import pytest

from momopay._core.retry import AT_MOST_ONCE, MAY_HAVE_EXECUTED, FailureKind, load_tenacity


def test_a_payment_is_repeated_only_where_it_surely_did_not_execute() -> None:
    assert not AT_MOST_ONCE.retries_on & MAY_HAVE_EXECUTED
    assert AT_MOST_ONCE.retries_on == {FailureKind.NOT_SENT, FailureKind.RATE_LIMITED}


INTERRUPTED = """
import signal, sys
import httpx
from momopay import Client, MomoPayError

class Ctrl_C:
    def find_spec(name, path, target=None):
        if name == "tenacity.asyncio":  # the last part of it
            sys.meta_path.remove(Ctrl_C)
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Ctrl_C)
def down(request):
    print("request")
    return httpx.Response(503)

client = Client("pk_test_x", base_url="http://127.0.0.1:1/v1", transport=httpx.MockTransport(down), max_attempts=2)
for _ in range(2):
    try:
        client.wallet.balance()
    except (KeyboardInterrupt, MomoPayError) as error:
        print(type(error).__name__)
"""


def test_a_signal_during_the_first_retry_does_not_break_the_next_ones() -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["request", "KeyboardInterrupt", "request", "request", "ServerError"]


def test_tenacity_is_loaded_before_the_first_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "tenacity", raising=False)
    load_tenacity()
    assert "tenacity" in sys.modules
