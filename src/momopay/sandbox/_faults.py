"""Faults on demand, and which request the next one applies to. `_fault_middleware` applies them."""

import re
from dataclasses import dataclass, field
from enum import StrEnum
from http import HTTPStatus
from typing import Self
from uuid import uuid4

from momopay.sandbox._accounts import Switches
from momopay.sandbox._endpoints import ENDPOINTS, Endpoint
from momopay.sandbox._refusals import DETAILS, STATUS_BY_CODE, Refusal


class Fault(StrEnum):
    """A fault; docs/test/sandbox.md says what the client sees of each."""

    label: str
    text: str

    # The defaults are for type checkers, which take `Fault("refuse")` for a call of `__new__`.
    def __new__(cls, value: str, label: str = "", text: str = "") -> Self:
        """Make a member with its label and its description on the page."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.label, member.text = label, text
        return member

    refuse = "refuse", "No connection", "The connection closes without an answer. Not executed."
    reset_before_read = "reset_before_read", "Connection reset, not executed", "It breaks before the request is read."
    reset_after_commit = "reset_after_commit", "The answer is lost", "Executed, then the connection is reset."
    hang_after_commit = "hang_after_commit", "No answer at all", "Executed, then silence until the client gives up."
    error_before_commit = "error_before_commit", "Error 500, not executed", "500 INTERNAL_ERROR. Nothing has happened."
    error_after_commit = "error_after_commit", "Error 500, but executed", "500 INTERNAL_ERROR. It was executed."
    truncated = "truncated", "Half an answer", "Executed, and half of the answer arrives."
    html_502 = "html_502", "502 page of a proxy", "502 with an HTML page. Not executed."
    slow_drip = "slow_drip", "Very slow answer", "Executed, and the answer arrives byte by byte."
    refused_before_commit = "refused_before_commit", "Refused, not executed", "An error code. Nothing has happened."
    refused_after_commit = "refused_after_commit", "Refused, but executed", "An unknown error code. It was executed."
    other_transaction = "other_transaction", "Answer about another payment", "The answer names another transaction."
    other_amount = "other_amount", "Answer with another amount", "The answer names another amount."
    other_phone = "other_phone", "Answer with another phone", "The answer names another phone number."
    other_reference = "other_reference", "Answer with another reference", "The answer names another reference."
    list_lag = "list_lag", "Missing from lists", "Lists show transactions 60 seconds late."
    callback_duplicate = "callback_duplicate", "Callback comes twice", "The callback of this payment arrives twice."
    callback_late = "callback_late", "Callback comes late", "The callback of this payment comes 300 seconds late."
    callback_reordered = "callback_reordered", "Callbacks swapped", "The next payment's callback comes first."
    callback_lost = "callback_lost", "Callback is lost", "The callback of this payment is never sent."

    @classmethod
    def _missing_(cls, value: object) -> Self:  # noqa: ARG003  the name of the base class
        raise ValueError(f"fault must be one of: {', '.join(cls)}")

    @property
    def is_effect(self) -> bool:
        """Whether the response is correct, and only a list or a callback goes wrong."""
        return self is Fault.list_lag or self.name.startswith("callback_")

    @property
    def is_before_commit(self) -> bool:
        """Whether the request is never processed."""
        unread = {Fault.refuse, Fault.reset_before_read}
        return self in {*unread, Fault.error_before_commit, Fault.html_502, Fault.refused_before_commit}

    @property
    def names_another(self) -> bool:
        """Whether the response is a success that names another transaction, amount, phone or reference."""
        return self.name.startswith("other_")

    def fits(self, endpoint: Endpoint) -> bool:
        """Return whether the fault can show on an endpoint."""
        pays = endpoint.ends_as is not None
        if self is Fault.list_lag:
            return pays or endpoint.record == "TransactionList"
        if self.is_effect:
            return endpoint.calls_back
        return pays or endpoint.record == "TransactionRead" or not self.names_another


_HAVE_BODY = frozenset(range(200, 600)) - {204, 205, 304}
REFUSED_WITH = 409  # the status of a fault that refuses with an unknown code, unless another is planned


@dataclass(slots=True)
class PlannedFault:
    """A fault for the next requests of a path, in which `{name}` or `*` matches one segment."""

    method: str
    path: str
    fault: Fault
    times: int = 1
    content_length: bool = True
    status: int | None = None
    code: str = ""
    id: str = field(default_factory=lambda: str(uuid4()))
    pattern: re.Pattern[str] = field(init=False)
    _own: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        """Raise ValueError for a method, path or status that cannot apply, and for `times` below 1."""
        if self.times < 1:
            raise ValueError("times must be at least 1")
        if self.status is not None and self.status not in _HAVE_BODY:
            raise ValueError("status must be one that has a body, from 200 to 599")
        self.fault = Fault(self.fault)
        self.method, self.path = self.method.upper(), "/" + self.path.removeprefix("/")
        self.pattern = _pattern(self.path)
        # A fault for any other path would never apply, so a test that relies on it would prove nothing.
        found = [each for each in ENDPOINTS if each.method == self.method and _pattern(each.path).fullmatch(self.path)]
        if not found:
            raise ValueError(f"the service has no {self.method} {self.path}")
        self._own = dict(found[0].errors_under(Switches()))

    def refusal(self) -> Refusal:
        """Return the error that the fault shows, with the status and the details that its code has."""
        if self.fault in {Fault.error_before_commit, Fault.error_after_commit}:
            return Refusal("INTERNAL_ERROR", "The service failed (a fault on demand)")
        code = self.code or "REQUEST_CONFLICT"
        # The endpoint's own status first: CHANNEL_NOT_FOUND is 400 on payments.
        status = self.status or self._own.get(code) or STATUS_BY_CODE.get(code, REFUSED_WITH)
        details = DETAILS.get(code, {})
        wait = details.get("retryAfterSeconds", details.get("resetInSeconds", 1))
        headers = {"retry-after": str(wait)} if status == HTTPStatus.TOO_MANY_REQUESTS else None
        return Refusal(code, "Refused (a fault on demand)", details=details, status=status, headers=headers)


@dataclass(slots=True)
class FaultPlan:
    """The faults that are planned. The first one planned applies first."""

    waiting: list[PlannedFault] = field(default_factory=list[PlannedFault])

    def take(self, method: str, path: str) -> PlannedFault | None:
        """Return the fault that applies to a request, or None, and count it."""
        for planned in self.waiting:
            if planned.method == method and planned.pattern.fullmatch(path):
                # Counted before the request is processed, so a request that is refused uses up its fault too.
                planned.times -= 1
                if not planned.times:
                    self.waiting.remove(planned)
                return planned
        return None


def _pattern(path: str) -> re.Pattern[str]:
    # Everything but the placeholders is literal, dots included.
    return re.compile("[^/]+".join(map(re.escape, re.split(r"\{[^{}/]*\}|\*", path))))
