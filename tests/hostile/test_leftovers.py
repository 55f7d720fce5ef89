"""A TLS record that follows a response is not taken for the next response.

What follows within a record, or without TLS, is tested in tests/transport.
"""

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import wire
from drivers import Drive, Driver
from hostile.endpoints import TRANSACTION
from hostile.tls import own_certificate
from momopay._transport.sockets import AttemptSocket


def record(identity: str, status: str = "PENDING") -> bytes:
    return wire.whole(200, wire.envelope({**TRANSACTION, "transactionId": identity, "status": status}))


@pytest.fixture
def port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A TLS server that sends two responses to the first request, each in its own record, and all in one write.

    A test asks for it before its client: the client is closed first, and the server waits for that.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own_certificate(tmp_path, monkeypatch))
    answers = [[record("first"), record("stale", "SUCCESS")], [record("second")]]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener, context, answers))
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(wire.PATIENCE)


def serve(listener: socket.socket, context: ssl.SSLContext, answers: list[list[bytes]]) -> None:
    """Answer requests, each by several records, on as many connections as the client opens."""
    with suppress(OSError):  # the test is over
        while answers:
            plain = listener.accept()[0]
            plain.settimeout(wire.PATIENCE)
            with suppress(OSError), context.wrap_socket(plain, server_side=True) as sock:
                while answers and sock.recv(65_536):
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
                    for answer in answers.pop(0):
                        sock.sendall(answer)  # one record each
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 0)
                sock.recv(1)  # until the client closes it


def read_two(driver: Driver) -> list[tuple[str, str]]:
    first = driver(lambda client: client.transactions.get("first"))
    second = driver(lambda client: client.transactions.get("second"))
    return [(each.transaction_id, each.status) for each in (first, second)]


def test_a_record_that_follows_a_response_is_not_the_next_response(port: int, drive: Drive) -> None:
    driver = drive(base_url=f"https://localhost:{port}/v1", max_attempts=1)
    assert read_two(driver) == [("first", "PENDING"), ("second", "PENDING")]


def test_without_the_check_a_stale_success_is_read(port: int, drive: Drive, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second record is still in the socket, where a poll finds it before the connection is used again."""

    def nothing(_self: object) -> bool:
        return False

    monkeypatch.setattr(AttemptSocket, "is_readable", nothing)
    driver = drive(base_url=f"https://localhost:{port}/v1", max_attempts=1)
    assert read_two(driver) == [("first", "PENDING"), ("stale", "SUCCESS")]
