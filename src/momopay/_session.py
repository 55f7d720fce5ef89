"""One request's life: a slot in the budget, an attempt, its answer, repeats, and how it ends.

Knows no endpoint; each call brings its path, its body, its record and its rule. Times are in seconds.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from math import inf
from typing import Generic, cast

from momopay import __version__, _retry
from momopay._budget import Budget, Lane
from momopay._colours import IO
from momopay._endpoint import NO_FACTS, Endpoint, Facts, R
from momopay._envelope import check_done, failure_without, open_envelope, transaction_id_in
from momopay._io import Answer, Headers, NoAnswerError, NotSentError, Progress, common_headers
from momopay._masks import discreet_repr
from momopay._options import Account, Limits
from momopay._retry import UNCLEAR, Failed, Kind
from momopay._slots import SharedBudget, Slots, slots_of
from momopay._standing import StkPause
from momopay.errors import (
    BudgetExhaustedError,
    MomoPayError,
    OutcomeUnknownError,
    StkTempBannedError,
    TransactionHealthBlockedError,
)
from momopay.models.records import Nothing, ResponseInfo

logger = logging.getLogger("momopay")

_RESERVE = 0.1
"""The share of the deadline without which a payment is not begun."""


class Session(Generic[IO]):
    """What the calls of one client have in common."""

    def __init__(
        self,
        io: IO,
        account: Account,
        *,
        budget: Budget | SharedBudget | None,
        stk_pause: StkPause,
        limits: Limits,
    ) -> None:
        self.io: IO = io
        self.account = account
        self.budget = budget
        self.slots: Slots | None = slots_of(budget, io, account)
        self.stk_pause = stk_pause
        self.limits = limits
        self.headers: Headers = common_headers(
            account.base_url,
            {
                "Authorization": "Basic " + base64.b64encode(f"{account.api_key}:".encode()).decode(),
                "Accept": "application/json",
                "Accept-Encoding": "identity",
                "User-Agent": f"momopay/{__version__}",
            },
        )

    async def close(self) -> None:
        """Close the connections, those of a shared budget included."""
        if self.slots is not None:
            await self.slots.close()
        await self.io.close()

    async def call(
        self,
        endpoint: Endpoint[R],
        path: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        facts: Facts = NO_FACTS,
        lane: Lane | None = None,
        until: float = inf,
    ) -> R:
        """Make one call, repeats and all.

        Args:
            endpoint: What is fixed about it.
            path: Below the base address, with its query.
            body: The JSON to send.
            headers: Beside those of every call.
            facts: What to reconcile with, should the outcome be unknown.
            lane: Instead of the endpoint's.
            until: The monotonic time by which it must be over, where that is before the deadline.
        """
        call = Call(self, endpoint, path, body, headers, facts, lane or endpoint.lane)
        call.deadline = min(call.started + self.limits.deadline, until)
        return await call.run()

    def prepare(self, endpoint: Endpoint[R], path: str, *, body: bytes, facts: Facts) -> Call[IO, R]:
        """Prepare a call that is to wait for its slot before something else is done, and run after that."""
        call = Call(self, endpoint, path, body, None, facts, endpoint.lane)
        call.deadline = call.started + self.limits.deadline
        return call


class Call(Generic[IO, R]):
    """One call under way, over all its attempts."""

    session: Session[IO]

    def __init__(
        self,
        session: Session[IO],
        endpoint: Endpoint[R],
        path: str,
        body: bytes | None,
        headers: Mapping[str, str] | None,
        facts: Facts,
        lane: Lane,
    ) -> None:
        self.session = session
        self.endpoint = endpoint
        self.path = path
        self.body = body
        self.headers: Headers = session.headers
        if headers is not None:
            self.headers = session.headers.copy()
            self.headers.update(headers)
        self.facts = facts
        self.lane = lane
        self.started: float = session.io.now()
        self.deadline: float = 0.0
        self.attempts: int = 0
        self.holds_a_slot: bool = False
        self.sent_at: datetime | None = None
        self.last: Failed | None = None
        self.unclear: bool = False
        self.progress: Progress | None = None
        self.transaction_id: str | None = None

    async def wait_for_a_slot(self) -> None:
        """Take the first attempt's slot ahead of it.

        Raises:
            BudgetExhaustedError: There is none before the deadline.
        """
        if self.session.slots is not None and not self.holds_a_slot:
            await self._take_a_slot(self.session.slots)
            self.holds_a_slot = True

    async def run(self) -> R:
        """Attempt, repeat as the rule allows, and end in a record or in the error that tells the truth."""
        try:
            try:
                return await self._attempt()
            except Failed as failed:
                first = failed
            return await _retry.repeat(
                self._attempt,
                first,
                rule=self.endpoint.rule,
                clock=self.session.io,
                max_attempts=self.session.limits.max_attempts,
                deadline=self.deadline,
                describe=self._describe,
            )
        except Exception as obstacle:
            # What keeps a repeat from being made is not what became of the attempts before it.
            if self.last is None or not (self.unclear or isinstance(obstacle, Failed | BudgetExhaustedError)):
                raise
            error, cause = self._end(self.last)
        except BaseException:
            self._tell_interrupted()
            raise
        raise error from cause

    async def _attempt(self) -> R:
        """Make one attempt.

        Raises:
            Failed: With the kind that the repeat table goes by.
            BudgetExhaustedError: There is no slot before the deadline; this attempt was not made.
        """
        session = self.session
        self._heed_a_pause()
        if session.slots is not None and not self.holds_a_slot and await self._take_a_slot(session.slots):
            self._heed_a_pause()
        self.holds_a_slot = False
        begun = session.io.now()
        self.attempts += 1
        try:
            answer = await self._send(self.deadline - begun)
            record = self._read(answer)
        except NoAnswerError as failure:
            failed = failure_without(failure)
        except Failed as failure:
            failed = failure
        else:
            if logger.isEnabledFor(logging.DEBUG):
                self._tell(begun, f"{answer.status}, request {record.response.request_id}")
            return record
        self.last = failed
        self.unclear = self.unclear or failed.kind in UNCLEAR
        self.progress = None  # after the line above: an interrupt between the two must find one of them
        await self._heed(failed)
        self._tell(begun, str(failed.error))
        raise failed

    def _heed_a_pause(self) -> None:
        if self.endpoint.prompts and (refusal := self.session.stk_pause.refusal(self.session.io.now())) is not None:
            raise refusal

    async def _take_a_slot(self, slots: Slots) -> bool:
        """Take a slot in the budget; tell whether it had to be waited for."""
        io = self.session.io
        waited = False
        while True:
            now = io.now()
            patience = max(0.0, self.deadline - now - self._needed())
            delay = await slots.reserve(now, self.lane, patience)
            if delay <= 0:
                return waited
            if delay > patience:
                raise BudgetExhaustedError(
                    f"{self._describe()}: the rate budget has no slot for {delay:.1f} s; not sent",
                    retry_after=delay,
                )
            await io.sleep(delay)
            waited = True
            if not await slots.stopped(io.now()):
                return waited

    def _needed(self) -> float:
        """How long before the deadline an attempt must begin: one cut short would leave a payment unknown."""
        return self.session.limits.deadline * _RESERVE if self.endpoint.rule.settles else 0.0

    async def _send(self, left: float) -> Answer:
        session, endpoint = self.session, self.endpoint
        if left <= self._needed():
            raise NotSentError("too little is left until the deadline")
        if endpoint.rule.settles and self.sent_at is None:
            self.sent_at = datetime.now(UTC)
        self.progress = Progress() if endpoint.rule.changes else None
        try:
            return await session.io.send(
                endpoint.method,
                session.account.base_url + self.path,
                self.headers,
                self.body,
                timeout=min(session.limits.timeout, left),
                progress=self.progress,
            )
        except NoAnswerError as failure:
            # Where nothing is returned, a success is a success whatever became of its body.
            if endpoint.envelope is None and failure.status is not None and 200 <= failure.status < 300:  # noqa: PLR2004
                return Answer(failure.status, Headers(), b"")
            raise

    def _read(self, answer: Answer) -> R:
        envelope = self.endpoint.envelope
        if envelope is None:
            check_done(answer)
            record, request_id = cast("R", Nothing()), None
        else:
            opened = open_envelope(answer, envelope)
            record, request_id = opened.data, opened.request_id
        elapsed = self.session.io.now() - self.started
        record.received(ResponseInfo(request_id, answer.status, answer.headers, self.attempts, elapsed))
        return record

    async def _heed(self, failed: Failed) -> None:
        """Remember what a failure means for the calls to come."""
        session, now = self.session, self.session.io.now()
        if self.endpoint.rule.settles and self.transaction_id is None:
            self.transaction_id = transaction_id_in(failed.body)
        if failed.kind is Kind.LIMITED and session.slots is not None and failed.retry_after is not None:
            await session.slots.stop(now, now + failed.retry_after)
        if isinstance(failed.error, StkTempBannedError | TransactionHealthBlockedError):
            session.stk_pause.begin(now, failed.error)

    def _end(self, failed: Failed) -> tuple[MomoPayError, MomoPayError | None]:
        """Turn the last failure into the error to raise, and its cause."""
        rule = self.endpoint.rule
        if rule.settles and self.unclear and failed.kind is not Kind.REFUSED:
            return self._outcome_unknown(failed), failed.error
        if rule.changes and self.unclear:
            failed.error.may_have_executed = True
        return failed.error, None

    def _outcome_unknown(self, failed: Failed) -> OutcomeUnknownError:
        facts = self.facts
        return OutcomeUnknownError(
            f"{self._describe()} may have executed: {failed.error.message.rstrip('.')}."
            f" Reconcile it before anything is sent again (reference {facts.reference!r})",
            sent_at=self.sent_at or datetime.now(UTC),
            reference=facts.reference,
            amount=facts.amount,
            phone=facts.phone,
            idempotency_key=facts.idempotency_key,
            transaction_id=self.transaction_id,
        )

    def _describe(self) -> str:
        """Name the call without its query, which may hold a phone."""
        return f"{self.endpoint.method} {self.path.partition('?')[0]}"

    def _tell(self, begun: float, outcome: str) -> None:
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug(
                "%s: attempt %d, lane %s, %.3f s: %s",
                self._describe(),
                self.attempts,
                self.lane.value,
                self.session.io.now() - begun,
                outcome,
            )

    @property
    def may_have_left(self) -> bool:
        """Whether a request is under way, or one before it ended unclear."""
        return self.unclear or (self.progress is not None and not self.progress.connecting)

    def _tell_interrupted(self) -> None:
        """Say that the outcome is unknown, if it is."""
        if self.endpoint.rule.changes and self.may_have_left:
            logger.error(
                "%s was interrupted: its outcome is unknown, reference %s",
                self._describe(),
                discreet_repr(self.facts.reference),
            )
