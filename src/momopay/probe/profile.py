"""A profile: what a probe learned of a service, as a TOML file, and what changed between two of them."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Self, cast

from momopay import __version__
from momopay.errors import ConfigurationError
from momopay.probe.findings import Finding, Value
from momopay.probe.table import BY_NAME
from momopay.probe.toml import table

_FORMAT: Final = 1
_HEAD: Final = "# What the service does where its description leaves it open. Written by `momopay probe`.\n"


@dataclass(frozen=True)
class Change:
    """A row whose value is another one than before.

    Attributes:
        name: The name of the switch or fact.
        before: What it was.
        now: What it is.
    """

    name: str
    before: Value
    now: Value


@dataclass(frozen=True)
class Profile:
    """What a probe learned.

    Attributes:
        findings: By the name of the row, each with its evidence.
        host: The service's host.
        key: ``test`` or ``live``: the kind of the key that was used.
        asked: What was allowed: ``reads``, and ``write``, ``rate``, ``spend``.
        date: When.
        version: The version of momopay.
    """

    findings: Mapping[str, Finding]
    host: str
    key: str
    asked: tuple[str, ...]
    date: datetime
    version: str = __version__

    @property
    def switches(self) -> dict[str, Value]:
        """The values of the sandbox's switches, ``"unknown"`` where the probe could not tell."""
        return {name: each.value for name, each in self.findings.items() if _is_switch(name)}

    @property
    def facts(self) -> dict[str, Value]:
        """The values of everything else."""
        return {name: each.value for name, each in self.findings.items() if not _is_switch(name)}

    def changes_since(self, before: Profile) -> list[Change]:
        """Return what has another value than in an earlier profile. What either of them does not know is no change."""
        pairs = [(name, before.findings[name].value, self.findings[name].value) for name in self.compared(before)]
        return [Change(name, then, now) for name, then, now in pairs if then != now]

    def compared(self, before: Profile) -> list[str]:
        """Return the names that both profiles know."""
        known = [name for name, each in self.findings.items() if each.is_known]
        return [name for name in known if name in before.findings and before.findings[name].is_known]

    def not_compared(self, before: Profile) -> list[str]:
        """Return the names that an earlier profile knows and this one does not."""
        compared = set(self.compared(before))
        return [name for name, each in before.findings.items() if each.is_known and name not in compared]

    def to_toml(self) -> str:
        """Return the text of the file: the tables ``probe``, ``switches``, ``facts`` and ``evidence``."""
        about = {
            "format": _FORMAT,
            "momopay": self.version,
            "date": self.date.astimezone(UTC).replace(microsecond=0),
            "host": self.host,
            "key": self.key,
            "asked": list(self.asked),
        }
        tables = [table("probe", about), table("switches", self.switches), table("facts", self.facts)]
        for name, each in self.findings.items():
            shown = {"sentence": each.sentence, "request_ids": list(each.request_ids)}
            tables.append(table(f"evidence.{name}", shown))
        return _HEAD + "\n".join(tables)

    def save(self, path: str | Path) -> None:
        """Write the file; a crash leaves the old one or the new one.

        Raises:
            OSError: It cannot be written.
        """
        target = Path(path)
        written = target.with_name(f"{target.name}.{os.getpid()}.part")
        try:
            written.write_text(self.to_toml(), encoding="utf-8")
            written.replace(target)
        finally:
            written.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Return the profile of a file.

        Raises:
            ConfigurationError: It cannot be read, or is no profile, or one of a newer format.
        """
        try:
            document = tomllib.loads(Path(path).read_text(encoding="utf-8"))
            return cls._parsed(document)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            problem = f"it has no {error}" if isinstance(error, KeyError) else error
            raise ConfigurationError(f"{path} is no profile of momopay probe: {problem}") from error

    @classmethod
    def _parsed(cls, document: Mapping[str, Any]) -> Self:
        about = document["probe"]
        if about["format"] != _FORMAT:
            raise ValueError(f"its format is {about['format']}, and this version reads {_FORMAT}")
        findings = dict[str, Finding]()
        for name, value in {**document["switches"], **document["facts"]}.items():
            evidence = cast("dict[str, Any]", document.get("evidence", {}).get(name, {}))
            ids = tuple(map(str, evidence.get("request_ids", ())))
            findings[name] = Finding(value, str(evidence.get("sentence", "")), ids)
        date = about["date"]
        if not isinstance(date, datetime):
            raise TypeError("its date is no time")
        return cls(findings, about["host"], about["key"], tuple(about["asked"]), date, about["momopay"])


def _is_switch(name: str) -> bool:
    return name in BY_NAME and BY_NAME[name].is_switch
