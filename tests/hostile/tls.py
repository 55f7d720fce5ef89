"""A TLS server on a loopback socket that drips what it encrypts, byte by byte."""

import select
import socket
import ssl
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

import pytest
import trustme

import wire
from momopay._transport import connections


def own_certificate(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a certificate for localhost, and have the clients of this test trust it."""
    authority, trusted, pem = trustme.CA(), folder / "certificate", folder / "localhost.pem"
    authority.cert_pem.write_to_path(str(trusted))
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(str(pem))
    monkeypatch.setattr(connections, "_shared_tls_context", lambda: ssl.create_default_context(cafile=trusted))
    return pem


@contextmanager
def dripping(
    certificate: Path, step: wire.Step, *, encrypted: Literal["handshake", "records"] | None = None
) -> Generator[int]:
    """The port of a TLS server in front of a scripted one; what the script drips comes in records of a byte each.

    What is named in `encrypted` drips too, byte by byte as it is encrypted.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with wire.serve(step) as behind, socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        thread = threading.Thread(target=_relay, args=(listener, behind.port, context, encrypted))
        thread.start()
        yield port
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            pass  # wakes a relay that nobody called
        thread.join(wire.PATIENCE)
        assert not thread.is_alive()


def _relay(listener: socket.socket, port: int, context: ssl.SSLContext, encrypted: str | None) -> None:
    client, _ = listener.accept()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_side=True)

    def flush(*, drip: bool) -> None:
        data = outgoing.read()
        for piece in [data[at : at + 1] for at in range(len(data))] if drip else [data]:
            client.sendall(piece)
            if drip:
                time.sleep(wire.DRIP)

    with client, suppress(OSError, ssl.SSLError):
        client.settimeout(wire.PATIENCE)
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                flush(drip=encrypted == "handshake")
                incoming.write(_some(client))
        flush(drip=encrypted == "handshake")
        with socket.create_connection(("127.0.0.1", port)) as server:
            while True:
                with suppress(ssl.SSLWantReadError):
                    while request := tls.read(wire.MEBIBYTE):
                        server.sendall(request)
                ready, _, _ = select.select([client, server], [], [], wire.PATIENCE)
                if client in ready:
                    incoming.write(_some(client))
                if server in ready:
                    tls.write(_some(server))
                    flush(drip=encrypted == "records")


def _some(sock: socket.socket) -> bytes:
    data = sock.recv(65536)
    if not data:
        raise ConnectionError("one end went away")
    return data
