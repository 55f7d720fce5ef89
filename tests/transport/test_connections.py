"""Idle connections, and which connections may carry another request. Over both clients: their sockets differ."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import certifi
import httpx
import pytest

import momopay
import wire
from bodies import encoded, envelope
from core.kit import initiate_payout
from drivers import Drive, Driver, session_of
from forked import succeeds_in_child
from momopay._transport import connections
from momopay._transport.async_backend import AsyncSocket
from momopay._transport.connections import IdleStack
from momopay._transport.sync_backend import SyncSocket
from patience import until


class Idle(connections.Connection):
    """As much of a connection as the stack asks."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.expired = False

    def has_expired(self) -> bool:
        return self.expired


def stack_of(*connections: Any) -> IdleStack:
    stack: IdleStack = IdleStack()
    for each in connections:
        assert stack.push(each) == []
    return stack


def test_the_last_used_is_returned_first() -> None:
    old, new = Idle("old"), Idle("new")
    stack = stack_of(old, new)
    assert [stack.pop(), stack.pop(), stack.pop()] == [new, old, None]


def test_the_oldest_are_closed_as_soon_as_they_have_expired() -> None:
    first, second, third, fourth = Idle("first"), Idle("second"), Idle("third"), Idle("fourth")
    stack = stack_of(first, second, third)
    first.expired = second.expired = True
    assert (stack.push(fourth), stack.drain(), stack.pop()) == ([first, second], [third, fourth], None)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no fork")
def test_a_child_process_starts_without_connections() -> None:
    stack, own = stack_of(Idle("the parent's")), Idle("the child's")

    def in_child() -> None:
        assert stack.pop() is None
        stack.push(own)
        assert stack.pop() is own

    assert succeeds_in_child(in_child)
    assert stack.pop() is not None


def body_of(identity: str, status: str = "PENDING") -> bytes:
    request = wire.Request("POST", "/payments/stk", {}, b"", 0.0)
    return encoded(envelope({**wire.record_for(request), "transactionId": identity, "status": status}))


def read(driver: Driver, identity: str) -> Any:
    return driver(lambda client: client.transactions.get(identity))


def test_a_payment_has_a_connection_of_its_own_which_is_closed(drive: Drive) -> None:
    with wire.serve(wire.answers(200, body_of("t"))) as server:
        driver = drive(base_url=server.base_url)
        read(driver, "t")
        for payments in (1, 2):
            driver(initiate_payout)
            assert (server.connections, len(session_of(driver.client).backend._idle._idle)) == (1 + payments, 1)
        read(driver, "t")
        assert (len(server.requests), server.connections) == (4, 3)


FIRST = body_of("first")
STALE = wire.whole(200, body_of("stale", "SUCCESS"))
TWO_RESPONSES = wire.sends(lambda _: wire.whole(200, FIRST) + STALE)


def test_what_follows_a_response_is_not_taken_for_the_next_one(drive: Drive) -> None:
    """What counts as following, whatever the response, is drawn in test_network.py."""
    with wire.serve(TWO_RESPONSES, wire.answers(200, body_of("second"))) as server:
        driver = drive(base_url=server.base_url)
        assert (read(driver, "first").transaction_id, read(driver, "second").transaction_id) == ("first", "second")
        assert server.connections == 2


def test_without_the_check_a_stale_success_is_read(drive: Drive, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(_self: object) -> bool:
        return False

    monkeypatch.setattr(SyncSocket, "has_unread", nothing)
    monkeypatch.setattr(AsyncSocket, "has_unread", nothing)
    with wire.serve(TWO_RESPONSES, wire.answers(200, body_of("second"))) as server:
        driver = drive(base_url=server.base_url)
        read(driver, "first")
        second = read(driver, "second")
        assert (second.transaction_id, second.status) == ("stale", "SUCCESS")


@pytest.fixture
def long_keep_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """No connection is given up for its age while a test waits."""
    monkeypatch.setattr(connections, "KEEP_ALIVE", 60.0)


@pytest.mark.usefixtures("long_keep_alive")
def test_what_arrives_on_an_idle_connection_is_no_response(drive: Drive) -> None:
    accepted = list[socket.socket]()

    def play(exchange: wire.Exchange) -> bool:
        accepted.append(exchange.sock)
        exchange.sock.sendall(wire.whole(200, FIRST))
        return True

    with wire.serve(wire.Step(play), wire.answers(200, body_of("second"))) as server:
        driver = drive(base_url=server.base_url)
        read(driver, "first")
        (connection,) = session_of(driver.client).backend._idle._idle
        accepted[0].sendall(STALE)
        until(connection.has_expired, "the unasked response arrives")
        assert (read(driver, "second").transaction_id, server.connections) == ("second", 2)


@pytest.mark.usefixtures("long_keep_alive")
@pytest.mark.parametrize(
    "step",
    [
        wire.answers(200, body_of("t"), headers={"Connection": "close"}),
        wire.closes_after(wire.answers(200, body_of("t"))),
    ],
)
def test_a_connection_that_the_server_closes_is_not_used_again(drive: Drive, step: wire.Step) -> None:
    with wire.serve(step) as server:
        driver = drive(base_url=server.base_url)
        read(driver, "t")
        for connection in session_of(driver.client).backend._idle._idle:
            until(connection.has_expired, "the server's close arrives")
        read(driver, "t")
        assert (len(server.requests), server.connections) == (2, 2)


@pytest.fixture(autouse=True)
def _no_context(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
    connections.shared_tls_context.cache_clear()
    yield
    connections.shared_tls_context.cache_clear()


def test_unreadable_ca_certificates_are_named(drive: Drive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing, no_certificate = tmp_path / "missing", tmp_path / "broken.pem"
    no_certificate.write_text("-----BEGIN CERTIFICATE-----\nnot base64\n-----END CERTIFICATE-----\n")
    bad = [("SSL_CERT_FILE", path) for path in (missing, tmp_path, no_certificate)]
    with wire.serve(wire.succeeds()) as server:
        driver = drive(base_url=f"https://localhost:{server.port}/v1", max_attempts=1)
        for name, path in [*bad, ("SSL_CERT_DIR", missing), ("SSL_CERT_DIR", no_certificate)]:
            monkeypatch.setenv(name, str(path))
            with pytest.raises(momopay.ConfigurationError) as caught:
                driver(initiate_payout)
            assert name in str(caught.value)
            assert repr(str(path)) in str(caught.value)
            assert isinstance(caught.value.__cause__, OSError)
            assert not caught.value.may_have_executed
            monkeypatch.delenv(name)
        assert (server.connections, server.payments) == (0, 0)
        # Once it is corrected, the same client goes on: up to the server, which speaks no TLS.
        with pytest.raises(momopay.APIConnectionError):
            driver(initiate_payout)


def test_a_key_log_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", certifi.where())
    monkeypatch.setenv("SSLKEYLOGFILE", str(tmp_path))
    with pytest.raises(momopay.ConfigurationError, match=r"^SSLKEYLOGFILE names .* cannot be written"):
        connections.shared_tls_context()


def test_one_of_several_ca_folders_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_DIR", os.pathsep.join([str(tmp_path / "missing"), str(tmp_path)]))
    assert connections.shared_tls_context() is connections.shared_tls_context()
    connections.shared_tls_context.cache_clear()
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path / "missing"))
    monkeypatch.setenv("SSL_CERT_FILE", certifi.where())
    connections.shared_tls_context()  # a file goes before folders


@pytest.mark.skipif(httpx.__name__ == "httpx2", reason="httpx2 trusts the system's certificates, not certifi's")
def test_the_file_of_certifi_is_named_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("certifi.where", lambda: "/nowhere/cacert.pem")
    with pytest.raises(momopay.ConfigurationError, match="certifi"):
        connections.shared_tls_context()
