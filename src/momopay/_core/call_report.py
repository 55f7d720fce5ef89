"""What a call logs of its attempts, and reports to the client's observer if there is one."""

from __future__ import annotations

import logging
from typing import Any

from momopay._core.endpoint import Endpoint
from momopay._core.retry import AttemptFailed, FailureKind
from momopay._core.session import Session
from momopay._ratelimit.budget import Lane
from momopay._redaction import redact
from momopay._transport import RawResponse
from momopay.errors import MomoPayError

logger: logging.Logger = logging.getLogger("momopay")


class CallReport:
    """The part of `Call` that decides nothing."""

    def __init__(self, session: Session[Any], endpoint: Endpoint[Any], path: str, lane: Lane) -> None:
        self.session = session
        self.endpoint = endpoint
        self.path = path
        self.lane = lane
        self.attempts: int = 0
        self.request_id: str | None = None
        """The service's id of the request that succeeded."""

    def report_retry(self, seconds: float, error: MomoPayError) -> None:
        """Report that the request is sent again after a pause."""
        operation = self.session.operation
        if operation is not None:
            operation.retry_scheduled(self.endpoint.method, self._route(), self.attempts, seconds, error)

    def _report_attempt(
        self,
        started: float,
        response: RawResponse | None,
        failed: BaseException | None,
        *,
        is_sent: bool = True,
    ) -> None:
        """Log and report that an attempt ended; `failed` is an AttemptFailed, or what interrupted it."""
        operation, is_logged = self.session.operation, logger.isEnabledFor(logging.DEBUG)
        if operation is None and not is_logged:
            return
        seconds = self.session.backend.now() - started
        status = None if response is None else response.status
        error, request_id = failed, self.request_id
        if isinstance(failed, AttemptFailed):
            error, is_sent = failed.error, failed.kind is not FailureKind.NOT_SENT
            request_id = getattr(failed.error, "request_id", None)
        if is_logged:
            # What interrupted it may be anybody's error, whose text may show anything.
            outcome = str(error) if isinstance(error, MomoPayError) else type(error).__name__
            outcome = f"{status}, request {request_id}" if error is None else outcome
            text = "%s: attempt %d, lane %s, %.3f s: %s"
            logger.debug(text, self._describe(), self.attempts, self.lane.value, seconds, outcome)
        if operation is not None:
            to = self.session.account.base_url, self.endpoint.method, self._route()
            operation.attempt_ended(*to, self.attempts, seconds, status, error, request_id, is_sent=is_sent)

    def _route(self) -> str:
        path = self.path.partition("?")[0]
        return path.rpartition("/")[0] + "/{id}" if self.endpoint.has_id else path

    def _describe(self) -> str:
        """Name the call without its query, which may hold a phone, as may what the caller gave as an id."""
        return redact(f"{self.endpoint.method} {self.path.partition('?')[0]}")
