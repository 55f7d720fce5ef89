"""What a call of `pay_once` or `collect_once` said, the same for every client and written down for the judge."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager

from campaign.judge import Said, Word
from momopay import (
    ConfigurationError,
    DuplicateCollectionError,
    DuplicatePayoutError,
    EntryKind,
    JournalError,
    MomoPayError,
    Payment,
)
from strikes import StruckError


class Ear:
    """Takes what a call returned."""

    record: Payment | None = None


@contextmanager
def heard(tell: Callable[[Word], None], call: str, reference: str, clock: Callable[[], float]) -> Generator[Ear]:
    """Hear how one call ends, and tell. A kill is not heard."""
    ear, begun, error = Ear(), clock(), ""
    try:
        yield ear
        is_open = ear.record is not None and ear.record.kind is EntryKind.COLLECTION and not ear.record.is_paid
        said = Said.OPEN if is_open else Said.PAID
    except (DuplicatePayoutError, DuplicateCollectionError):
        said = Said.DUPLICATE
    except ConfigurationError as failure:
        said, error = Said.MISCONFIGURED, str(failure)
    except JournalError as failure:
        # It speaks of the payout, not of this call alone.
        said = Said.IN_DOUBT if failure.may_have_executed else Said.NO_JOURNAL
        error = str(failure)
    except MomoPayError as failure:
        said = Said.UNKNOWN if failure.may_have_executed else Said.FAILED
        error = type(failure).__name__
    except asyncio.CancelledError:
        said = Said.CANCELLED
    except StruckError:
        said = Said.STRUCK
    except Exception as failure:  # noqa: BLE001  an untyped error is what is looked for
        # pydantic and Python raise errors of their own for what strikes while they build a class that is needed first.
        struck = StruckError.__name__ in f"{failure!r} {failure.__cause__!r}"
        said, error = Said.STRUCK if struck else Said.UNTYPED, repr(failure)
    record = ear.record
    told = (None, None) if record is None else (record.transaction_id, record.amount)
    tell(Word(call, reference, said, begun, clock(), error, *told))
