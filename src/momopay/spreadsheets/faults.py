"""What is wrong with a file: each fault with its place, its value and its remedy, and one error for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from momopay._redaction import mask_phone
from momopay.errors import RequestValidationError

_MOST_NAMED: Final = 20
_SHORTEST_PHONE: Final = 9  # digits; fewer identify nobody, and masked they would look like another number
_LONGEST_VALUE: Final = 60  # characters that a message shows


@dataclass(frozen=True)
class FileFault:
    """One thing that is wrong with a file.

    Attributes:
        line: The line of a CSV file on which the row begins, or the row of a sheet. 0 for the file as a whole.
        column: The name of the column; "" for the row as a whole.
        problem: What is wrong.
        remedy: What to do about it.
        reference: The row's reference, if it has one.
        value: What the cell has. It may be a phone.
    """

    line: int
    column: str
    problem: str
    remedy: str = ""
    reference: str = field(default="", repr=False)
    value: str = field(default="", repr=False)

    @property
    def masked_value(self) -> str:
        """The value, with a phone masked: a malformed one is not recognised in a text, but by its column."""
        is_phone = self.column == "phone" and sum(map(str.isdigit, self.value)) >= _SHORTEST_PHONE
        return mask_phone(self.value) if is_phone else self.value


class FaultyFileError(RequestValidationError):
    """A file cannot be used as it is. Nothing was read of it, and nothing was sent.

    The message names at most 20 faults, and how many there are.

    Attributes:
        faults: Everything that is wrong, by line.
        summary: The message without the faults.
    """

    remedy: str = "correct the lines that are shown, then run it again; nothing was sent"

    def __init__(self, summary: str, faults: Sequence[FileFault], *, remedy: str | None = None) -> None:
        if remedy is not None:
            self.remedy = remedy
        self.faults: list[FileFault] = sorted(faults, key=lambda fault: fault.line)
        named: dict[str, str] = {}
        for each in self.faults[:_MOST_NAMED]:
            place = ", ".join(
                part for part in (f"line {each.line}" * bool(each.line), each.reference, each.column) if part
            )
            shown = each.masked_value[:_LONGEST_VALUE]
            text = f"{shown!r} " * bool(shown) + each.problem + (f": {each.remedy}" if each.remedy else "")
            key = place or "file"
            named[key] = f"{named[key]}; {text}" if key in named else text
        if len(self.faults) > _MOST_NAMED:
            named["and"] = f"{len(self.faults) - _MOST_NAMED} more faults"
        super().__init__({"file": f"{summary}; nothing was sent"} | named)
        self.summary: str = f"{summary}; nothing was sent"


def of_file(name: str, faults: Sequence[FileFault]) -> FaultyFileError:
    """Return the error for a file's own faults."""
    return FaultyFileError(f"{name}: {len(faults)} fault(s)", faults)
