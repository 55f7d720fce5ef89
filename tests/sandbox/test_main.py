"""`python -m momopay.sandbox`; what it prints and how signals end it, tests/cli/test_development.py tests."""

import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

import momopay.sandbox
from momopay.sandbox.__main__ import main
from sandbox.kit import Receiver, Service, client, refusal, resolve_here, transaction_id

SOURCE = Path(momopay.sandbox.__file__).parents[2]


@pytest.mark.parametrize(
    "arguments", [["--port", "0", "--speed", "-1"], ["--port", "99999999"], ["--port", "0", "--host", "\u200b"]]
)
def test_impossible_options_are_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments, stop=threading.Event()) == 1
    assert capsys.readouterr().err.startswith("momopay.sandbox: ")


def test_as_a_service_it_answers_under_the_names_that_were_given_and_posts_to_them(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, receiver: Receiver
) -> None:
    resolve_here(monkeypatch, "sandbox", "other", "app")
    names = ["--allow-host", "sandbox", "--callback-host", "app"]
    with running(["--port", "0", "--host", "0.0.0.0", *names], capsys) as url, client(url) as api:
        port = api.base_url.port
        callback = receiver.url.replace("127.0.0.1", "app")
        sent = Service(api).stk(callbackUrl=callback)
        named = f"http://sandbox:{port}"
        with client(f"{named}/v1") as other:
            assert other.get(f"/transactions/{transaction_id(sent)}").status_code == 200
            advanced = other.post(f"{named}/sandbox/advance", json={"seconds": 40})
        assert advanced.status_code == 200
        assert [body["event_type"] for body in receiver.bodies] == ["transaction.success"]
        with client(f"http://other:{port}/v1") as stranger:
            for path in ("/v1/transactions", "/sandbox/state", "/", "/docs", "/openapi.json"):
                assert refusal(stranger.get(f"http://other:{port}{path}")) == (403, "FORBIDDEN")
        elsewhere = Service(api).stk(callbackUrl=receiver.url.replace("127.0.0.1", "other"))
        assert refusal(elsewhere) == (400, "VALIDATION_ERROR")


@contextmanager
def running(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> Generator[str]:
    """Run the program on a thread for as long as the context lasts; yield the service's base address."""
    stop = threading.Event()
    thread = threading.Thread(target=main, args=(arguments,), kwargs={"stop": stop})
    thread.start()
    out = ""
    try:
        while "\nAPI " not in out:
            assert thread.is_alive()
            out += capsys.readouterr().out
            time.sleep(0.01)
        yield out.split()[1]
    finally:
        stop.set()
        thread.join()
