"""Web apps on real servers, on loopback."""

import socket
import threading
import time
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import uvicorn


@contextmanager
def asgi_served(app: Any, given: socket.socket | None = None, **options: Any) -> Generator[str]:
    """Serve FastAPI, Django under ASGI, or the sandbox's app; give the address."""
    with given or socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=5, **options))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            while not server.started:
                assert thread.is_alive()
                time.sleep(0.005)
            yield f"http://127.0.0.1:{listener.getsockname()[1]}" if listener.family == socket.AF_INET else ""
        finally:
            server.should_exit = True
            thread.join()


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the base class's name
        pass


@contextmanager
def server_runs(server: Any) -> Generator[str]:
    """Run a server of the standard library's kind, which listens already; give the address."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def wsgi_served(app: Any) -> AbstractContextManager[str]:
    """Serve Flask, or Django under WSGI; give the address."""
    return server_runs(make_server("127.0.0.1", 0, app, handler_class=_Quiet))
