"""What a probe found: a value for each row with its evidence, as a TOML file, and what changed between two of them."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple, Self, TypeAlias

from momopay._redaction import redact
from momopay.errors import ConfigurationError
from momopay.probe.rows import BY_NAME, NEEDS, ROWS, SWITCHES, VARYING
from momopay.probe.wire import THROTTLED, Answer

Value: TypeAlias = bool | int | str | list[str]

UNKNOWN: Final = "unknown"
_MOST_REQUESTS: Final = 5
FORMAT: Final = 1
_SWITCHES: Final = frozenset(row.name for row in SWITCHES)
_HEAD: Final = "# What the service does where its description leaves it open. Written by `momopay probe`.\n"


@dataclass(frozen=True)
class Finding:
    """What was found about one row.

    Attributes:
        value: What the service does; ``"unknown"`` if that was not seen, or the sandbox's switch has no value for it.
        sentence: What was seen, or what it would take to see it.
        request_ids: The requests whose answers show it.
        unnamed: What the service does, if the sandbox's switch has no value for it.
    """

    value: Value
    sentence: str
    request_ids: tuple[str, ...] = ()
    unnamed: Value | None = None

    @property
    def is_known(self) -> bool:
        """Whether the probe could tell, and the sandbox can do the same."""
        return self.value != UNKNOWN

    @property
    def seen(self) -> Value | None:
        """What the service does, also if no switch has a value for it; None if the probe could not tell."""
        return self.value if self.is_known else self.unnamed


class Findings:
    """The findings of one run, by the name of the row. No answer of the service gets the key past it."""

    def __init__(self, key: str) -> None:
        self._key = key
        self.found: dict[str, Finding] = {row.name: Finding(UNKNOWN, NEEDS[row.cost]) for row in ROWS}

    def add(self, name: str, seen: Value | None, *answers: Answer, sentence: str = "") -> None:
        """Keep what was seen; None, which says nothing, does not replace what does."""
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
        """Keep how the service answered a request that it may refuse."""
        seen = "accepted" if answer.is_success and answer.envelope else answer.summary
        self.add(name, None if answer.status == THROTTLED else seen, answer)

    def add_status(self, name: str, answer: Answer) -> None:
        """Keep the HTTP status of a success."""
        self.add(name, answer.status if answer.is_success else None, answer)

    def add_created(self, name: str, answer: Answer) -> None:
        """Keep the HTTP status of the answer to what was created; `created_status` has that of everything."""
        self.add_status(name, answer)
        earlier, now = self.found["created_status"].seen, self.found[name].seen
        both = now if now is None or earlier is None or earlier == now else f"{earlier}, {now}"
        self.add("created_status", both, answer)

    def _clean(self, text: str) -> str:
        return redact("".join(each if each.isprintable() else "?" for each in text.replace(self._key, "*****")))


class Change(NamedTuple):
    """A row about which something else was seen than before."""

    name: str
    before: Value
    now: Value


@dataclass(frozen=True)
class Profile:
    """What a probe learned.

    Attributes:
        findings: By the name of the row, each with its evidence.
        about: The table ``[probe]``: ``format``, ``momopay`` (its version), ``date``, ``host``, ``key`` (``test`` or
            ``live``) and ``asked`` (``reads``, and ``write``, ``rate``, ``spend`` as far as the run had come).
    """

    findings: Mapping[str, Finding]
    about: Mapping[str, Any]

    @property
    def switches(self) -> dict[str, Value]:
        """The values of all of the sandbox's switches, ``"unknown"`` where the probe could not tell."""
        return {name: each.value for name, each in self.findings.items() if name in _SWITCHES}

    @property
    def facts(self) -> dict[str, Value]:
        """The values of everything else."""
        return {name: each.value for name, each in self.findings.items() if name not in _SWITCHES}

    def changes_since(self, before: Profile) -> list[Change]:
        """Return what is answered differently than in an earlier profile, also if no switch has a value for it."""
        pairs = [(name, before.findings[name].seen, self.findings[name].seen) for name in self.compared(before)]
        return [
            Change(name, then, now)
            for name, then, now in pairs
            if then is not None and now is not None and not _is_same(name, then, now)
        ]

    def compared(self, before: Profile) -> list[str]:
        """Return the names about which both profiles saw something."""
        seen = [name for name, each in self.findings.items() if each.seen is not None]
        return [name for name in seen if name in before.findings and before.findings[name].seen is not None]

    def not_compared(self, before: Profile) -> list[str]:
        """Return the names about which an earlier profile saw something and this one did not."""
        compared = self.compared(before)
        return [name for name, each in before.findings.items() if each.seen is not None and name not in compared]

    def to_toml(self) -> str:
        """Return the text of the file: the tables ``probe``, ``switches``, ``facts`` and ``evidence``."""
        tables = [_table("probe", self.about), _table("switches", self.switches), _table("facts", self.facts)]
        for name, each in self.findings.items():
            shown = {"sentence": each.sentence, "request_ids": list(each.request_ids), "unnamed": each.unnamed}
            tables.append(_table(f"evidence.{name}", shown))
        return _HEAD + "\n".join(tables)

    def save(self, path: str | Path) -> None:
        """Write the file; a crash leaves the old one or the new one."""
        target = Path(path)
        written = target.with_name(f"{target.name}.{os.getpid()}.part")
        try:
            written.write_text(self.to_toml(), encoding="utf-8")
            written.replace(target)
        finally:
            written.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Return the profile of a file, or raise `ConfigurationError` if it is none."""
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
    # Flags, whole numbers, texts and lists of texts are written in TOML as in JSON, apart from DEL.
    if isinstance(value, datetime):
        return value.isoformat()
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
