"""A scripted HTTP/1.1 server on a loopback socket, which counts what reached it and what it executed."""

import select
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, Self

from bodies import encoded, envelope, refusal
from models.kit import BALANCE, PAYBILL, PAYOUT, STK

TRANSACTION_ID: Final = "7b0e1c52-2f0d-4f57-9b1a-3d8f2a6c4e11"
MEBIBYTE: Final = 1024 * 1024
DRIP: Final = 0.02  # seconds between two bytes of a slow answer
PATIENCE: Final = 10.0  # seconds after which the server gives a connection up, so that a test always ends

_TENANT = {"tenantId": "0c9f8a34-5a37-4f5e-8a37-0f1a2b3c4d5e"}
_OWN = {"transactionId": TRANSACTION_ID, **_TENANT, "channelId": None, "amount": 100}
_STK: Mapping[str, Any] = {**STK.camel, **_OWN}
_PAYOUT: Mapping[str, Any] = {**PAYOUT.camel, **_OWN, "reference": "INV-42"}
_BALANCE: Mapping[str, Any] = {**BALANCE.camel, **_TENANT}
_CHANNEL: Mapping[str, Any] = {**PAYBILL.camel, "id": "2d9a4a0e-8f0c-4a7f-9a43-1b7f5c3d2e10", **_TENANT}


@dataclass(frozen=True)
class Request:
    """One request that reached the socket, and when (monotonic seconds)."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    at: float


def record_for(request: Request) -> Mapping[str, Any]:
    if request.method == "DELETE":
        return {}
    for ending, record in (("/payments/stk", _STK), ("/payouts", _PAYOUT), ("/topups", _STK), ("/balance", _BALANCE)):
        if request.path.endswith(ending):
            return record
    return _CHANNEL


@dataclass(frozen=True)
class Exchange:
    """A request, the socket to answer it on, and the event that ends the server."""

    sock: socket.socket
    request: Request
    stopping: threading.Event

    def reset(self) -> bool:
        """Close with RST instead of FIN."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return False

    def drip(self, data: bytes) -> bool:
        for byte in data:
            self.sock.sendall(bytes([byte]))
            if self.stopping.wait(DRIP):
                break
        return False

    def hang(self) -> bool:
        self.stopping.wait(PATIENCE)
        return False


@dataclass(frozen=True)
class Step:
    """How one request is answered; `play` is True where the connection stays open."""

    play: Callable[[Exchange], bool]
    commits: bool = False
    reads: bool = True


def head(status: int, headers: Mapping[str, str] | None = None) -> bytes:
    fields = {"Content-Type": "application/json", **(headers or {})}
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def whole(status: int, body: bytes, headers: Mapping[str, str] | None = None) -> bytes:
    length = {} if status == HTTPStatus.NO_CONTENT else {"Content-Length": str(len(body))}
    return head(status, {**length, **(headers or {})}) + body


def normal(exchange: Exchange) -> bytes:
    return encoded(envelope(record_for(exchange.request)))


def sends(make: Callable[[Exchange], bytes], *, stays_open: bool = True, commits: bool = True) -> Step:
    """Send what is made for the request, at once."""

    def play(exchange: Exchange) -> bool:
        exchange.sock.sendall(make(exchange))
        return stays_open

    return Step(play, commits=commits)


def answers(status: int, body: bytes = b"", *, headers: Mapping[str, str] | None = None, commits: bool = False) -> Step:
    return sends(lambda _: whole(status, body, headers), commits=commits)


def succeeds(status: int = 200) -> Step:
    return sends(lambda exchange: whole(status, normal(exchange)))


def refuses(status: int, code: str, headers: Mapping[str, str] | None = None) -> Step:
    return answers(status, encoded(refusal(code)), headers=headers)


def html(status: int) -> Step:
    return answers(status, b"<html><body>Bad gateway</body></html>", headers={"Content-Type": "text/html"})


def resets_before_reading() -> Step:
    return Step(Exchange.reset, reads=False)


def resets(*, commits: bool = False) -> Step:
    return Step(Exchange.reset, commits=commits)


def closes(*, commits: bool = False) -> Step:
    return Step(lambda _: False, commits=commits)


def hangs(*, commits: bool = True) -> Step:
    return Step(Exchange.hang, commits=commits)


def ignores() -> Step:
    """No answer, and the connection stays open for what comes next."""
    return Step(lambda _: True, commits=True)


def half_answer() -> Step:
    """The connection ends in the middle of the headers."""
    return sends(lambda _: head(200, {"Content-Length": "40"})[:-12], stays_open=False)


def truncated(*, with_length: bool = True, end: Callable[[Exchange], bool] = lambda _: False) -> Step:
    """Half a body, which shows the transaction's id, and then `end`."""

    def play(exchange: Exchange) -> bool:
        body = normal(exchange)
        headers = {"Content-Length": str(len(body))} if with_length else {"Connection": "close"}
        exchange.sock.sendall(head(200, headers) + body[: len(body) // 2])
        return end(exchange)

    return Step(play, commits=True)


def drips_headers() -> Step:
    return Step(lambda exchange: exchange.drip(whole(200, normal(exchange), {"X-Slow": "x" * 4000})), commits=True)


def drips_body(*, chunked: bool = False) -> Step:
    def play(exchange: Exchange) -> bool:
        body = normal(exchange) + b" " * 4000
        if chunked:
            exchange.sock.sendall(head(200, {"Transfer-Encoding": "chunked"}) + f"{len(body):x}\r\n".encode())
        else:
            exchange.sock.sendall(head(200, {"Content-Length": str(len(body))}))
        return exchange.drip(body)

    return Step(play, commits=True)


def interim_for_ever() -> Step:
    """100 Continue, again and again."""

    def play(exchange: Exchange) -> bool:
        while not exchange.stopping.wait(DRIP):
            exchange.sock.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        return False

    return Step(play, commits=True)


def closes_after(step: Step, delay: float = 0.0) -> Step:
    """Answer and close the connection, without having said so in the answer."""

    def play(exchange: Exchange) -> bool:
        step.play(exchange)
        exchange.stopping.wait(delay)
        return False

    return Step(play, commits=step.commits)


def first(act: Callable[[], object], step: Step) -> Step:
    def play(exchange: Exchange) -> bool:
        act()
        return step.play(exchange)

    return Step(play, commits=step.commits)


@contextmanager
def noted_end(ends: list[str]) -> Generator[None]:
    """Note how a connection ends: "closed" by either side, "reset" by the other one, or by an error."""
    try:
        yield
        ends.append("closed")
    except ConnectionResetError:
        ends.append("reset")
    except OSError as error:
        ends.append(repr(error))


@dataclass
class Server:
    """Answers each request by the next step of its script; the last step serves for ever."""

    script: tuple[Step, ...]
    certificate: Path | None = None
    """Of its TLS, for localhost."""
    requests: list[Request] = field(default_factory=list[Request])
    payments: int = 0
    connections: int = 0
    received: bytearray = field(default_factory=bytearray)  # whole requests and pieces
    ends: list[str] = field(default_factory=list[str])  # how each connection ended

    def __post_init__(self) -> None:
        self._listener = socket.socket()
        self._listener.bind(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.base_url = f"http://127.0.0.1:{self.port}/v1"
        self._tls: ssl.SSLContext | None = None
        if self.certificate is not None:
            self.base_url = f"https://localhost:{self.port}/v1"
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._tls.load_cert_chain(self.certificate)
        self._wake, self._waker = socket.socketpair()
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._keys: set[str] = set()
        self._threads: list[threading.Thread] = []

    def listen(self) -> None:
        """Until then, connections are refused."""
        self._listener.listen(64)
        self._spawn(self._accept)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._waker.send(b"x")
        while self._threads:
            thread = self._threads.pop()
            thread.join(PATIENCE)
            if thread.is_alive():
                raise RuntimeError("the scripted server did not end")
        for sock in (self._listener, self._wake, self._waker):
            sock.close()

    def _spawn(self, target: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments)
        thread.start()
        self._threads.append(thread)  # only then, because whoever finds it there joins it

    def _readable(self, sock: socket.socket) -> bool:
        ready, _, _ = select.select([sock, self._wake], [], [])
        return self._wake not in ready

    def _accept(self) -> None:
        while self._readable(self._listener):
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._spawn(self._converse, sock)

    def _converse(self, sock: socket.socket) -> None:
        sock.settimeout(PATIENCE)
        with (
            noted_end(self.ends),
            sock if self._tls is None else self._tls.wrap_socket(sock, server_side=True) as stream,
        ):
            self._answer_all(stream)

    def _answer_all(self, sock: socket.socket) -> None:
        while self._readable(sock):
            opening = socket.socket.recv(sock, MEBIBYTE, socket.MSG_PEEK)  # as the system has it, beneath TLS
            if not opening:
                return
            if self._tls is None and not opening[:1].isalpha():  # something else than HTTP
                sock.sendall(whole(400, b"", {"Connection": "close"}))
                return
            if not self._answer(sock, opening):
                return

    def _answer(self, sock: socket.socket, opening: bytes) -> bool:
        with self._lock:
            step = self.script[min(len(self.requests), len(self.script) - 1)]
            if not step.reads:
                self.requests.append(_parse(opening, b""))
        if not step.reads:
            return step.play(Exchange(sock, self.requests[-1], self._stopping))
        request = self._read(sock)
        with self._lock:
            self.requests.append(request)
            if step.commits:
                self._commit(request)
        return step.play(Exchange(sock, request, self._stopping))

    def _read(self, sock: socket.socket) -> Request:
        received = b""
        while b"\r\n\r\n" not in received:
            received += self._some(sock)
        opening, _, body = received.partition(b"\r\n\r\n")
        request = _parse(opening, b"")
        while len(body) < int(request.headers.get("content-length", "0")):
            body += self._some(sock)
        return _parse(opening, body)

    def _some(self, sock: socket.socket) -> bytes:
        data = sock.recv(65536)
        if not data:
            raise ConnectionError("the client went away in the middle of its request")
        self.received += data
        return data

    def _commit(self, request: Request) -> None:
        key = request.headers.get("idempotency-key")
        if request.method == "POST" and (key is None or key not in self._keys):
            self.payments += 1
            self._keys.update(() if key is None else (key,))


def _parse(opening: bytes, body: bytes) -> Request:
    line, *fields = opening.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")
    method, path, _ = line.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (each.partition(":") for each in fields)}
    return Request(method, path, headers, body, time.monotonic())


@contextmanager
def serve(*script: Step, listening: bool = True, certificate: Path | None = None) -> Generator[Server]:
    with Server(script, certificate) as server:
        if listening:
            server.listen()
        yield server


@contextmanager
def full_backlog() -> Generator[int]:
    """The port of a listener whose queue is full: connecting to it neither succeeds nor fails."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port: int = listener.getsockname()[1]
        waiting: list[socket.socket] = []
        try:
            for _ in range(32):
                waiting.append(socket.socket())
                waiting[-1].setblocking(False)
                waiting[-1].connect_ex(("127.0.0.1", port))
                if not select.select([], [waiting[-1]], [], 0.05)[1]:
                    break
            yield port
        finally:
            for sock in waiting:
                sock.close()


@contextmanager
def silent() -> Generator[socket.socket]:
    """A listener to which one may connect and which never says a word."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        yield listener
