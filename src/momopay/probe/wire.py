"""Raw requests and their responses, whatever their shape. The SDK's own calls would hide what a probe looks for."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from decimal import Decimal
from http import HTTPStatus
from typing import Any, Final, TypeAlias, cast
from urllib.parse import urlencode, urlsplit

import momopay
from momopay._core.operation import run_sync
from momopay._core.response import retry_after
from momopay._core.session import Session
from momopay._ratelimit.budget import Lane
from momopay._redaction import redact
from momopay._transport.attempt import NoResponseError, Progress
from momopay._transport.sync_backend import SyncBackend
from momopay.errors import APIConnectionError, InvalidApiKeyError, number_or_none

WINDOW: Final = 61.0  # seconds: a minute (service page, "Limits") and one more for differences between clocks
_LONGEST_WAIT: Final = 180.0  # seconds to wait for a slot of the rate budget
_LONGEST_PAUSE: Final = 90.0  # seconds to wait after a 429
_BACKOFF: Final = (2.0, 4.0)  # seconds before the second and the third attempt
MAX_TEXT: Final = 60  # characters of a code or a name that a profile quotes
_REQUEST_ID: Final = re.compile(r"(?!None$)[0-9A-Za-z._-]{1,64}")
Body: TypeAlias = Mapping[str, object] | None
_NONE: Final[Mapping[str, str]] = {}
UNAUTHORIZED: Final = 401
THROTTLED: Final = 429
_REFUSING: Final = frozenset(range(400, 500)) - {408, THROTTLED}


class Wire:
    """Sends the probe's requests. Times are in seconds."""

    def __init__(self, client: momopay.Client) -> None:
        # The only private attribute of a client that the probe uses: the client's configuration must apply here too.
        session: Session[SyncBackend] = client._session  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        self._session = session
        self._passed = ""  # the target of the latest read that succeeded
        self.reads: list[Answer] = []
        self.host: str = urlsplit(session.account.base_url).hostname or ""
        self.key: str = session.account.api_key

    def get(self, path: str, **query: str) -> Answer:
        """Send a GET, and repeat it after a 5xx or no response. `path` is relative to the base address.

        If it returns a failure or a 401, only this request failed: another read has just passed, or none has so far.
        """
        target = path + (f"?{urlencode(query)}" if query else "")
        answer = self._within_budget("GET", target)
        for pause in _BACKOFF:
            if answer.is_failure:
                self.sleep(pause)
                answer = self._within_budget("GET", target)
        if answer.is_success and answer.envelope:
            self._passed = target
        self._check(answer)
        return answer

    def change(self, method: str, path: str, body: Body = None) -> Answer:
        """Send a request that changes something; it is never repeated after a failure."""
        answer = self._within_budget(method, path, body)
        self._check(answer)
        return answer

    def send(
        self, method: str, path: str, body: Body = None, *, at_once: bool = False, headers: Mapping[str, str] = _NONE
    ) -> Answer:
        """Send a request once a slot of the rate budget is free, or with `at_once` immediately."""
        session = self._session
        if not at_once:
            latest, name = session.backend.now() + _LONGEST_WAIT, f"{method} {path.partition('?')[0]}"
            run_sync(session.acquire_slot(Lane.READ, latest=latest, describe=lambda: name))
        content = None if body is None else json.dumps(body).encode()
        progress = None if method == "GET" else Progress()
        url, timeout, all_headers = session.account.base_url + path, session.limits.timeout, session.headers.copy()
        all_headers.update(headers)
        answer = Answer(None)
        with suppress(NoResponseError):
            raw = run_sync(session.backend.send(method, url, all_headers, content, timeout=timeout, progress=progress))
            answer = Answer(raw.status, raw.headers, raw.body)
        if method == "GET":
            self.reads.append(answer)
        return answer

    def sleep(self, seconds: float) -> None:
        """Sleep."""
        run_sync(self._session.backend.sleep(seconds))

    def hold(self, seconds: float) -> None:
        """Pause everything that shares the rate budget."""
        run_sync(self._session.pause(seconds))

    def _within_budget(self, method: str, path: str, body: Body = None) -> Answer:
        """Send a request, and repeat it after a 429: another program has used up the key's limit."""
        answer = self.send(method, path, body)
        pause = answer.pause or WINDOW
        if answer.status == THROTTLED and pause <= _LONGEST_PAUSE:
            # Without the wait, the next step would fail too, such as the deletion of the probe's channel.
            self.hold(pause)
            if self._session.budget is None:
                self.sleep(pause)
            answer = self.send(method, path, body)
        return answer

    def _check(self, answer: Answer) -> None:
        """Raise if nothing can be read any more, because the answer then says nothing about its own request."""
        if not self._passed or not (answer.is_failure or answer.status == UNAUTHORIZED):
            return
        control = self._within_budget("GET", self._passed)
        if control.status == UNAUTHORIZED:
            code = control.code or None
            raise InvalidApiKeyError("the service refuses the key now", code=code, status_code=UNAUTHORIZED)
        if control.is_failure:
            raise APIConnectionError(f"the service does not answer any more ({control.summary})")


class Answer:
    """One response. Attributes that it does not have are empty; `status` is None if no whole response came."""

    def __init__(self, status: int | None, headers: Mapping[str, str] | None = None, body: bytes = b"") -> None:
        self.status = status
        self.headers: Mapping[str, str] = {name.lower(): value for name, value in (headers or {}).items()}
        self.is_empty: bool = not body.strip()
        self.envelope: Mapping[str, Any] = {}  # the body, if it is a JSON object
        with suppress(ValueError, ArithmeticError, RecursionError):
            self.envelope = _object(json.loads(body, parse_float=Decimal))
        # A body that is not a JSON object may be a proxy's page. An empty body may be the service's.
        is_2xx = status is not None and HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES
        says_no = self.envelope.get("success") is False
        self.is_success: bool = is_2xx and not says_no and (self.is_empty or bool(self.envelope))
        # The service looked at the request and refused it, apart from timeouts and throttling.
        self.is_refusal: bool = status in _REFUSING or (is_2xx and says_no)
        self.is_failure: bool = status is None or status >= HTTPStatus.INTERNAL_SERVER_ERROR
        self.data: Mapping[str, Any] = _object(self.envelope.get("data")) if self.is_success else {}
        items: object = self.data.get("items")
        listed = cast("list[object]", items) if isinstance(items, list) else []
        self.items: list[Mapping[str, Any]] = [_object(each) for each in listed]
        self.transactions: list[Transaction] = [seen for seen in map(Transaction, self.items) if seen.id]
        self.error: Mapping[str, Any] = _object(self.envelope.get("error"))
        self.details: Mapping[str, Any] = _object(self.error.get("details"))
        code: object = self.error.get("code")
        self.code: str = redact(code.strip()[:MAX_TEXT]) if isinstance(code, str) else ""
        found = str(self.envelope.get("requestId") or self.headers.get("x-request-id"))
        self.request_id: str | None = redact(found) if _REQUEST_ID.fullmatch(found) else None
        stated = (number_or_none(self.details.get("resetInSeconds")), retry_after(self.headers))
        # The seconds that a 429 asks to wait; None if it states none.
        self.pause: float | None = max((seconds for seconds in stated if seconds is not None), default=None)
        # A description of the response without personal data.
        kind = " with an empty body" if self.is_empty else " with a body that is no envelope"
        shown = f" {self.code}" if self.code else "" if "success" in self.envelope else kind
        self.summary: str = "no answer" if status is None else f"{status}{shown}"


class Transaction:
    """One transaction as one response shows it, in either naming style. A text that is missing is ""."""

    def __init__(self, record: Mapping[str, Any]) -> None:
        self.record = record
        self.id: str = self._text("transactionId", "transaction_id", "id")
        self.type: str = self._text("type").upper()
        self.status: str = self._text("status").upper()
        self.result_code: str = self._text("resultCode", "result_code")
        self.created: str = self._text("createdAt", "created_at")
        self.amount: Decimal | None = amount_of(record.get("amount"))
        self.fee: Decimal | None = amount_of(field_of(record, "transactionFee", "transaction_fee"))
        self.is_prompt: bool = self.type.startswith("STK")

    def _text(self, *names: str) -> str:
        value = field_of(self.record, *names)
        return value if isinstance(value, str) else str(value) if isinstance(value, int) else ""


def _object(value: object) -> Mapping[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def field_of(record: Mapping[str, Any], *names: str) -> Any:
    """Return the first of these fields that is not null, None if there is none."""
    return next((record[name] for name in names if record.get(name) is not None), None)


def amount_of(value: object) -> Decimal | None:
    """Return an amount from a number or its text; None if the value is neither."""
    if isinstance(value, bool) or not isinstance(value, int | Decimal | str):
        return None
    try:
        amount = Decimal(value)
    except ArithmeticError:
        return None
    return amount if amount.is_finite() else None
