"""Many payouts, one after another, each through a `DurableCall`.

`DurableCall` and the journal decide what is sent. A mistake in this module can leave payouts unpaid, but not pay twice.

Invariants:
- Nothing is read from the source while a payout is under way, or after an outcome that stops the run.
- A payout that the journal has as accepted costs no request, so that a run that was killed continues at once.
- A new payout begins once it has a rate slot, so that the wait does not use up its deadline, and a program that is
  interrupted during the wait leaves nothing unresolved.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from functools import partial
from math import inf
from typing import Annotated, Any, Final, Generic, TypeAlias

from momopay import errors
from momopay._core.operation import OperationIterator, as_operation
from momopay._core.session import Session
from momopay._core.wiring import BackendT
from momopay._ratelimit.budget import Lane
from momopay._redaction import clear_frames, redacted_repr
from momopay.durable.access import JournalAccess, check_account
from momopay.durable.call import DurableCall
from momopay.durable.payment import PayoutItem, PayoutOutcome, is_mapping, item_of, payment_in, reference_in
from momopay.durable.similar import Payee, check_similar
from momopay.journal.entries import JournalEntry, JournalState
from momopay.journal.journal import Journal, internals
from momopay.models.arguments import checked_metadata, kes
from momopay.models.enums import EntryKind
from momopay.models.payments import Payment
from momopay.models.requests import PayoutRequest, Request
from momopay.money import format_amount

Given: TypeAlias = PayoutItem | Mapping[str, Any]
Source: TypeAlias = Iterable[Given] | AsyncIterable[Given]

# Refusals that every other payout would meet too, unlike that of one phone.
_STOPPING: Final = (
    errors.ChannelNotFoundError,
    errors.InsufficientFundsError,
    errors.InsufficientServiceBalanceError,
    errors.InvalidApiKeyError,
    errors.KycNotVerifiedError,
    errors.ThrottledError,
)
# The same, by codes that have no class of their own.
_STOPPING_CODES: Final = frozenset({"INSUFFICIENT_BALANCE", "WALLET_INACTIVE", "WALLET_NOT_FOUND"})
# As many unknown outcomes in a row mean that the service is in trouble.
_MAX_UNKNOWN_IN_A_ROW: Final = 3
# How many payouts above `max_each` an error names.
_NAMED: Final = 5
_END: Final = object()


class PayoutLimits(Request):
    """The most that a run may pay, in KES. None is no limit."""

    max_total: Annotated[Decimal, kes(minimum=0)] | None = None
    max_each: Annotated[Decimal, kes(minimum=0)] | None = None

    def check(self, payouts: Sequence[Payee]) -> None:
        """Raise RequestValidationError if the payouts exceed a limit."""
        problems: dict[str, str] = {}
        total = sum((each.amount for each in payouts), Decimal(0))
        if self.max_total is not None and total > self.max_total:
            limit = f"more than KES {format_amount(self.max_total)}"
            problems["max_total"] = f"{len(payouts)} payouts come to KES {format_amount(total)}, {limit}"
        above = [each for each in payouts if self.max_each is not None and each.amount > self.max_each]
        if self.max_each is not None and above:
            named = [f"{redacted_repr(each.reference)} (KES {format_amount(each.amount)})" for each in above[:_NAMED]]
            named += [f"{len(above) - _NAMED} others"] if len(above) > _NAMED else []
            problems["max_each"] = f"more than KES {format_amount(self.max_each)}: {', '.join(named)}"
        if problems:
            raise errors.RequestValidationError(problems)


class PayAll(Generic[BackendT]):
    """One run, used by one task or thread."""

    _session: Session[BackendT]

    def __init__(
        self, session: Session[BackendT], journal: Journal, payouts: Source, limits: PayoutLimits, *, similar: bool
    ) -> None:
        self._session = session.without_max_wait()  # nobody waits for a single payout
        self._journal = journal
        self._limits = limits
        self._similar = similar
        self._source: Iterator[object] | AsyncIterator[object] = (
            aiter(payouts) if isinstance(payouts, AsyncIterable) else iter(payouts)
        )
        self._store = internals(journal).store
        self._is_account_checked = False
        self._reads_first = bool(limits.model_fields_set)
        self._has_ended = False
        self._unknown_in_a_row = 0
        self.waiting: bool = False

    async def next(self) -> list[PayoutOutcome] | None:
        """Pay the next one and return its outcome. Return None after the last one, or one that stops the run."""
        self.waiting = True  # until a payout is under way: before that, a program that is to stop may interrupt it
        try:
            return await self._next()
        finally:
            self.waiting = False

    async def _next(self) -> list[PayoutOutcome] | None:
        if self._reads_first:
            self._reads_first, self._has_ended = False, True  # nothing is paid if this raises
            self._source = iter(await self._read_within_limits())
            self._has_ended = False
        given = _END if self._has_ended else await self._take()
        if given is _END:
            self._has_ended = True
            return None
        outcome = await as_operation(self._session, "payouts.pay_all", self._pay, reference_in(given), given)
        self._has_ended = outcome.stops
        if outcome.error is not None:
            clear_frames(outcome.error)  # it is returned, not raised, and its traceback holds the whole call
        return [outcome]

    async def _take(self) -> object:
        if isinstance(self._source, AsyncIterator):
            return await anext(self._source, _END)
        return next(self._source, _END)

    async def _read_within_limits(self) -> list[object]:
        """Read the whole source. Raise RequestValidationError if it exceeds a limit, or two payouts look the same."""
        everything: list[object] = []
        requests: list[PayoutRequest] = []
        while (given := await self._take()) is not _END:
            if is_mapping(given):  # which could change after it was counted
                given = dict(given)
            with suppress(errors.RequestValidationError):  # it is never sent, and gets its own outcome later
                requests.append(self._request(item_of(given)))
            everything.append(given)
        self._limits.check(requests)
        if not self._similar:
            check_similar(None, requests)
        return everything

    async def _pay(self, session: Session[BackendT], given: object) -> PayoutOutcome:
        self._session = session
        try:
            item = item_of(given)
            request, metadata = self._request(item), checked_metadata(item.metadata)
        except errors.MomoPayError as error:
            # Any other error says that no callback URL can be made, whatever the payout.
            is_of_all = not isinstance(error, errors.RequestValidationError)
            return PayoutOutcome(reference_in(given), JournalState.NOT_SENT, error=error, stops=is_of_all)
        entry: JournalEntry | None = None
        try:
            if not self._is_account_checked:  # the journal of another account would make this run skip everybody
                await check_account(self._session, self._journal)
                self._is_account_checked = True
            entry = await JournalAccess(self._session, self._journal, request.reference).run(self._get, request)
            wanted = (request.amount, request.phone, None)
            is_same = entry is not None and (entry.amount, entry.phone, entry.refund_of) == wanted
            payment = payment_in(entry) if entry is not None and is_same else None
            if payment is None:
                payment = await self._pay_once(request, metadata, is_new=entry is None)
                self._unknown_in_a_row = 0
            return PayoutOutcome(request.reference, JournalState.ACCEPTED, payment)
        except errors.MomoPayError as error:
            outcome = await self._failed(request, error)
            # A payout that was unknown before was only searched for, which does not show how the service is now.
            if entry is None or entry.state is not JournalState.UNKNOWN:
                self._unknown_in_a_row = self._unknown_in_a_row + 1 if outcome.state is JournalState.UNKNOWN else 0
            is_in_trouble = self._unknown_in_a_row >= _MAX_UNKNOWN_IN_A_ROW
            # Errors that do not come from the service, such as no connection or no journal, stop the run too.
            is_of_one = isinstance(error, errors.APIError | errors.OutcomeUnknownError | errors.DuplicatePayoutError)
            is_refused_to_all = isinstance(error, _STOPPING) or getattr(error, "code", None) in _STOPPING_CODES
            is_of_all = not is_of_one or is_refused_to_all or not self._is_account_checked
            return replace(outcome, stops=is_of_all or is_in_trouble)

    async def _pay_once(self, request: PayoutRequest, metadata: dict[str, object] | None, *, is_new: bool) -> Payment:
        if is_new:
            await self._session.acquire_slot(Lane.PAYMENT, latest=inf, describe=lambda: "payouts.pay_all")
        call = DurableCall(self._session, self._journal, request.reference, request, metadata=metadata)
        self.waiting = False
        return await call.run(has_slot=is_new)

    async def _failed(self, request: PayoutRequest, error: errors.MomoPayError) -> PayoutOutcome:
        """Return the outcome with the journal's state, because another process may have paid it."""
        outcome = partial(PayoutOutcome, request.reference, error=error)
        if isinstance(error, errors.DuplicatePayoutError):  # the entry belongs to another payout
            return outcome(JournalState.REFUSED)
        access = JournalAccess(self._session, self._journal, request.reference)
        if not self._is_account_checked:
            await access.note_earlier_attempts(error, EntryKind.PAYOUT, request.reference)
        entry: JournalEntry | None = None
        # The journal may belong to another account.
        needs_no_entry = errors.ConfigurationError | errors.OutcomeUnknownError | errors.RequestValidationError
        if self._is_account_checked and not isinstance(error, needs_no_entry):
            entry = await access.run_or_log(self._store.get, EntryKind.PAYOUT, request.reference)
        if entry is None:
            return outcome(JournalState.UNKNOWN if error.may_have_executed else JournalState.NOT_SENT)
        return outcome(entry.state, payment_in(entry))

    def _get(self, request: PayoutRequest) -> JournalEntry | None:
        """Return the entry of a payout. Raise RequestValidationError if a new payout looks like another one."""
        entry = self._store.get(EntryKind.PAYOUT, request.reference)
        if entry is None and not self._similar:
            check_similar(self._journal, [request])
        return entry

    def _request(self, item: PayoutItem) -> PayoutRequest:
        arguments = {name: value for name, value in vars(item).items() if name != "metadata"}
        arguments["callback_url"] = self._session.callback_url(item.callback_url, item.reference)
        return PayoutRequest.checked(on_loopback=self._session.account.on_loopback, **arguments)


class PayoutIterator(OperationIterator[BackendT, PayoutOutcome]):
    """Outcomes of `Payouts.pay_all`, each as it comes. A second loop continues the first one; nothing is paid again."""

    _run: PayAll[BackendT]

    def __init__(self, session: Session[BackendT], run: PayAll[BackendT]) -> None:
        super().__init__(session, lambda: run)
        self._run = run

    @property
    def waiting(self) -> bool:
        """Whether the next payout is not under way yet, mostly because of the rate budget. Any thread may read it."""
        return self._run.waiting
