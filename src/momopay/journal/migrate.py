"""Creates or upgrades a journal explicitly, for `Journal.migrate`: as a step of a deploy, by a role that may."""

from __future__ import annotations

from typing import Final

from momopay.journal.sharing import OpenDatabase
from momopay.journal.structure import differing_indexes, repair_indexes
from momopay.journal.upgrade import VERSION, NoJournalError, set_up, version_in

_LONGEST: Final = 3600.0  # seconds, as an index of a large table takes minutes


def migrate(database: OpenDatabase) -> str:
    """Create or upgrade the tables, and make indexes anew that differ; see `Journal.migrate`."""
    shared = database.shared
    usual, shared.setup_seconds = shared.setup_seconds, _LONGEST
    try:
        with shared.opening(create=True) as connection:
            found = set_up(connection, shared.table_names, create=True)
    finally:
        shared.setup_seconds = usual
    with database.transaction(seconds=_LONGEST) as connection:
        repaired = repair_indexes(connection)
    done = [] if found >= VERSION else [f"upgraded the journal from version {found} to {VERSION}"]
    done = done if found else [f"created the journal, of version {VERSION}"]
    done += [f"made these indexes anew: {', '.join(repaired)}"] if repaired else []
    return "; ".join(done)


def pending(database: OpenDatabase) -> str:
    """Return what `migrate` would do, as a sentence, "" if nothing. Nothing is changed."""
    try:
        with database.shared.opening(create=False) as connection:
            found = version_in(connection, database.shared.table_names)
    except NoJournalError:
        found = 0
    if not found:
        return f"there is no journal: create one, of version {VERSION}"
    if found < VERSION:
        return f"upgrade the journal from version {found} to {VERSION}"
    with database.transaction(seconds=_LONGEST) as connection:
        differing = differing_indexes(connection)
    return f"make these indexes anew: {', '.join(sorted(differing))}" if differing else ""
