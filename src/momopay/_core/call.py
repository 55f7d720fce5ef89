"""One call: a slot in the rate budget, an attempt, its response, retries, and the final error.

Invariants:
- Only `_send` passes a payment to the backend, and only the retry policy allows another attempt.
- Once an attempt may have executed, `may_have_executed` stays set: a later refusal answers the retry, not that attempt.
- A call belongs to one task or thread. Only its session is shared.

Times are in seconds, on the backend's monotonic clock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from math import inf
from typing import Any, Generic, TypeVar, cast

from momopay._core.endpoint import Endpoint, PaymentDetails, Sent
from momopay._core.response import (
    build_parser,
    check_success,
    failure_without_response,
    is_success,
    parse_envelope,
    transaction_id_in,
)
from momopay._core.retry import (
    BASE_BACKOFF,
    MAX_BACKOFF,
    MAY_HAVE_EXECUTED,
    AttemptFailed,
    FailureKind,
    load_tenacity,
)
from momopay._core.session import Session
from momopay._ratelimit.budget import Lane
from momopay._redaction import redact, redacted_repr
from momopay._transport.attempt import Headers, NoResponseError, NotSentError, Progress, RawResponse
from momopay.errors import BudgetExhaustedError, MomoPayError, OutcomeUnknownError, ThrottledError
from momopay.models.records import Record, ResponseInfo, note_response
from momopay.models.transactions import Payout, StkTransaction

logger: logging.Logger = logging.getLogger("momopay")

R = TypeVar("R", bound=Record)


class Call(Generic[R]):
    """One call, over all its attempts: ``await Call(session, GET, path).run()``. Nothing outside sets its attributes.

    `path` includes the query. `lane` overrides the endpoint's. The call ends at the monotonic time `until` if that is
    before its deadline. With `has_slot`, its first slot is taken already. Each attempt sends the `idempotency_key`, by
    default that of the `details`. `before_body` is awaited in each attempt before the body is written: if it raises,
    the call ends and nothing is executed. `earlier` is what other calls sent of the same payment.
    """

    def __init__(
        self,
        session: Session[Any],
        endpoint: Endpoint[R],
        path: str,
        *,
        body: bytes | None = None,
        details: PaymentDetails | None = None,
        lane: Lane | None = None,
        until: float = inf,
        has_slot: bool = False,
        idempotency_key: str | None = None,
        before_body: Callable[[], Coroutine[Any, Any, None]] | None = None,
        earlier: Sent | None = None,
    ) -> None:
        self.session = session
        self.endpoint = endpoint
        self.path = path
        self.url: str = session.account.base_url + path.partition("?")[0]  # for messages: a query may contain a phone
        self.lane: Lane = lane or endpoint.lane
        self.body = body
        self.details: PaymentDetails = details or PaymentDetails()
        self.headers: Headers = session.headers
        key = idempotency_key or self.details.idempotency_key
        if key is not None:
            self.headers = self.headers.copy()
            self.headers["Idempotency-Key"] = key
        now = session.backend.now()
        earlier = earlier or Sent(now)
        self.started: float = earlier.started
        self.deadline: float = min(now + session.limits.deadline, until)
        self.latest_start: float = self.deadline - endpoint.least_seconds(session)
        self.has_slot: bool = has_slot
        self.before_body = before_body
        self.attempts: int = earlier.attempts
        self.sent_at: datetime | None = earlier.first_at
        self.may_have_executed: bool = earlier.may_have_executed
        self.transaction_id: str | None = earlier.transaction_id
        self.request_id: str | None = None  # the service's id of the request that succeeded
        self.last_failure: AttemptFailed | None = None
        self.progress: Progress | None = None
        self.foreign_error: Exception | None = None

    @property
    def sent(self) -> Sent:
        """What was sent of the payment, by this call and before."""
        return Sent(self.started, self.attempts, self.sent_at, self.may_have_executed, self.transaction_id)

    async def acquire_slot(self) -> None:
        """Take the next attempt's slot in the rate budget, unless the call holds one."""
        # `Sender` calls this before it writes SENDING: a process that dies while it waits leaves no unresolved payment.
        self._check_stk_pause()
        if not self.has_slot:
            has_waited = await self.session.acquire_slot(self.lane, latest=self.latest_start, describe=self._describe)
            self.has_slot = True
            if has_waited:  # a pause may have begun meanwhile
                self._check_stk_pause()

    async def run(self) -> R:
        """Return the record, after as many attempts as the retry policy allows, or raise the final error."""
        if self.endpoint.envelope is not None:
            build_parser(self.endpoint.envelope)
        try:
            try:
                return await self._attempt()
            except AttemptFailed as failure:
                first = failure
            return await self._retry(first)
        except Exception as obstacle:
            if obstacle is self.foreign_error:  # a bug in the user's transport, which the user must see
                self._log_interruption()
                raise
            # What prevents a retry (a budget, an STK pause) does not decide the error: the earlier attempts do.
            if self.last_failure is None or not (
                self.may_have_executed or isinstance(obstacle, AttemptFailed | BudgetExhaustedError)
            ):
                raise
            error, cause = self._final_error(self.last_failure)
        except BaseException:
            self._log_interruption()
            raise
        finally:
            if self.session.events is not None:  # for an interrupt now or later, which has no such attribute
                self.session.events.may_have_executed |= self.may_have_been_sent
        raise error from cause

    @property
    def may_have_been_sent(self) -> bool:
        """Whether a request with an effect is being sent or has succeeded, or an earlier attempt may have executed."""
        may_have_executed = self.may_have_executed and self.endpoint.retry_policy.has_effect
        return may_have_executed or (self.progress is not None and not self.progress.is_unsent)

    async def _attempt(self) -> R:
        await self.acquire_slot()
        self.has_slot = False
        started = self.session.backend.now()
        self.attempts += 1
        response: RawResponse | None = None
        try:
            response = await self._send(started)
            record = self._parse(response)
        except NoResponseError as error:
            failure = failure_without_response(error, self.url)
        except AttemptFailed as error:
            failure = error
        except BaseException as error:
            self._report_attempt(started, response, error, is_sent=self.progress is None or not self.progress.is_unsent)
            raise
        else:
            self._report_attempt(started, response, None)
            return record
        self.last_failure = failure
        self.may_have_executed = self.may_have_executed or failure.kind in MAY_HAVE_EXECUTED
        # Not before the line above: an interrupt between the two must still see that the request may have been sent.
        self.progress = None
        await self._apply_pauses(failure)
        self._report_attempt(started, response, failure)
        raise failure

    async def _retry(self, first: AttemptFailed) -> R:
        """Make further attempts while policy, attempts and deadline allow; then raise the last failure."""
        limits, now, retries_on = self.session.limits, self.session.backend.now, self.endpoint.retry_policy.retries_on
        if first.kind not in retries_on or limits.max_attempts == 1:
            raise first
        # Loaded here because most calls succeed at once, and tenacity costs a cold start several milliseconds.
        load_tenacity()
        import tenacity  # noqa: PLC0415

        made = [first]
        max_wait = inf if self.lane is Lane.POLL or limits.max_wait is None else limits.max_wait
        # Full jitter spreads out clients that failed together; with a fixed delay they would collide again.
        backoff = tenacity.wait_random_exponential(multiplier=BASE_BACKOFF, max=MAX_BACKOFF)

        async def attempt() -> R:
            if made:  # the attempt before `_retry`
                raise made.pop()
            return await self._attempt()

        def last() -> AttemptFailed:
            return cast("AttemptFailed", self.last_failure)

        def wait(state: tenacity.RetryCallState) -> float:
            return max(backoff(state), last().retry_after or 0.0)  # never earlier than the service asked

        def is_over(state: tenacity.RetryCallState) -> bool:
            # A pause that a 429 orders counts as a wait for the rate budget.
            if last().kind is FailureKind.RATE_LIMITED and state.upcoming_sleep > max_wait:
                return True
            return state.attempt_number >= limits.max_attempts or now() + state.upcoming_sleep >= self.deadline

        def report(state: tenacity.RetryCallState) -> None:
            pause, error = state.upcoming_sleep, last().error
            text = "%s: retrying in %.2f s after attempt %d: %s"
            logger.warning(text, self._describe(), pause, state.attempt_number, error)
            self.report_retry(pause, error)

        retrying = tenacity.AsyncRetrying(
            sleep=self.session.backend.sleep,
            stop=is_over,
            wait=wait,
            retry=tenacity.retry_if_exception(
                lambda error: isinstance(error, AttemptFailed) and error.kind in retries_on
            ),
            before_sleep=report,
            reraise=True,
        )
        return await retrying(attempt)

    def _check_stk_pause(self) -> None:
        if self.endpoint.prompts:
            refusal = self.session.stk_pause.refusal(self.session.backend.now())
            if refusal is not None:
                raise refusal

    async def _send(self, started: float) -> RawResponse:
        session, endpoint = self.session, self.endpoint
        if started >= self.latest_start:
            raise NotSentError("too little time is left until the deadline")
        # The first attempt's time, because a search for the payment must cover all attempts that may have executed.
        if endpoint.retry_policy.needs_reconciliation and self.sent_at is None:
            self.sent_at = datetime.now(UTC)
        self.progress = Progress() if endpoint.retry_policy.has_effect else None
        if self.progress is not None:
            self.progress.until, self.progress.before_body = self.deadline, self.before_body
        try:
            response: RawResponse = await session.backend.send(
                endpoint.method,
                session.account.base_url + self.path,
                self.headers,
                self.body,
                timeout=min(session.limits.timeout, self.deadline - started),
                progress=self.progress,
            )
        except NoResponseError as error:
            # A call that returns nothing has succeeded once a 2xx status has arrived, even if the body has not.
            if endpoint.envelope is None and error.status is not None and is_success(error.status):
                return RawResponse(error.status, Headers(), b"")
            raise
        except Exception as error:
            if not isinstance(error, MomoPayError):
                self.foreign_error = error
            raise
        if endpoint.retry_policy.needs_reconciliation:
            session.clock.observe(response.headers)
        session.note_remaining(response.headers)
        return response

    def _parse(self, response: RawResponse) -> R:
        if self.endpoint.envelope is None:
            check_success(response, self.url)
            record = cast("R", Record())
        else:
            parsed = parse_envelope(response, self.endpoint.envelope, self.url, vars(self.details))
            record, self.request_id = parsed.data, parsed.request_id
        elapsed = self.session.backend.now() - self.started
        if isinstance(record, Record):  # what `client.request` returns may be anything
            info = ResponseInfo(self.request_id, response.status, response.headers, self.attempts, elapsed)
            note_response(record, info)
            if isinstance(record, StkTransaction | Payout):  # the service may not find its id at once
                self.session.given_ids.add([record.transaction_id])
        return record

    async def _apply_pauses(self, failure: AttemptFailed) -> None:
        """Start the pauses that a failure orders for later calls; keep the transaction id that it may contain."""
        session = self.session
        # An id in a broken response is the surest way to find the payment again.
        if self.endpoint.retry_policy.needs_reconciliation and self.transaction_id is None:
            self.transaction_id = transaction_id_in(failure.body)
        if failure.kind is FailureKind.RATE_LIMITED and failure.retry_after is not None:
            await session.pause(failure.retry_after)
        # A ban or a block. A 503 with such a code orders no pause, because the status outranks the code.
        if failure.kind is FailureKind.REFUSED and isinstance(failure.error, ThrottledError):
            session.stk_pause.begin(session.backend.now(), failure.error)

    def _final_error(self, failure: AttemptFailed) -> tuple[MomoPayError, BaseException | None]:
        """Return the error to raise for the last failure, and its cause."""
        policy = self.endpoint.retry_policy
        if policy.needs_reconciliation and self.may_have_executed and failure.kind not in policy.raises_own_error:
            unknown = OutcomeUnknownError(
                f"{self._describe()} may have executed: {str(failure.error).rstrip('.')}."
                f" Reconcile it before anything is sent again (reference {self.details.reference!r})",
                sent_at=self.sent_at or datetime.now(UTC),
                transaction_id=self.transaction_id,
                **vars(self.details),
            )
            return unknown, None if failure.kind is FailureKind.OTHER_PAYMENT else failure.error
        # A refusal is definite for the attempt that it answers. It says nothing about an earlier one.
        if policy.has_effect and self.may_have_executed:
            failure.error.may_have_executed = True
        return failure.error, failure.error.__cause__

    def _log_interruption(self) -> None:
        if self.may_have_been_sent:
            logger.error(
                "%s was interrupted: its outcome is unknown, reference %s",
                self._describe(),
                redacted_repr(self.details.reference),
            )

    def report_retry(self, seconds: float, error: MomoPayError) -> None:
        events = self.session.events
        if events is not None:
            events.retry_scheduled(
                method=self.endpoint.method, route=self._route(), attempt=self.attempts, seconds=seconds, error=error
            )

    def _report_attempt(
        self, started: float, response: RawResponse | None, failed: BaseException | None, *, is_sent: bool = True
    ) -> None:
        """Log and report the end of an attempt. `failed` is an AttemptFailed, or the exception that interrupted it."""
        events, is_logged = self.session.events, logger.isEnabledFor(logging.DEBUG)
        if events is None and not is_logged:
            return
        seconds = self.session.backend.now() - started
        status = None if response is None else response.status
        error, request_id = failed, self.request_id
        if isinstance(failed, AttemptFailed):
            error, is_sent = failed.error, failed.kind is not FailureKind.NOT_SENT
            request_id = getattr(failed.error, "request_id", None)
        if is_logged:
            # The text of an error that is not ours may contain a key or a phone.
            outcome = str(error) if isinstance(error, MomoPayError) else type(error).__name__
            outcome = f"{status}, request {request_id}" if error is None else outcome
            text = "%s: attempt %d, lane %s, %.3f s: %s"
            logger.debug(text, self._describe(), self.attempts, self.lane.value, seconds, outcome)
        if events is not None:
            events.attempt_ended(
                self.session.account.base_url,
                status=status,
                request_id=request_id,
                error=error,
                method=self.endpoint.method,
                route=self._route(),
                attempt=self.attempts,
                seconds=seconds,
                is_sent=is_sent,
            )

    def _route(self) -> str:
        path = self.path.partition("?")[0]
        return path.rpartition("/")[0] + "/{id}" if self.endpoint.has_id else redact(path)

    def _describe(self) -> str:
        """Return the call's name for messages, without its query and redacted: query and id may contain a phone."""
        return redact(f"{self.endpoint.operation} ({self.endpoint.method} {self.path.partition('?')[0]})")
