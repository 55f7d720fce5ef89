"""What a probe found: a value for each row, with the sentence and the requests that show it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from momopay._redaction import redact
from momopay.probe.answers import Answer
from momopay.probe.rows import Row
from momopay.probe.table import BY_NAME, ROWS

Value: TypeAlias = bool | int | str | list[str]

UNKNOWN: Final = "unknown"
_MOST_REQUESTS: Final = 5


@dataclass(frozen=True)
class Finding:
    """What was found about one row.

    Attributes:
        value: What the service does; ``"unknown"`` if the probe could not tell.
        sentence: What was seen, or what it would take to see it.
        request_ids: The requests whose answers show it.
    """

    value: Value
    sentence: str
    request_ids: tuple[str, ...] = ()

    @property
    def is_known(self) -> bool:
        """Whether the probe could tell."""
        return self.value != UNKNOWN


class Findings:
    """The findings of one run, by the name of the row. No secret gets past it, whatever the service answered."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._secrets = [secret for secret in secrets if secret]
        self._found: dict[str, Finding] = {}

    def add(self, name: str, value: Value, sentence: str, *answers: Answer) -> None:
        """Keep a finding; one that says nothing does not replace one that does."""
        row = BY_NAME[name]
        if row.values and value != UNKNOWN and not any(value is each or value == each for each in row.values):
            # The sandbox cannot behave so; the sentence says what the service does.
            value, sentence = UNKNOWN, f"{sentence} The sandbox's switch has no value for that."
        if value == UNKNOWN and name in self._found and self._found[name].is_known:
            return
        ids = dict.fromkeys(each.request_id for each in answers if each.request_id is not None)
        if isinstance(value, str):
            value = self._clean(value)
        elif isinstance(value, list):
            value = [self._clean(each) for each in value]
        self._found[name] = Finding(
            value, self._clean(sentence), tuple(map(self._clean_id, list(ids)[:_MOST_REQUESTS]))
        )

    def all(self, asked: Collection[str] = ()) -> Mapping[str, Finding]:
        """Return a finding for each row, in the order of the table.

        Args:
            asked: The options that the run had, such as ``write``.
        """
        return {row.name: self._found.get(row.name) or _missing(row, asked) for row in ROWS}

    def _clean(self, text: str) -> str:
        return redact(self._clean_id("".join(each if each.isprintable() else "?" for each in text)))

    def _clean_id(self, text: str) -> str:
        # Without `redact`, which could take the digits of a UUID for a phone.
        for secret in self._secrets:
            text = text.replace(secret, "*****")
        return text


def _missing(row: Row, asked: Collection[str]) -> Finding:
    option = row.cost.value.removeprefix("--")
    # "Needs --write." helps nobody who gave it.
    if option in asked and row.needs.rstrip(".") == f"Needs {row.cost.value}":
        return Finding(UNKNOWN, f"Asked with {row.cost.value}, and no answer showed it.")
    return Finding(UNKNOWN, row.needs)
