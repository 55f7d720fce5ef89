"""Faults on demand: which request the next one applies to. `_fault_middleware` makes it happen."""

import re
from dataclasses import dataclass, field
from enum import StrEnum
from uuid import uuid4


class Fault(StrEnum):
    """What can be made to go wrong; docs/test/sandbox.md says what the client sees of each."""

    refuse = "refuse"
    reset_before_read = "reset_before_read"
    reset_after_commit = "reset_after_commit"
    hang_after_commit = "hang_after_commit"
    error_before_commit = "error_before_commit"
    error_after_commit = "error_after_commit"
    truncated = "truncated"
    html_502 = "html_502"
    slow_drip = "slow_drip"
    refused_after_commit = "refused_after_commit"
    other_transaction = "other_transaction"
    other_amount = "other_amount"
    other_phone = "other_phone"
    other_reference = "other_reference"
    list_lag = "list_lag"
    callback_duplicate = "callback_duplicate"
    callback_late = "callback_late"
    callback_reordered = "callback_reordered"
    callback_lost = "callback_lost"

    @property
    def is_effect(self) -> bool:
        """Whether the answer is in order, and only what follows from the request goes wrong."""
        return self is Fault.list_lag or self.name.startswith("callback_")

    @property
    def is_before_commit(self) -> bool:
        """Whether the request is never processed."""
        return self in {Fault.refuse, Fault.reset_before_read, Fault.error_before_commit, Fault.html_502}

    @property
    def names_another(self) -> bool:
        """Whether the answer is a success that names another transaction, amount, phone or reference."""
        return self.name.startswith("other_")


# The status of `refused_after_commit` unless another is planned.
REFUSED_WITH = 409

# A fault for any other path would never apply, and a test that relies on it would pass for nothing.
_PATHS = (
    (re.compile("/payments/stk|/b2c/payouts|/wallets/service/topups"), {"POST"}),
    (re.compile("/transactions(/[^/]+)?|/wallets/service/balance"), {"GET"}),
    (re.compile("/payment-wallet/channels"), {"GET", "POST"}),
    (re.compile("/payment-wallet/channels/[^/]+"), {"GET", "PATCH", "DELETE"}),
)


@dataclass(slots=True)
class PlannedFault:
    """A fault that waits for its requests."""

    method: str
    pattern: re.Pattern[str]
    fault: Fault
    times: int
    content_length: bool
    status: int
    path: str
    id: str = field(default_factory=lambda: str(uuid4()))


@dataclass(slots=True)
class FaultPlan:
    """The faults that wait, first planned, first applied."""

    waiting: list[PlannedFault] = field(default_factory=list[PlannedFault])

    def add(
        self,
        method: str,
        path: str,
        fault: Fault,
        times: int = 1,
        *,
        content_length: bool = True,
        status: int = REFUSED_WITH,
    ) -> None:
        """Plan a fault for the next `times` requests; `{name}` or `*` in the path matches one segment.

        Raises:
            ValueError: No such path or fault, `times` below 1, or a status that has no body.
        """
        if times < 1:
            raise ValueError("times must be at least 1")
        if not 200 <= status <= 599 or status in {204, 205, 304}:  # noqa: PLR2004 - these carry no envelope
            raise ValueError("status must be one that has a body, from 200 to 599")
        method, path = method.upper(), "/" + path.removeprefix("/")
        if not any(method in methods and route.fullmatch(path) for route, methods in _PATHS):
            raise ValueError(f"the service has no {method} {path}")
        # Only the placeholders are patterns; the rest of the path, dots included, is literal.
        pieces = re.split(r"\{[^{}/]*\}|\*", path)
        pattern = re.compile("[^/]+".join(map(re.escape, pieces)))
        self.waiting.append(PlannedFault(method, pattern, Fault(fault), times, content_length, status, path))

    def take(self, method: str, path: str) -> PlannedFault | None:
        """Return the fault that applies to this request, if one does, and count it."""
        for planned in self.waiting:
            if planned.method == method and planned.pattern.fullmatch(path):
                # Counted before the request is processed: one that is refused uses its fault up too.
                planned.times -= 1
                if not planned.times:
                    self.waiting.remove(planned)
                return planned
        return None
