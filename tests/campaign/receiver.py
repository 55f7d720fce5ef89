"""A process that hears callbacks over HTTP: checks the token, confirms at the service, settles the row."""

from __future__ import annotations

from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from campaign.settings import DEADLINE, SECRET, TIMEOUT, Log, Settings, child_of_the_campaign
from momopay import (
    CallbackSigner,
    Client,
    EntryKind,
    ForgedCallbackError,
    InvalidCallbackError,
    Journal,
    MomoPayError,
    parse_callback,
)

LONGEST = 64 * 1024


class Receiver:
    """One route."""

    def __init__(self, settings: Settings) -> None:
        self._kind = settings.kind
        self._journal = Journal(settings.database)
        self._log = Log(settings.log)
        self._signer = CallbackSigner(SECRET)
        self._client = Client(
            settings.key, base_url=settings.base_url, budget=None, timeout=TIMEOUT, deadline=DEADLINE, max_attempts=2
        )

    def receive(self, path: str, body: bytes) -> int:
        """Handle one POST; return the status of its answer."""
        try:
            heard, status = self._handle(path, body), 200
        except InvalidCallbackError as error:
            heard, status = type(error).__name__, 400
        except ForgedCallbackError as error:
            heard, status = type(error).__name__, 403
        except MomoPayError as error:
            heard, status = f"to come again: {type(error).__name__}", 503
        self._log.event(f"callback: {heard}")
        return status

    def _handle(self, path: str, body: bytes) -> str:
        reference = self._signer.verify(path)
        callback = parse_callback(body)
        is_payout = self._kind is EntryKind.PAYOUT
        if is_payout and callback.transaction.account_reference != reference:
            raise ForgedCallbackError("the token is another payment's")
        with self._journal.handling(callback) as first:
            if not first:
                return "seen before"
            entry = self._journal.settle(self._client.transactions.confirm(callback))
            if entry is not None and entry.reference != reference:
                raise ForgedCallbackError("the token is another order's")
            return "none of the journal's" if entry is None else "settled"


def run(settings: Settings) -> None:
    """Listen, as a process of its own."""
    with child_of_the_campaign(settings.control):
        serve(Receiver(settings), settings.hook_port)


def serve(receiver: Receiver, port: int) -> None:

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(min(LONGEST, int(self.headers.get("content-length", "0"))))
            status = receiver.receive(self.path, body)
            with suppress(ConnectionError):
                self.send_response(status)
                self.send_header("content-length", "0")
                self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the base class's name
            pass

    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
