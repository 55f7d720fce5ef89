"""Checks that a call may use the journal: it belongs to the call's account, and it did not go back in time.

`Accounts`: the first use of a namespace binds it to the mode of the key, the host and, once a response has shown it,
the tenant.

`Watermark`: a restored copy, a truncated log, or an older standby after a failover does not know the payments made
since, and would make them again. So each payment that begins raises the sequence number of its account in the database.
Each process remembers the highest that it saw, and a small file beside a SQLite database keeps it, too. A lower number
is refused until a person accepts it. Accepting raises the count of restores, which is compared before the sequence
number.

No account waits for another: the row that a payment locks until it has begun is its account's own. Processes of version
1 of the tables, which may be running while an application is updated, raise one number for all accounts instead. It is
added to each account's, so that no process takes the other's payments for a loss.
"""

from __future__ import annotations

import hashlib
import logging
import os
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from io import FileIO
from pathlib import Path
from typing import Any, Final, NamedTuple

from sqlalchemy import ColumnElement, Connection, and_, bindparam, delete, func, select, update

from momopay._core.config import LOOPBACK, KeyIdentity
from momopay.errors import ConfigurationError, JournalError
from momopay.journal import moving
from momopay.journal.database import bounded, change, defer
from momopay.journal.rules import PAST
from momopay.journal.schema import INSERTS, acceptances, accounts, journal, keys, metadata, payments, versions
from momopay.journal.sharing import OpenDatabase

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

logger: logging.Logger = logging.getLogger("momopay")

_IS_ACCOUNT: Final = accounts.c.account == bindparam("the_account")
MARKS: Final = journal.outerjoin(accounts, _IS_ACCOUNT)
"""One row: the journal's own, beside that of the account ``the_account`` if it has one."""
MARK: Final = (
    (journal.c.restored + func.coalesce(accounts.c.restored, 0)).label("restored"),
    (journal.c.sequence + func.coalesce(accounts.c.sequence, 0)).label("sequence"),
)
"""The columns of an account's mark, from the two tables that have a part of it."""
_MARK: Final = select(*MARK).select_from(MARKS)
# So that no process of version 1 begins a payment meanwhile. Those of this version do not wait for each other.
_LOCK: Final = select(journal.c.version).with_for_update(read=True)
_of_all: Final = [select(column).scalar_subquery() for column in (journal.c.restored, journal.c.sequence)]
_RAISE: Final = (
    update(accounts)
    .where(_IS_ACCOUNT)
    .values(sequence=accounts.c.sequence + 1)
    .returning(accounts.c.restored + _of_all[0], accounts.c.sequence + _of_all[1])
)
_NAIROBI: Final = timedelta(hours=3)
_LINE: Final = 80  # bytes of the line in the file: a constant, so that one write replaces all of it


class Accounts:
    """What one namespace of the journal is bound to."""

    def __init__(self, database: OpenDatabase, account: str) -> None:
        self._database = database
        self._account = account
        # The value is the tenant, "" if a response did not show it, None if it is not known yet. The entries stay true,
        # as a bound namespace stays bound. Changes of a dict are atomic.
        self._checked: dict[KeyIdentity, str | None] = {}
        self._scopes: dict[KeyIdentity, str] = {}
        # Whether the account had no payments before this journal, or a person accepted that: see `durable.past`.
        self.has_known_past: bool = False

    def check(self, connection: Connection, identity: KeyIdentity) -> bool:
        """Bind the namespace at its first use, and return whether the tenant of the key is known.

        Raise ConfigurationError if the namespace is bound to another mode, host or tenant.
        """
        if identity not in self._checked:
            self._database.shared.check_writable()
            bound = self.bound(connection)
            if not bound.get("mode"):
                # A sandbox forgets as easily as it is made.
                is_trusted = identity.host == LOOPBACK or self._is_accepted(connection)
                new = {"account": self._account, "mode": identity.mode, "host": identity.host}
                new["bound_at"] = datetime.now(UTC).isoformat()
                if not change(connection, INSERTS[accounts], {**new, "tenant_id": None, "checked": int(is_trusted)}):
                    is_unbound = (accounts.c.account == self._account, accounts.c.mode == "")  # see `Watermark.accept`
                    connection.execute(update(accounts).where(*is_unbound).values(new))
                bound = self.bound(connection)
            if not bound:
                raise JournalError("the journal's database neither took the account nor shows one")
            self.has_known_past = bool(bound["checked"])
            for what, own in (("mode", identity.mode), ("host", identity.host)):
                if bound[what] != own:
                    raise self._refused(f"the {what} {bound[what]!r}", f"{own!r}")
            known = select(keys.c.tenant_id, keys.c.scope).where(self._is_key(identity))
            tenant, self._scopes[identity] = connection.execute(known).one_or_none() or (None, identity.key)
            if tenant is not None and bound["tenant_id"] not in {None, tenant}:
                raise self._refused(f"tenant {bound['tenant_id']!r}", f"a key of tenant {tenant!r}")
            self._checked[identity] = tenant
        elif not self.has_known_past:  # unless another process has read it, or a person accepted it
            self.has_known_past = bool(self.bound(connection).get("checked"))
        return self._checked[identity] is not None

    def knows_past(self) -> bool:
        """Return whether the account had no payments before this journal, or a person accepted that."""
        with self._database.connection() as connection:
            return bool(self.bound(connection).get("checked")) or self._is_accepted(connection)

    def trust(self) -> None:
        """Record that the account had no payments before this journal, or that it does not matter."""
        with self._database.connection() as connection:
            connection.execute(update(accounts).where(accounts.c.account == self._account).values(checked=1))
        self.has_known_past = True

    def is_new(self) -> bool:
        """Return whether the account has no payments, and nobody knows whether it made any before this journal."""
        found = select(payments.c.reference).where(payments.c.account == self._account).limit(1)
        if self.knows_past():
            return False
        with self._database.connection() as connection:
            return connection.execute(found).one_or_none() is None

    def accept(self, by: str) -> None:
        """Record who accepted that this journal lost payments, or does not know those before it."""
        now = datetime.now(UTC).isoformat(timespec="microseconds")
        with self._database.connection() as connection:
            change(connection, INSERTS[acceptances], {"account": self._account, "at": now, "by_whom": by})
        self.trust()

    def _is_accepted(self, connection: Connection) -> bool:
        accepted = select(func.count()).where(acceptances.c.account == self._account)
        return connection.execute(accepted).scalar_one() > 0

    def knows(self, identity: KeyIdentity, tenant_id: str | None) -> bool:
        """Return whether a response shows nothing new about the tenant of a key."""
        return not tenant_id or self._checked.get(identity) == tenant_id

    def bound(self, connection: Connection) -> Mapping[Any, Any]:
        """Return the row of the namespace; an empty mapping before its first use."""
        found = connection.execute(select(accounts).where(accounts.c.account == self._account))
        return found.mappings().one_or_none() or {}

    def scope(self, identity: KeyIdentity) -> str:
        """Return the scope of a key's payout keys: the tenant if the wallet shows it to the key, else the key's hash.

        Not a tenant that only an answer to a payment shows: a journal that is still empty does not know it.
        """
        return self._scopes.get(identity, identity.key)

    def learn(self, identity: KeyIdentity, tenant_id: str | None, *, by_wallet: bool = False) -> bool:
        """Record the tenant that a response showed for a key, and return whether it is the namespace's.

        If it is another one, the next `check` of this key raises in every process; other keys can still be used. If the
        response showed none, pass None: this process does not ask again.
        """
        if not tenant_id:
            self._checked[identity] = ""
            return True
        if self._checked.get(identity) == tenant_id:
            return True
        unbound = (accounts.c.account == self._account, accounts.c.tenant_id.is_(None))
        with self._database.connection() as connection:
            connection.execute(update(accounts).where(*unbound).values(tenant_id=tenant_id))
            known = {"account": self._account, "key": identity.key, "tenant_id": tenant_id}
            known["scope"] = tenant_id if by_wallet else identity.key
            if not change(connection, INSERTS[keys], known):
                connection.execute(update(keys).where(self._is_key(identity)).values(tenant_id=tenant_id))
            if self.bound(connection).get("tenant_id") == tenant_id:
                self._checked[identity] = tenant_id
                if by_wallet:
                    self._scopes[identity] = tenant_id
                return True
        self._checked.pop(identity, None)
        return False

    def _is_key(self, identity: KeyIdentity) -> ColumnElement[bool]:
        return and_(keys.c.account == self._account, keys.c.key == identity.key)

    def _refused(self, bound: str, given: str) -> ConfigurationError:
        return ConfigurationError(
            f"the journal's account {self._account!r} belongs to {bound}, not to {given}; nothing was sent."
            " Give each account of the service a journal of its own, or a name: Journal(url, account=...)"
        )


class Mark(NamedTuple):
    """How far a journal came. Marks are compared by `restored` first."""

    restored: int = 0
    sequence: int = 0


class Watermark:
    """The highest mark that was seen of one account of a journal."""

    def __init__(self, database: OpenDatabase, account: str) -> None:
        self._database = database
        self._account = {"the_account": account}
        # By a hash, as an account's name may be no file's.
        name = f"sequence-{hashlib.sha256(account.encode()).hexdigest()[:16]}"
        folder = database.shared.folder
        self._file: Path | None = None if folder is None else folder / name
        self._common_file = None if folder is None else folder / "sequence"  # that of version 1, for all accounts
        self._highest = Mark()
        # By the count of restores at which it went back: why. It stays refused even if others raise the number again.
        self._refusals: dict[int, str] = {}

    def check(self, connection: Connection) -> None:
        """Raise ConfigurationError if the journal went back in time."""
        seen = self.seen()
        self.compare(connection, self._mark(connection), seen)

    def compare(self, connection: Connection, mark: Mark, seen: Mark) -> None:
        """Raise ConfigurationError if the journal, which came as far as `mark`, went back in time.

        `seen` is from before the journal was read, so that a payment that begins in between does not look like a loss.
        """
        self._check_open(connection, mark)
        if mark < seen or mark.restored in self._refusals:
            raise self._gone_back(connection, mark, seen)
        if seen < mark:
            self.note(mark)

    def raise_sequence(self, connection: Connection) -> Mark:
        """Count a payment in the transaction that begins it. The row's lock keeps other payments out until it ends.

        Raise ConfigurationError if the journal went back in time since `check`.
        """
        if self._database.shared.locks_rows:
            defer(connection, _LOCK, {})
        row = connection.execute(_RAISE, self._account).one_or_none()
        if row is None:
            self._insert(connection)
            row = connection.execute(_RAISE, self._account).one_or_none()
        if row is None:  # a trigger drops rows
            raise JournalError("the journal's database neither took the account's row nor shows one")
        mark = Mark(*row)
        self._check_open(connection, Mark(mark.restored, mark.sequence - 1))
        if mark <= self._highest:  # equal: before this payment was counted, it was behind by one
            raise self._gone_back(connection, mark, self._highest)
        return mark

    def note(self, mark: Mark) -> None:
        """Remember how far the journal came, after the commit."""
        self._highest = max(mark, self._highest)
        if self._file is not None:
            with os.fdopen(os.open(self._file, os.O_CREAT | os.O_RDWR, 0o600), "r+b", buffering=0) as file:
                _lock(file)  # until it is closed, so that nobody notes less between the two lines below
                if _mark_in(file.read()) < mark:  # another call may have committed, and noted, more
                    file.seek(0)
                    line = f"{mark.restored} {mark.sequence} {datetime.now(UTC).isoformat(timespec='seconds')}"
                    file.write(line.ljust(_LINE - 1).encode() + b"\n")

    def accept(self, by: str, *, is_new: bool = False) -> str:
        """Accept the journal as it is, and return which days to reconcile; "" if it lost nothing.

        `is_new`: the account has no payments, so its journal lost some only if this process knows that.
        """
        with self._database.transaction() as connection:
            highest = self.seen()
            mark, days = self._mark(connection), self._days(connection)
            # Beside a server there is no file: a new process has seen no mark, so the person's word counts.
            can_know = is_new or self._file is not None or highest > Mark()
            reach = mark
            if mark.sequence < 0 and moving.may_be_accepted(connection):
                reach = Mark(mark.restored, -1 - mark.sequence)
            self._check_open(connection, reach)
            if reach == mark and can_know and highest <= mark and mark.restored not in self._refusals:
                return ""
            last = max(reach, highest)
            accepted = Mark(last.restored + 1, last.sequence)
            raised = {"restored": accounts.c.restored + (accepted.restored - mark.restored)}
            raised["sequence"] = accounts.c.sequence + (accepted.sequence - mark.sequence)
            self._insert(connection)
            connection.execute(update(accounts).where(_IS_ACCOUNT).values(raised), self._account)
        logger.warning("%s accepted a journal that went back in time; %s", by, days)
        with bounded():
            self.note(accepted)
        return days

    def remove_all(self) -> None:
        """Remove everything from the database, and forget how far it came, for a new start in development.

        Raises:
            ConfigurationError: One of its accounts is of a live key; nothing was removed.
        """
        with self._database.transaction() as connection:
            if "live" in connection.scalars(select(accounts.c.mode)):
                raise ConfigurationError("the journal is of a live key, and what it forgot could be paid again")
            for table in metadata.sorted_tables:
                if table not in {journal, versions}:  # which say of what version the tables are
                    connection.execute(delete(table))
        self._highest, self._refusals = Mark(), {}
        folder = self._database.shared.folder
        for each in () if folder is None else folder.glob("sequence*"):  # of all accounts
            each.unlink(missing_ok=True)

    def seen(self) -> Mark:
        """Return the highest mark that this process saw, or that is in the file beside the database."""
        seen = [self._highest]
        for each in filter(None, (self._file, self._common_file)):
            with suppress(FileNotFoundError), FileIO(each) as file:
                seen.append(_mark_in(file.read()))
        return max(seen)

    def _check_open(self, connection: Connection, mark: Mark) -> None:
        """Raise ConfigurationError if the journal was moved away, or not moved here to the end."""
        if mark.sequence < 0:
            raise ConfigurationError(moving.refusal(connection))

    def _insert(self, connection: Connection) -> None:
        """Insert the account's row if there is none, as in a database that was made anew, for a call to bind."""
        unbound = {**dict.fromkeys(("mode", "host"), ""), "tenant_id": None, "bound_at": datetime.now(UTC).isoformat()}
        change(connection, INSERTS[accounts], {"account": self._account["the_account"], **unbound})

    def _mark(self, connection: Connection) -> Mark:
        return Mark(*connection.execute(_MARK, self._account).one())

    def _days(self, connection: Connection) -> str:
        """Return which days to reconcile: from the last payment that the journal has to the last one that was seen."""
        files = [each for each in (self._file, self._common_file) if each is not None and each.exists()]
        moments = [datetime.now(UTC)]
        if files:
            moments = [datetime.fromtimestamp(max(each.stat().st_mtime for each in files), UTC)]
        is_own = payments.c.account == bindparam("the_account")
        latest = connection.scalar(select(func.max(payments.c.sent_at)).where(is_own), self._account)
        if latest is not None:
            moments.insert(0, datetime.fromisoformat(latest))
        days = [f"{moment + _NAIROBI:%Y-%m-%d}" for moment in moments]
        return f"reconcile the days between: momopay reconcile --day {days[0]} --last-day {days[-1]} --journal URL"

    def _gone_back(self, connection: Connection, mark: Mark, highest: Mark) -> ConfigurationError:
        what = "It is an older copy, or lost what was written last" if mark.sequence else "The database was made anew"
        known_by, start_over = "", ""
        if self._file is not None:
            known_by = f" (the file {self._file} has that number)"
            start_over = (
                f". In development with a test key, remove the folder {self._file.parent} instead, and restart the"
                " programs that use the journal; manage.py momopay_reset does it for a Django project"
            )
        refusal = (
            f"the journal went back in time: {highest.sequence} payments were begun in it{known_by}, and now it knows"
            f" of {mark.sequence}. {what}, and would pay again; nothing was sent. If it cannot be replaced by the"
            f" newest one, {self._days(connection)}; then momopay journal accept-restored, or"
            f" journal.accept_restored(by=...){start_over}"
        )
        return ConfigurationError(self._refusals.setdefault(mark.restored, refusal))


def accept_restored(account: Accounts, watermark: Watermark, by: str) -> str:
    """Accept a journal as it is; see `Journal.accept_restored`."""
    is_new = account.is_new()
    days = watermark.accept(by, is_new=is_new)
    if is_new or days:
        account.accept(by)
    if days or not is_new:
        return days
    now = datetime.now(UTC) + _NAIROBI
    first, last = (f"{day:%Y-%m-%d}" for day in (now - PAST, now))
    days = f"reconcile what was paid before: momopay reconcile --day {first} --last-day {last} --journal URL"
    logger.warning("%s accepted a new journal of an account that may have a past; %s", by, days)
    return days


def _lock(file: FileIO) -> None:
    """Wait for the lock of a file, which others hold for microseconds."""
    if sys.platform == "win32":
        file.seek(_LINE)  # behind what is read: the lock of a byte keeps readers out, too
        give_up = time.monotonic() + 10
        while True:  # LK_LOCK would sleep for a second before it tries again
            try:
                msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
                break
            except PermissionError:
                if time.monotonic() > give_up:
                    raise
            time.sleep(0.001)
        file.seek(0)
    else:
        fcntl.flock(file, fcntl.LOCK_EX)


def _mark_in(line: bytes) -> Mark:
    """Return the mark in the line of the file, the lowest if that is damaged."""
    try:
        restored, sequence, _seen_at = line.split()
        return Mark(int(restored), int(sequence))
    except ValueError:
        return Mark()
