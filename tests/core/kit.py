"""A scripted service in memory and in virtual time, and one call for each kind of endpoint."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import momopay
from bodies import encoded, envelope, refusal
from drivers import unique_key
from momopay import Client
from momopay._transport.attempt import Headers, NoReplyError, NotSentError, Progress, RawResponse
from virtual import VirtualIO, install_backend
from wire import Request, record_for

Call = Callable[[Any], Any]
PHONE = "254712345678"


@dataclass(frozen=True)
class Answer:
    """What the service does with one request."""

    status: int | None = 200  # None where no response comes
    body: bytes | None = None  # None for a success with the record of the endpoint
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    commits: bool = False  # whether a payment is made before the answer goes out
    error: Exception | None = None  # raised instead of a response


SUCCESS = Answer(commits=True)
NOT_SENT = Answer(None, error=NotSentError("connection refused"))


def lost(*, commits: bool = True, partial: bytes = b"", status: int | None = None) -> Answer:
    """A request that was sent, and whose response did not come whole."""
    return Answer(None, commits=commits, error=NoReplyError("timed out", status=status, partial=partial))


def raw(status: int, body: bytes = b"", *, commits: bool = True, **headers: str) -> Answer:
    """A response of any kind, after the payment was made."""
    return Answer(status, body, {name.replace("_", "-"): value for name, value in headers.items()}, commits)


def error_answer(status: int, code: str, details: Mapping[str, Any] | None = None, **headers: str) -> Answer:
    """The service's error envelope; nothing was paid."""
    return raw(status, encoded(refusal(code, **(details or {}))), commits=False, **headers)


def limited(reset: int) -> Answer:
    """RATE_LIMIT_EXCEEDED, with a pause in its details."""
    return error_answer(429, "RATE_LIMIT_EXCEEDED", {"limit": 60, "remaining": 0, "resetInSeconds": reset})


class ScriptedService(VirtualIO):
    """Plays a script, one answer a request, the last for ever; counts requests and payments."""

    def __init__(self, *script: Answer) -> None:
        super().__init__(lambda _method, _path: (500, b""))
        self.script = list(script)
        self.sent: list[tuple[str, str, dict[str, str], bytes | None]] = []
        self.timeouts: list[float] = []
        self._paid = set[str]()
        self.payments = 0
        self.asked_before = 0  # requests that had something to do before their body

    async def send(
        self, method: str, url: str, headers: Headers, body: bytes | None, *, timeout: float, progress: Progress | None
    ) -> RawResponse:
        answer = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        path = url.partition("/v1")[2]
        if isinstance(answer.error, NotSentError):
            raise answer.error
        if progress is not None and progress.before_body is not None:
            await progress.before_body()
            self.asked_before += 1
        self.sent.append((method, path, dict(headers), body))
        self.timeouts.append(timeout)
        if answer.commits:
            self._pay(method, path, headers)
        if answer.error is not None:
            raise answer.error
        content = answer.body
        if content is None:
            record = record_for(Request(method, "/v1" + path, {}, body or b"", 0.0))
            content = encoded(envelope(record))
        assert answer.status is not None
        return RawResponse(answer.status, Headers(answer.headers), content)

    def _pay(self, method: str, path: str, headers: Headers) -> None:
        key = headers.get("idempotency-key")
        if method == "POST" and "channels" not in path and (key is None or key not in self._paid):
            self.payments += 1
            self._paid.add(key or "")


def reach(*script: Answer, **options: Any) -> tuple[Client, ScriptedService]:
    """A client of the scripted service, without a budget unless one is given."""
    arguments: dict[str, Any] = {"api_key": unique_key(), "budget": None, **options}
    client, service = Client(base_url="https://api.example/v1", **arguments), ScriptedService(*script)
    install_backend(client, service)
    return client, service


@dataclass(frozen=True)
class Column:
    """A column of the retry table: how one kind of call fails finally, and whether ambiguous failures are retried."""

    name: str
    call: Call
    retries: bool
    no_reply: type[momopay.MomoPayError] = momopay.OutcomeUnknownError
    server_error: type[momopay.MomoPayError] = momopay.OutcomeUnknownError
    invalid: type[momopay.MomoPayError] = momopay.OutcomeUnknownError
    may_have_executed: bool = True
    pays: bool = True

    def requests(self, attempts: int) -> int:
        return attempts if self.retries else 1


def initiate_stk(client: Any, **fields: Any) -> Any:
    given = {"amount": 100, "phone": "0712 345 678", "account_reference": "INV-42", **fields}
    return client.stk.initiate(**given)


def initiate_payout(client: Any, **fields: Any) -> Any:
    given = {"amount": 100, "phone": "+254712345678", "reference": "INV-42", **fields}
    return client.payouts.initiate(**given)


def read_balance(client: Any) -> Any:
    return client.wallet.balance()


def top_up(client: Any) -> Any:
    return client.wallet.top_up(amount=100, phone="0712345678", account_reference="INV-42")


def create_channel(client: Any) -> Any:
    return client.channels.create(name="Shop", type="PAYBILL", shortcode="600100", account_number="42")


def update_channel(client: Any) -> Any:
    return client.channels.update("2d9a4a0e", name="Kiosk")


def delete_channel(client: Any) -> Any:
    return client.channels.delete("2d9a4a0e")


TOP_UP = Column("top-up", top_up, retries=True)
STK = Column("stk", initiate_stk, retries=False)
PAYOUT = Column("payout", initiate_payout, retries=False)
CREATE = Column("create", create_channel, retries=False, pays=False)
UPDATE = Column(
    "update",
    update_channel,
    retries=True,
    no_reply=momopay.APIConnectionError,
    server_error=momopay.ServerError,
    invalid=momopay.ProtocolError,
    pays=False,
)
DELETE = replace(UPDATE, name="delete", call=delete_channel)
GET = replace(UPDATE, name="get", call=read_balance, may_have_executed=False)
COLUMNS = (GET, TOP_UP, STK, PAYOUT, CREATE, UPDATE, DELETE)
