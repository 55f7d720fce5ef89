"""An HTTP proxy on loopback. It opens tunnels, forwards requests, or refuses."""

import select
import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import wire

OPENED = b"HTTP/1.1 200 Connection established\r\nVia: 1.1 proxy\r\n\r\n"


@dataclass
class Proxy:
    """A proxy that runs. `answer` is what it says to a CONNECT, None: nothing; anything but a 2xx opens no tunnel."""

    answer: bytes | None = OPENED
    heads: list[bytes] = field(default_factory=list[bytes])  # the head of each request that it read itself
    tunnelled: bytearray = field(default_factory=bytearray)  # what it passed on without being able to read it
    ends: list[str] = field(default_factory=list[str])
    url: str = ""

    def serve(self, listener: socket.socket) -> None:
        threads = list[threading.Thread]()
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                threads.append(threading.Thread(target=self._serve_one, args=(client,)))
                threads[-1].start()
        for thread in threads:
            thread.join(wire.PATIENCE)
            assert not thread.is_alive()

    def _serve_one(self, client: socket.socket) -> None:
        client.settimeout(wire.PATIENCE)
        with wire.noted_end(self.ends), client:
            self._converse(client)

    def _converse(self, client: socket.socket) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            data = client.recv(65_536)
            if not data:
                return
            head += data
        head, _, rest = head.partition(b"\r\n\r\n")
        self.heads.append(head)
        method, target, version = head.partition(b"\r\n")[0].split(b" ")
        if method == b"CONNECT":
            if self.answer is not None:
                client.sendall(self.answer)
            if self.answer != OPENED:
                _wait_for_end(client)
                return
            host, _, port = target.decode().rpartition(":")
            self._relay(client, (host, int(port)), rest)
            return
        url = urlsplit(target.decode())
        headers = [line for line in head.split(b"\r\n")[1:] if not line.lower().startswith(b"proxy-")]
        path = url.path + (f"?{url.query}" if url.query else "")
        first = b" ".join([method, path.encode(), version])
        self._relay(client, (url.hostname or "", url.port or 80), b"\r\n".join([first, *headers, b"", rest]))

    def _relay(self, client: socket.socket, address: tuple[str, int], first: bytes) -> None:
        with socket.create_connection(address, timeout=wire.PATIENCE) as server:
            server.sendall(first)
            while True:
                ready = select.select([client, server], [], [], wire.PATIENCE)[0]
                for source, target in ((client, server), (server, client)):
                    if source not in ready:
                        continue
                    data = source.recv(65_536)
                    if not data:
                        return
                    self.tunnelled += data
                    target.sendall(data)


def _wait_for_end(client: socket.socket) -> None:
    while client.recv(65_536):
        pass


@contextmanager
def proxying(answer: bytes | None = OPENED) -> Generator[Proxy]:
    proxy = Proxy(answer=answer)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        proxy.url = f"http://localhost:{listener.getsockname()[1]}"
        thread = threading.Thread(target=proxy.serve, args=(listener,))
        thread.start()
        try:
            yield proxy
        finally:
            with suppress(OSError):  # Windows shuts down no listener, and ends the wait once it is closed
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
            thread.join(wire.PATIENCE)
            assert not thread.is_alive()
