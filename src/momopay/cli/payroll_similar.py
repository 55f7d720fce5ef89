"""Rows of a payroll that may be one payout: their references differ only in case, dashes or spaces."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from decimal import Decimal

import momopay
from momopay.cli.payroll_file import Fault, FaultyFileError, Row


def similar_references(rows: Sequence[Row], to_pay: Sequence[Row], journal: momopay.Journal | None) -> Iterator[Fault]:
    """Yield a fault for each row to pay whose reference is another spelling of one in the file or in the journal.

    Only with the same phone and amount: two people, or two sums, are two payouts.

    Args:
        rows: The whole file.
        to_pay: Those of its rows that are still to be paid.
        journal: Of the account; None if there is none yet.

    Raises:
        JournalError: The journal cannot be read.
    """
    from momopay.models.references import similarity_key  # loads pydantic

    same_payout: dict[tuple[str, str, Decimal], list[Row | momopay.JournalEntry]] = defaultdict(list)
    for row in rows:
        same_payout[similarity_key(row.reference), row.phone, row.amount].append(row)
    if journal is not None:
        from momopay.journal.journal import payments_of  # loads SQLAlchemy

        in_file = {row.reference for row in rows}
        for entry in payments_of(journal).to_phones({row.phone for row in to_pay}):
            if entry.reference not in in_file:
                same_payout[similarity_key(entry.reference), entry.phone, entry.amount].append(entry)
    pending = {row.line for row in to_pay}
    for row in to_pay:
        for other in same_payout[similarity_key(row.reference), row.phone, row.amount]:
            # Of two rows that are both to be paid, the second is at fault.
            if not isinstance(other, Row) or other.line < row.line or other.line not in pending:
                yield Fault(row.line, "reference", _problem(other))
                break


def _problem(other: Row | momopay.JournalEntry) -> str:
    where = f"that on line {other.line}" if isinstance(other, Row) else "one in the journal"
    seen = "" if isinstance(other, Row) else f" ({other.state}, {other.sent_at:%Y-%m-%d})"
    return f"differs from {where}{seen} only in case, dashes or spaces, and the phone and the amount are the same"


def check_similar(similar: list[Fault], *, allowed: bool) -> None:
    """Raise FaultyFileError for references that may be one payout, unless somebody has confirmed that they are not."""
    if similar and not allowed:
        raise FaultyFileError(
            f"{len(similar)} reference(s) may be another payout's, written in another way",
            similar,
            remedy="write them as they were written first; --allow-similar pays them beside the others",
        )
