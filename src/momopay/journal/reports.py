"""What a `Journal` reports about all that it has."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from momopay.errors import ConfigurationError

if TYPE_CHECKING:  # at run time it needs SQLAlchemy
    from momopay.journal.refunds import Refunds


class Reports:
    """The part of `Journal` that reads, copies and clears what is in it."""

    _refunds_of: Callable[[str], Refunds]


def refunds_of(journal: object, of: str) -> Refunds:
    """Return the refunds of a collection; raise ConfigurationError if it is no journal."""
    if not isinstance(journal, Reports):
        raise ConfigurationError("journal must be a momopay.Journal")
    return journal._refunds_of(of)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  this module's own class
