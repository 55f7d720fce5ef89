"""`python -m momopay.sandbox`."""

import signal
import socket
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import momopay.sandbox
from momopay.sandbox.__main__ import main, stop_on_signals
from sandbox.kit import Receiver, Service, client, refusal, resolve_here, transaction_id

SOURCE = Path(momopay.sandbox.__file__).parents[2]


@pytest.fixture(autouse=True)
def _restored_signals() -> Iterator[None]:
    """Leave the handlers of this process as they were: other tests interrupt it."""
    handlers = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    yield
    for each, handler in handlers.items():
        signal.signal(each, handler)


def stopped() -> threading.Event:
    stop = threading.Event()
    stop.set()
    return stop


def test_it_says_where_it_is_and_how_fast_time_runs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    arguments = ["--port", "0", "--speed", "10", "--state", str(tmp_path / "state.db")]
    assert main(arguments, stop=stopped()) == 0
    out = capsys.readouterr().out
    assert "/v1" in out
    assert "x10, state in" in out


@pytest.mark.parametrize(
    "arguments", [["--port", "0", "--speed", "-1"], ["--port", "99999999"], ["--port", "0", "--host", "\u200b"]]
)
def test_impossible_options_are_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments, stop=stopped()) == 1
    assert capsys.readouterr().err.startswith("momopay.sandbox: ")


def test_a_taken_port_is_named(capsys: pytest.CaptureFixture[str], still_sandbox: momopay.sandbox.Sandbox) -> None:
    port = still_sandbox.url.rpartition(":")[2]
    assert main(["--port", port]) == 1
    assert f"(127.0.0.1:{port})" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_both_signals_stop_it(number: signal.Signals) -> None:
    stop = stop_on_signals()
    assert not stop.is_set()
    signal.raise_signal(number)
    assert stop.is_set()


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


def test_by_default_it_listens_on_loopback_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with running(["--port", "0"], capsys) as url:
        port = int(url.rpartition(":")[2].removesuffix("/v1"))
        # Every address of 127.0.0.0/8 is this machine's own, but the sandbox is bound to one of them.
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.2", port), timeout=5).close()


def test_an_address_of_another_machine_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--port", "0", "--host", "192.0.2.1"], stop=stopped()) == 1
    assert "(192.0.2.1:0)" in capsys.readouterr().err


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
