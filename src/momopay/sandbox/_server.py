"""One uvicorn server on a socket of its own, and the connection that a request came in on."""

import asyncio
import errno
import socket
from collections.abc import Callable

import uvicorn
from starlette.types import ASGIApp, Scope

LOOPBACK = "127.0.0.1"
ANY_ADDRESS = "0.0.0.0"  # noqa: S104 - for containers, on request only


def listen(port: int, host: str = LOOPBACK) -> socket.socket:
    """Return a listening socket; port 0 takes a free one.

    Raises:
        OSError: The port is taken, or the host is no IPv4 address of this machine.
        OverflowError: No port has that number.
    """
    # asyncio switches Nagle's delay off only where the protocol is named.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(512)
        listener.setblocking(False)
    except OverflowError:
        listener.close()
        raise
    except TypeError as error:
        listener.close()
        raise OSError(errno.EINVAL, f"No host has such a name ({host!r})") from error
    except OSError as error:
        listener.close()
        raise OSError(error.errno, f"{error.strerror} ({host}:{port})") from error
    return listener


class Server(uvicorn.Server):
    """uvicorn, which reports when it is ready. On another thread than the main one it leaves signals alone."""

    def __init__(self, app: ASGIApp, listener: socket.socket, ready: Callable[[], None]) -> None:
        """`ready` is called once connections are accepted."""
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            # Real seconds. Faults are aborted at once; this is for requests that are being answered.
            timeout_graceful_shutdown=2,
            # `FaultMiddleware` dates responses by the virtual clock.
            date_header=False,
            server_header=False,
        )
        super().__init__(config)
        self._listener = listener
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then report it."""
        await super().startup(sockets)
        self._ready()

    async def serve_listener(self) -> None:
        """Serve until `should_exit` is set."""
        await self.serve([self._listener])

    def transport_of(self, scope: Scope) -> asyncio.Transport | None:
        """Return the connection that a request came in on, or None when the client has hung up since."""
        # ASGI does not give the transport; the client's address and port name it among the open connections.
        for protocol in self.server_state.connections:
            transport: asyncio.Transport | None = getattr(protocol, "transport", None)
            if transport is not None and transport.get_extra_info("peername") == scope["client"]:
                return transport
        return None
