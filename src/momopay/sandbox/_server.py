"""One uvicorn server on a loopback socket of its own, and the way from a request to its connection."""

import asyncio
import socket
from collections.abc import Callable

import uvicorn
from starlette.types import ASGIApp, Scope

LOOPBACK = "127.0.0.1"


def listen(port: int) -> socket.socket:
    """A listening socket on loopback; port 0 takes a free one.

    Raises:
        OSError: The port is taken.
        OverflowError: No port has that number.
    """
    # Only where the protocol is named does asyncio switch Nagle's delay off.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((LOOPBACK, port))
        listener.listen(512)
        listener.setblocking(False)
    except OverflowError:
        listener.close()
        raise
    except OSError as error:
        listener.close()
        raise OSError(error.errno, f"{error.strerror} ({LOOPBACK}:{port})") from error
    return listener


class Server(uvicorn.Server):
    """uvicorn, which says when it is ready and leaves signals to whoever runs it."""

    def __init__(self, app: ASGIApp, listener: socket.socket, ready: Callable[[], None]) -> None:
        """`ready` is called once connections are accepted."""
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            timeout_graceful_shutdown=2,
            date_header=True,
            server_header=False,
        )
        super().__init__(config)
        self._listener = listener
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then say so."""
        await super().startup(sockets)
        self._ready()

    async def run_until_told(self) -> None:
        """Serve until `should_exit`."""
        await self._serve([self._listener])

    def transport_of(self, scope: Scope) -> asyncio.Transport | None:
        """The connection that a request came in on, or None when the client has hung up since."""
        for protocol in self.server_state.connections:
            transport: asyncio.Transport | None = getattr(protocol, "transport", None)
            if transport is not None and transport.get_extra_info("peername") == scope["client"]:
                return transport
        return None
