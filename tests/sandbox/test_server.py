"""The listening socket, and the connection of a request."""

import socket

import pytest

from momopay.sandbox import Sandbox
from momopay.sandbox._server import Server, listen


def test_it_listens_on_loopback_without_delay() -> None:
    with listen(0) as listener:
        assert listener.getsockname()[0] == "127.0.0.1"
        assert listener.proto == socket.IPPROTO_TCP


def test_an_impossible_port() -> None:
    with pytest.raises(OverflowError):
        listen(99_999_999)


def test_a_client_that_has_hung_up_has_no_connection(sandbox: Sandbox) -> None:
    server: Server = vars(sandbox)["_runner"].server
    assert server.transport_of({"client": ("127.0.0.1", 1)}) is None
