"""The points that the service page leaves open, as data; and what a probe found of them, kept as a TOML file."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any, Final, NamedTuple, Self, TypeAlias

from momopay._redaction import redact
from momopay.errors import ConfigurationError
from momopay.probe.wire import THROTTLED, Answer

Value: TypeAlias = bool | int | str | list[str]


class Cost(Enum):
    """What it costs to learn a row. The value is the option that allows it."""

    READS = ""
    WRITE = "--write"
    RATE = "--rate"
    SPEND = "--spend"
    OUTSIDE = "cannot be found from outside"


@dataclass(frozen=True)
class Row:
    """One open point, as docs/go-live/probe.md describes it.

    Attributes:
        name: Its name in a profile. A switch of the sandbox has the same name.
        cost: What it costs to learn.
        values: The values of the sandbox's switch that a probe can find; empty for any value, and for a fact.
        is_switch: Whether the sandbox has a switch for it.
    """

    name: str
    cost: Cost
    values: tuple[bool | int | str, ...] = ()
    is_switch: bool = False


# What a run would need in order to learn a row that it could not tell.
NEEDS: Final = {
    Cost.READS: "Needs an answer that shows it, such as a transaction in the account's list; --spend makes one.",
    Cost.WRITE: "Needs --write, and an answer that shows it.",
    Cost.RATE: "Needs --rate, and an answer that shows it.",
    Cost.SPEND: "Needs --spend 1 --phone, with the prompt cancelled or left alone.",
    Cost.OUTSIDE: "Cannot be found from outside.",
}
NEEDS_MORE: Final = {
    "duplicate_reference": "Needs --spend 2 --phone, with the first prompt cancelled or left alone.",
    "payout_keys": "Needs --spend 20 --phone, and KES 20 in the B2C wallet.",
    "payout_callback_field": "Needs --spend 20 --phone, and a read that shows the callback URL.",
}
_FLAG: Final = (False, True)
# For each cost, the values of some switches, and their names.
_SWITCHES: Final[tuple[tuple[Cost, tuple[bool | int | str, ...], tuple[str, ...]], ...]] = (
    (Cost.READS, ("camelCase", "snake_case"), ("naming", "item_naming")),
    (Cost.READS, ("CANCELLED", "FAILED"), ("cancel_ends_as",)),
    (Cost.READS, ("EXPIRED", "FAILED"), ("expired_reads_as",)),
    (Cost.READS, (400, 404), ("transaction_not_found_status",)),
    (Cost.READS, ("whole", "masked"), ("list_phone",)),
    (Cost.READS, ("amount", "with_fee"), ("list_amount",)),
    (Cost.READS, ("upper", "lower"), ("list_type",)),
    (Cost.READS, ("utc", "local"), ("list_times",)),
    (Cost.READS, ("nextCursor", "next_cursor"), ("cursor_field",)),
    (Cost.READS, ("WALLET_TOPUP", "WALLET_TOPUP_SERVICE_TOKENS"), ("topup_type",)),
    (Cost.READS, ("text", "array"), ("error_messages",)),
    (Cost.READS, _FLAG, ("overview", "minimal_answers", "receipt_in_reads", "customer_in_reads")),
    (Cost.READS, _FLAG, ("invalid_uuid", "rate_limit_headers", "channel_reads", "more_endpoints")),
    (Cost.READS, _FLAG, ("raw_keys", "more_codes", "time_filters", "more_filters")),
    (Cost.READS, (), ("receipt_field",)),
    (Cost.WRITE, (200, 201, 202), ("created_status",)),
    (Cost.WRITE, ("envelope", "empty"), ("delete_answer",)),
    (Cost.WRITE, ("refuse", "ignore"), ("immutable_channel_fields",)),
    (Cost.WRITE, ("CHANNEL_NOT_FOUND", "TRANSACTION_NOT_FOUND"), ("patch_unknown_channel",)),
    (Cost.WRITE, ("TILL_NUMBER", "TILL", "SHORTCODE", "any"), ("channel_types",)),
    (Cost.WRITE, ("specified", "contract"), ("field_limits",)),
    (Cost.RATE, ("fixed", "sliding"), ("rate_window",)),
    (Cost.RATE, ("RATE_LIMIT_EXCEEDED", "RATE_LIMITED", "RATE_LIMIT", "HTTP_429"), ("rate_limit_code",)),
    (Cost.SPEND, _FLAG, ("fee_refunded_on_failure", "strict_fields")),
    (Cost.SPEND, ("ignored", "honoured", "forgotten"), ("payout_keys",)),
    (Cost.SPEND, ("callbackUrl", "callback_url"), ("payout_callback_field",)),
    (Cost.OUTSIDE, (), ("late_pin", "callback_on_reversed", "callback_on_processing", "callback_posts")),
    (Cost.OUTSIDE, (), ("strict_callback_urls", "health_rule", "ban_pushes", "ban_window", "ban_success_rate")),
    (Cost.OUTSIDE, (), ("topup_answer", "topup_keys", "long_texts", "prompt_kyc", "payout_credentials")),
    (Cost.OUTSIDE, ("pk", "any"), ("key_prefixes",)),
)
SWITCHES: Final = tuple(Row(name, cost, values, is_switch=True) for cost, values, names in _SWITCHES for name in names)

_FACTS: Final = {
    Cost.READS: (
        "unusable",  # what the SDK cannot read or use
        # Every answer
        *("read_statuses", "envelope_fields"),
        # What can be read, and how it is written
        *("balance_read", "payout_wallet_read", "balance_fields", "balance_amounts", "balance_time_format"),
        *("channels_read", "channel_page_fields", "channel_fields", "channel_time_format"),
        *("list_read", "page_fields"),
        *("list_fields", "list_amounts", "list_status"),
        *("transaction_read", "read_fields", "read_amounts", "read_phone", "read_status"),
        *("read_type", "read_time_format", "read_result_codes"),
        # Refusals, and parameters of the list
        *("transaction_not_found", "malformed_transaction_id", "unknown_path"),
        *("limit_of_zero", "limit_above_100", "invalid_cursor", "unknown_parameter"),
        *("unknown_status_filter", "invalid_time_filter", "invalid_amount_filter", "invalid_channel_filter"),
    ),
    Cost.WRITE: ("new_channel_is_default",),
    Cost.RATE: ("rate_limit", "retry_after"),
    Cost.SPEND: ("read_delay", "list_delay", "duplicate_reference"),
}
ROWS: Final = (*SWITCHES, *(Row(name, cost) for cost, names in _FACTS.items() for name in names))
BY_NAME: Final[Mapping[str, Row]] = {row.name: row for row in ROWS}
# A list shows some values on one day and others on another, so only a new value is a change.
VARYING: Final = frozenset({"list_amounts", "list_phone", "list_status", "list_type", "topup_type", "unusable"})

UNKNOWN: Final = "unknown"
_MOST_REQUESTS: Final = 5
FORMAT: Final = 1
_SWITCH_NAMES: Final = frozenset(row.name for row in SWITCHES)
_HEAD: Final = "# What the service does where its description leaves it open. Written by `momopay probe`.\n"


@dataclass(frozen=True)
class Finding:
    """What was found about one row.

    Attributes:
        value: What the service does; ``"unknown"`` if that was not seen, or if the sandbox's switch has no such value.
        sentence: What was seen, or what is needed to see it.
        request_ids: The requests whose responses show it.
        unnamed: What the service does, if the sandbox's switch has no such value.
    """

    value: Value
    sentence: str
    request_ids: tuple[str, ...] = ()
    unnamed: Value | None = None

    @property
    def is_known(self) -> bool:
        """Whether the value is known, so that the sandbox can do the same."""
        return self.value != UNKNOWN

    @property
    def seen(self) -> Value | None:
        """What the service does, whether or not a switch has such a value; None if the probe could not tell."""
        return self.value if self.is_known else self.unnamed


class Findings:
    """The findings of one run, by the name of the row. It removes the API key from what the service returned."""

    def __init__(self, key: str) -> None:
        self._key = key
        self.unusable: set[str] = set()  # what the SDK cannot read or use
        self._created = set[int]()  # the HTTP statuses of creations
        needs = {row.name: NEEDS[row.cost] for row in ROWS} | NEEDS_MORE
        self.found: dict[str, Finding] = {row.name: Finding(UNKNOWN, needs[row.name]) for row in ROWS}

    def add(self, name: str, seen: Value | None, *answers: Answer, sentence: str = "") -> None:
        """Record what was seen. None means that nothing was seen, and does not replace an earlier finding."""
        if seen is None and self.found[name].seen is not None:
            return
        summaries = ", then ".join(dict.fromkeys(answer.summary for answer in answers))
        shown = self._clean(sentence or f"The service answered {summaries}.")
        if isinstance(seen, str | list):
            seen = self._clean(seen) if isinstance(seen, str) else [self._clean(each) for each in seen]
        ids = dict.fromkeys(each.request_id.replace(self._key, "*****") for each in answers if each.request_id)
        values, evidence = BY_NAME[name].values, (shown, tuple(ids)[:_MOST_REQUESTS])
        if seen is not None and (not values or any(seen == each for each in values)):
            self.found[name] = Finding(seen, *evidence)
        else:
            self.found[name] = Finding(UNKNOWN, *evidence, seen)

    def add_outcome(self, name: str, answer: Answer) -> None:
        """Record whether the service accepted a request, or how it refused it."""
        seen = "accepted" if answer.is_success and answer.envelope else answer.summary
        self.add(name, None if answer.status == THROTTLED else seen, answer)

    def add_created(self, answer: Answer) -> None:
        """Record the HTTP status of a creation, with those of the earlier ones if they differ."""
        if answer.is_success and answer.status is not None:
            self._created.add(answer.status)
            several = ", ".join(map(str, sorted(self._created)))
            self.add("created_status", answer.status if len(self._created) == 1 else several, answer)

    def _clean(self, text: str) -> str:
        return redact("".join(each if each.isprintable() else "?" for each in text.replace(self._key, "*****")))


class Change(NamedTuple):
    """A row for which another value was seen than before."""

    name: str
    before: Value
    now: Value


@dataclass(frozen=True)
class Profile:
    """What a probe learned.

    Attributes:
        findings: The findings by the name of the row.
        about: The table ``[probe]``: ``format``, ``momopay`` (its version), ``date``, ``host``, ``key`` (``test`` or
            ``live``) and ``asked`` (the steps so far: ``reads``, ``write``, ``rate``, ``spend``).
    """

    findings: Mapping[str, Finding]
    about: Mapping[str, Any]

    @property
    def switches(self) -> dict[str, Value]:
        """The values of all switches of the sandbox, ``"unknown"`` where the probe could not tell."""
        return {name: each.value for name, each in self.findings.items() if name in _SWITCH_NAMES}

    @property
    def facts(self) -> dict[str, Value]:
        """The values of all other rows."""
        return {name: each.value for name, each in self.findings.items() if name not in _SWITCH_NAMES}

    def changes_since(self, before: Profile) -> list[Change]:
        """Return the rows whose value differs from an earlier profile, also where no switch has such a value."""
        then, now = before._seen, self._seen
        changed = (name for name in self.compared(before) if not _is_same(name, then[name], now[name]))
        return [Change(name, then[name], now[name]) for name in changed]

    def compared(self, before: Profile) -> list[str]:
        """Return the names of the rows for which both profiles have a value."""
        return [name for name in self._seen if name in before._seen]

    def not_compared(self, before: Profile) -> list[str]:
        """Return the names of the rows for which an earlier profile has a value and this one has none."""
        return [name for name in before._seen if name not in self._seen]

    @property
    def _seen(self) -> dict[str, Value]:
        return {name: each.seen for name, each in self.findings.items() if each.seen is not None}

    def to_toml(self) -> str:
        """Return the profile as TOML: the tables ``probe``, ``switches``, ``facts`` and ``evidence``."""
        tables = [_table("probe", self.about), _table("switches", self.switches), _table("facts", self.facts)]
        for name, each in self.findings.items():
            shown = {"sentence": each.sentence, "request_ids": list(each.request_ids), "unnamed": each.unnamed}
            tables.append(_table(f"evidence.{name}", shown))
        return _HEAD + "\n".join(tables)

    def save(self, path: str | Path) -> None:
        """Write the profile to a file. A crash leaves the old file or the new one."""
        target = Path(path)
        written = target.with_name(f"{target.name}.{os.getpid()}.part")
        try:
            written.write_text(self.to_toml(), encoding="utf-8")
            written.replace(target)
        finally:
            written.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Return the profile in a file; raise `ConfigurationError` if the file is not a profile."""
        try:
            document: dict[str, Any] = tomllib.loads(Path(path).read_text(encoding="utf-8"))
            if document["probe"]["format"] != FORMAT:
                raise ValueError(f"this version reads the format {FORMAT}")
            findings = dict[str, Finding]()
            for name, value in {**document["switches"], **document["facts"]}.items():
                shown = document["evidence"][name]
                findings[name] = Finding(value, shown["sentence"], tuple(shown["request_ids"]), shown.get("unnamed"))
            return cls(findings, document["probe"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            why = f"{type(error).__name__}: {error}"
            raise ConfigurationError(f"{path} is no profile of momopay probe: {why}") from error


def _is_same(name: str, then: Value, now: Value) -> bool:
    if name not in VARYING:
        return then == now
    return set(now if isinstance(now, list) else [now]).issubset(then if isinstance(then, list) else [then])


def _table(name: str, values: Mapping[str, object]) -> str:
    lines = [f"{key} = {_toml(value)}" for key, value in values.items() if value is not None]
    return "\n".join([f"[{name}]", *lines, ""])


def _toml(value: object) -> str:
    # TOML writes booleans, integers, strings and lists of strings as JSON does, apart from DEL.
    if isinstance(value, datetime):
        return value.isoformat()
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
