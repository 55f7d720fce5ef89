"""What the simulation's network makes of the bank's answers."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from typing import Any

from campaign.bank import HTML, PAYOUT, refused
from momopay._transport.attempt import Headers, NoReplyError, NotSentError, RawResponse

BEFORE_COMMIT = {"not_sent", "reset_before_read", "error_before_commit", "html_502", "rate_limited"}
MISTAKES: Mapping[str, tuple[str, ...]] = {
    "other_transaction": ("transactionId",),
    "other_amount": ("amount",),
    "other_phone": ("phone",),
    "other_reference": ("reference", "accountReference"),
}
"""The fields of an acceptance that a fault changes."""
PAYOUT_FAULTS = (
    "not_sent",
    "reset_before_read",
    "reset_after_commit",
    "hang_after_commit",
    "late_commit",
    "error_before_commit",
    "error_after_commit",
    "request_timeout_after_commit",
    "html_502",
    "html_502_after_commit",
    "truncated",
    "truncated_json",
    "redirect_after_commit",
    "rate_limited",
    "refused_after_commit",
    *MISTAKES,
)
REFUSING = (200, 409, 425, 499)


def unexecuted(fault: str, headers: Headers) -> RawResponse:
    """Return the answer to a request that the bank never had, or raise."""
    match fault:
        case "not_sent":
            raise NotSentError("connection refused")
        case "reset_before_read":
            raise NoReplyError("reset")
        case "rate_limited":
            headers["Retry-After"] = "2"
            return RawResponse(429, headers, refused(429, "RATE_LIMIT_EXCEEDED")[1])
        case "error_before_commit":
            return RawResponse(500, headers, refused(500, "INTERNAL_ERROR")[1])
        case _:
            return RawResponse(502, headers, HTML)


def executed(
    fault: str, status: int, text: bytes, headers: Headers, rng: random.Random, known_ids: list[str]
) -> RawResponse:
    """Return what arrives of the answer to a request that the bank executed, or raise."""
    match fault:
        case "reset_after_commit" | "hang_after_commit":
            raise NoReplyError("reset, or no answer in time")
        case "truncated":
            raise NoReplyError("hung up", status=status, partial=text[: len(text) // 2])
        case "truncated_json":
            text = text[: len(text) // 2]
        case "error_after_commit":
            status, text = refused(500, "INTERNAL_ERROR")
        case "request_timeout_after_commit":
            status, text = 408, b""
        case "html_502_after_commit":
            status, text = 502, HTML
        case "redirect_after_commit":
            headers["Location"] = PAYOUT
            status, text = 307, b""
        case "refused_after_commit":
            status, text = refused(rng.choice(REFUSING), "REQUEST_CONFLICT")
        case _ if fault in MISTAKES and status == 200:
            text = _mistaken(fault, text, rng, known_ids)
        case _:
            pass
    return RawResponse(status, headers, text)


def _mistaken(fault: str, text: bytes, rng: random.Random, known_ids: list[str]) -> bytes:
    answer = json.loads(text)
    data: dict[str, Any] = answer["data"]
    # Only an id that the journal has as accepted: it cannot know of others.
    others = {"other_transaction": rng.choice(known_ids) if known_ids else data["transactionId"]}
    others |= {"other_amount": data["amount"] + 67, "other_phone": "254799999999", "other_reference": "SAL-OTHER"}
    answer["data"] = {name: others[fault] if name in MISTAKES[fault] else shown for name, shown in data.items()}
    return json.dumps(answer).encode()
