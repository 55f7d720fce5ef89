"""A TCP relay in front of a server on loopback, which counts how often a client waits for an answer."""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress


class Relay:
    """Passes bytes on, in both directions, for any number of connections."""

    def __init__(self, port: int, delay: float = 0.0) -> None:
        """`delay` is the time of a round trip, in seconds."""
        self._delay = delay / 2
        self._to = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.round_trips = 0
        """How often a client had sent something, and then got something. Bytes on the way do not make it more."""

    def serve(self) -> None:
        """Accept connections until the relay is closed."""
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._pass_on, args=(client,), daemon=True).start()

    def close(self) -> None:
        """Take no further connections. Those that there are end with their clients."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _pass_on(self, client: socket.socket) -> None:
        is_asked = False
        with suppress(OSError), client, socket.create_connection(self._to) as server:
            while True:
                for ready in select.select([client, server], [], [])[0]:
                    data = ready.recv(65536)
                    if not data:
                        return
                    time.sleep(self._delay)
                    while self._delay and select.select([ready], [], [], 0)[0] and (more := ready.recv(65536)):
                        data += more  # what was sent together arrives together
                    if ready is client:
                        is_asked = True
                        server.sendall(data)
                    else:
                        self.round_trips += is_asked
                        is_asked = False
                        client.sendall(data)


@contextmanager
def relaying(port: int, delay: float = 0.0) -> Generator[Relay]:
    """Run a relay in front of a port of this machine. `delay` is the time of a round trip, in seconds."""
    relay = Relay(port, delay)
    threading.Thread(target=relay.serve, daemon=True).start()
    try:
        yield relay
    finally:
        relay.close()
