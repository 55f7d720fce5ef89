"""One answer of the service as it came, whatever it is: nothing here raises for an answer of another shape. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from typing import Any, Final, cast
from uuid import UUID

from momopay._redaction import redact

_MAX_TEXT: Final = 60  # characters of a code or a name that a profile quotes
_REQUEST_ID: Final = re.compile(r"[0-9A-Za-z._-]{1,64}")


@dataclass(frozen=True)
class Answer:
    """One answer.

    Attributes:
        status: The HTTP status; None if no whole response came.
        headers: By name, in lower case.
        body: Decompressed.
        problem: Why no whole response came.
    """

    status: int | None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes = b""
    problem: str | None = None

    @cached_property
    def envelope(self) -> Mapping[str, Any]:
        """The JSON object that the body is; empty if it is none."""
        try:
            value: object = json.loads(self.body, parse_float=Decimal)
        except (ValueError, ArithmeticError, RecursionError):
            return {}
        return cast("dict[str, Any]", value) if isinstance(value, dict) else {}

    @property
    def is_success(self) -> bool:
        """Whether the service did what was asked: 2xx, and the body does not say otherwise, nor is it a page."""
        return self._is_2xx and not self.is_page and self.envelope.get("success") is not False

    @property
    def is_page(self) -> bool:
        """Whether the body is no JSON object, such as the page of a proxy. An empty body may be the service's."""
        return bool(self.body.strip()) and not self.envelope

    @property
    def is_refusal(self) -> bool:
        """Whether the service looked at the request and refused it: 4xx, apart from timeouts and throttling.

        A 2xx whose body says that it failed is a refusal too.
        """
        if self.status is None or self.status in {408, 429}:
            return False
        return 400 <= self.status < 500 or (self._is_2xx and self.envelope.get("success") is False)  # noqa: PLR2004

    @property
    def data(self) -> Mapping[str, Any]:
        """The record of a success; empty if there is none."""
        data = self.envelope.get("data") if self.is_success else None
        return cast("dict[str, Any]", data) if isinstance(data, dict) else {}

    @property
    def items(self) -> list[Mapping[str, Any]]:
        """The records of a list; empty if there are none."""
        items = self.data.get("items")
        records = cast("list[object]", items) if isinstance(items, list) else []
        return [cast("dict[str, Any]", record) for record in records if isinstance(record, dict)]

    @property
    def error(self) -> Mapping[str, Any]:
        """The error of a refusal; empty if there is none."""
        error = self.envelope.get("error")
        return cast("dict[str, Any]", error) if isinstance(error, dict) else {}

    @property
    def _is_2xx(self) -> bool:
        return self.status is not None and 200 <= self.status < 300  # noqa: PLR2004

    @property
    def details(self) -> Mapping[str, Any]:
        """The details of a refusal; empty if there are none."""
        details = self.error.get("details")
        return cast("dict[str, Any]", details) if isinstance(details, dict) else {}

    @property
    def code(self) -> str | None:
        """The code of a refusal."""
        code = self.error.get("code")
        return quoted(code) if isinstance(code, str) and code.strip() else None

    @property
    def request_id(self) -> str | None:
        """The request's id, if it is one that may be shown."""
        found = self.envelope.get("requestId") or self.headers.get("x-request-id")
        if not isinstance(found, str) or not _REQUEST_ID.fullmatch(found):
            return None
        return found if is_uuid(found) else redact(found)

    @property
    def summary(self) -> str:
        """What came, in a few words that hold nothing personal."""
        if self.status is None:
            return "no answer"
        if not self.body.strip():
            return f"{self.status} with an empty body"
        if self.code:
            return f"{self.status} {self.code}"
        return f"{self.status}" if "success" in self.envelope else f"{self.status} with a body that is no envelope"


def quoted(text: str) -> str:
    """Return a text of the service as a profile may hold it: short, printable, without keys and phones."""
    return redact("".join(each if each.isprintable() else "?" for each in text[:_MAX_TEXT]))


def is_uuid(value: object) -> bool:
    """Return whether a value is the text of a UUID."""
    try:
        return isinstance(value, str) and str(UUID(value)) == value.lower()
    except ValueError:
        return False


def field_of(record: Mapping[str, Any], *names: str) -> Any:
    """Return the first of these fields that a record has, None if it has none."""
    return next((record[name] for name in names if record.get(name) is not None), None)


def amount_of(value: object) -> Decimal | None:
    """Return an amount, a number or its text; None if it is neither."""
    if isinstance(value, bool) or not isinstance(value, int | Decimal | str):
        return None
    try:
        amount = Decimal(value)
    except ArithmeticError:
        return None
    return amount if amount.is_finite() else None
