"""Reads and changes the payments of one account and their transactions, as `momopay.journal.rules` allows.

Invariants:
- A row is committed as SENDING, and is on disk, before the network is touched.
- A transaction only moves forward: open, ended without success, paid.
- A transaction and the row that it changes are committed together. No payment is deleted, and a transaction only if the
  service's record shows that it is another payment.
- Every change of a payment or its transactions raises `revision`, so that one number shows whether an entry changed.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from sqlalchemy import Connection, Update, or_, select, tuple_

from momopay._redaction import redacted_repr
from momopay._transport import clock
from momopay.errors import JournalError, RequestValidationError
from momopay.journal import history
from momopay.journal import statements as sql
from momopay.journal.database import Database, bounded, insert_new, update_one
from momopay.journal.entries import UNRESOLVED, EntryKind, HistoryKind, JournalEntry, JournalState
from momopay.journal.evidence import Draft, KeyIdentity, Report, is_keepable
from momopay.journal.guards import Accounts, Watermark
from momopay.journal.leases import Lease, LeaseHolder
from momopay.journal.rules import RELEASE_AFTER_LEASE, REPEATS, Refundable, check_sharing, is_earlier
from momopay.journal.schema import payments, transactions
from momopay.models.enums import Stage, stage_of
from momopay.money import format_amount

logger: logging.Logger = logging.getLogger("momopay")

_SENDING: Final = ("state", JournalState.SENDING)  # a row has a lease while it is in this state

_row: Final = payments.c
_of: Final = transactions.c


class Store:
    """The payments of one account. Every method raises JournalError if the database fails."""

    # A statement that passed its deadline may have been committed, or may still be, by a server that was frozen.
    bounded: staticmethod[[float], AbstractContextManager[None]] = staticmethod(bounded)

    def __init__(self, database: Database, account: str) -> None:
        self.database = database
        self.account = account
        self.leases: LeaseHolder = LeaseHolder(database)
        self.accounts: Accounts = Accounts(database, account)
        self.watermark: Watermark = Watermark(database)

    def check(self, identity: KeyIdentity, *, restored: bool = False) -> bool:
        """Return whether the tenant of a key is known; raise ConfigurationError if the journal must not be used.

        That is if it belongs to another account, is a file with a second name or, unless `restored`, went back in time.
        """
        with self.database.connection() as connection:
            if not restored:
                self.watermark.check(connection)
            return self.accounts.check(connection, identity)

    def open_call(self, identity: KeyIdentity, kind: EntryKind, reference: str) -> tuple[JournalEntry | None, bool]:
        """Return the entry of a reference, or None, and the result of `check`, which may raise ConfigurationError."""
        with self.database.connection() as connection:
            self.watermark.check(connection)
            is_known = self.accounts.check(connection, identity)
            return self.entry(connection, kind, reference), is_known

    def get(self, kind: EntryKind, reference: str) -> JournalEntry | None:
        """Return the entry of a reference, or None."""
        if not is_keepable(reference):
            return None
        with self.database.connection() as connection:
            return self.entry(connection, kind, reference)

    def by_transaction(self, transaction_id: str) -> JournalEntry | None:
        """Return the entry that has a transaction, or None."""
        if not is_keepable(transaction_id):
            return None
        return next(iter(self.having(_of.transaction_id == transaction_id)), None)

    def by_receipt(self, receipt: str) -> list[JournalEntry]:
        """Return the entries with a receipt, newest first; more than one only if the provider repeats a receipt."""
        return self.having(_of.receipt == receipt)[::-1] if is_keepable(receipt) else []

    def by_wire_reference(self, wire_reference: str) -> list[JournalEntry]:
        """Return the entries that the service knows by a reference."""
        return self.select(_row.wire_reference == wire_reference) if is_keepable(wire_reference) else []

    def unresolved(self) -> list[JournalEntry]:
        """Return the entries that read as UNKNOWN, oldest first."""
        found = self.select(or_(*(_row.state == state for state in UNRESOLVED)))
        return [entry for entry in found if entry.state is JournalState.UNKNOWN]

    def sharing(self, entry: JournalEntry) -> list[JournalEntry]:
        """Return the other entries that the service knows by the same reference."""
        found = self.by_wire_reference(entry.wire_reference)
        return [each for each in found if (each.kind, each.reference) != (entry.kind, entry.reference)]

    def having(self, *transaction: sql.Condition) -> list[JournalEntry]:
        """Return the entries with a transaction that meets the conditions, oldest first."""
        keys = select(_of.kind, _of.reference).where(_of.account == self.account, *transaction)
        return self.select(tuple_(_row.kind, _row.reference).in_(keys))

    def select(self, *where: sql.Condition) -> list[JournalEntry]:
        """Return the entries of the account that meet the conditions, oldest first."""
        with self.database.connection() as connection:
            return self.entries(connection, *where)

    def entries(self, connection: Connection, *where: sql.Condition) -> list[JournalEntry]:
        """Return the entries of the account that meet the conditions, oldest first."""
        statement = sql.ENTRIES.where(_row.account == self.account, *where)
        return sql.entries_in(*self.leases.read(connection, statement, _SENDING))

    def entry(self, connection: Connection, kind: EntryKind, reference: str) -> JournalEntry | None:
        """Return the entry of a reference, or None."""
        key = {"the_account": self.account, "the_kind": kind, "the_reference": reference}
        return next(iter(sql.entries_in(*self.leases.read(connection, sql.ENTRY, _SENDING, key))), None)

    def begin(
        self,
        lease: Lease,
        draft: Draft,
        seconds: float,
        *,
        read: JournalEntry | None,
        service_now: datetime | None = None,
    ) -> bool:
        """Record durably that a call is about to send, and give it the row for so many seconds; return whether it may.

        `read` is the entry as the call read it before it searched, None if there was none. If the entry has changed
        since, return False: the call must decide again. If the lease ended while the statement ran, because the caller
        gave up, the row becomes NOT_SENT. `service_now` is the service's time, if known.

        Raises:
            ConfigurationError: The journal went back in time.
            RequestValidationError: Refunds would exceed what was paid, or an open order has the same wire reference.
        """
        lease_columns = self.leases.columns(lease, seconds)
        time = datetime.now(UTC)
        now = time.isoformat(timespec="microseconds")  # a constant length, as texts are compared
        # From the time that is written, because this machine's clock may be set at any moment.
        offset = None if service_now is None else (time - service_now).total_seconds()
        with self.database.transaction() as connection:
            # First, because it keeps other payments out: what the checks read stays true until the commit.
            mark = self.watermark.raise_sequence(connection)
            paid_before = self._check_others(connection, draft)
            values: dict[str, object] = {
                "phone": draft.phone,
                "metadata": None if draft.metadata is None else json.dumps(draft.metadata),
                "clock_offset": offset,
                "paid_before": paid_before,
                "idempotency_key": draft.idempotency_key,
                "key_since": draft.key_since,
            }
            if read is None:
                values |= {"account": self.account, "kind": draft.kind, "reference": draft.reference, "revision": 1}
                values |= {"amount": format_amount(draft.amount), "attempts": 1, "state": JournalState.SENDING}
                values |= {"wire_reference": draft.wire_reference, "refund_of": draft.refund_of}
                values |= {"created_at": now, "sent_at": now, **lease_columns}
                begun = insert_new(connection, payments, values)
            elif draft.is_resend:
                changed = self.values(draft, the_revision=read.revision, **lease_columns)
                begun = update_one(connection, sql.RESEND[draft.kind], changed)
            else:
                changed = {f"new_{name}": value for name, value in values.items()} | lease_columns
                changed = self.values(draft, now=now, the_revision=read.revision, **changed)
                begun = update_one(connection, sql.BEGIN[draft.kind], changed)
            if begun:
                before, attempt = (None, 1) if read is None else (read.state, read.attempts + 1)
                details = {"before": before, "after": JournalState.SENDING, "attempt": attempt}
                self._add(connection, draft, HistoryKind.BEGUN, **details, service_time=history.text_of(service_now))
        self.watermark.note(mark)
        if begun and not self.leases.holds(lease):
            self.record_not_sent(lease, draft)
        if not begun and self.get(draft.kind, draft.reference) is None:
            # A trigger drops rows, or a replica that lags serves the reads.
            raise JournalError("the journal's database neither took the row nor shows one")
        return begun

    def record_outcome(
        self,
        lease: Lease,
        draft: Draft,
        state: JournalState,
        *,
        seen_id: str | None = None,
        code: str | None = None,
        clock_offset: float | None = None,
        ends_attempt: bool = False,
        may_resend: bool = True,
    ) -> bool:
        """Record how the call of a lease ended; return False if the row has changed meanwhile.

        `ends_attempt`: a next one is another attempt, with another Idempotency-Key. `may_resend`: if it stays unknown,
        its key may be sent again.
        """
        known = {"new_seen_id": seen_id, "new_code": code, "new_clock_offset": clock_offset}
        known["new_key_number"] = int(ends_attempt)
        known["new_key_since"] = draft.key_since if may_resend and state is JournalState.UNKNOWN else None
        values = self.values(draft, the_claim=lease.id, **known)
        if not lease.is_own:
            return False
        with self.database.transaction() as connection:
            row = self._locked(connection, values)
            if row is None or not update_one(connection, sql.OUTCOMES[state][draft.kind], values):
                return False
            sent = [HistoryKind.SENT] if state is JournalState.REFUSED else []
            details: dict[str, object] = {"before": JournalState.SENDING, "after": state, "attempt": row.attempts}
            self._add(connection, draft, *sent, HistoryKind[state.name], **details, source="answer")
            return True

    def record_not_sent(self, lease: Lease, draft: Draft) -> bool:
        """Record that the call of a lease sent nothing; return as `record_outcome`."""
        state = JournalState.UNKNOWN if draft.is_resend else JournalState.NOT_SENT
        return self.record_outcome(lease, draft, state)

    def _check_others(self, connection: Connection, draft: Draft) -> str | None:
        """Raise RequestValidationError if other payments block this one; return what was paid of what it refunds."""
        if draft.kind is EntryKind.COLLECTION:
            # The amount too, and not only in `check_sharing`: a shop may have one reference for all its orders.
            has_amount = _row.amount == format_amount(draft.amount)
            for other in self.entries(connection, _row.wire_reference == draft.wire_reference, has_amount):
                check_sharing(other, draft.wire_reference, draft.reference, draft.amount)
        if draft.refund_of is None:
            return None
        refundable = self.refundable(draft.refund_of, draft.reference, connection=connection)
        refundable.check(draft.amount, draft.phone)
        return format_amount(refundable.paid)

    def refundable(self, of: str, besides: str = "", *, connection: Connection | None = None) -> Refundable:
        """Return what may be refunded of a collection; raise RequestValidationError if it is not in the journal."""
        if connection is None:
            with self.database.connection() as own:
                return self.refundable(of, besides, connection=own)
        order = self.entry(connection, EntryKind.COLLECTION, of)
        if order is None:
            raise RequestValidationError({"of": "is no collection in this journal; check the reference"})
        return Refundable(order, self.entries(connection, _row.refund_of == of), besides)

    def refunded(self, entry: JournalEntry) -> Decimal:
        """Return what was paid back, or is under way, of a collection, or of the one that a refund is of, in KES."""
        of = entry.reference if entry.kind is EntryKind.COLLECTION else entry.refund_of
        if of is None or not (entry.counting or entry.refund_of):
            return Decimal(0)
        return Refundable(entry, self.select(_row.refund_of == of)).paid_back

    def record(
        self,
        entry: JournalEntry | Draft,
        report: Report,
        *,
        lease: Lease | None = None,
        clock_offset: float | None = None,
        may_add: bool = True,
    ) -> bool:
        """Record a transaction that the service accepted, and what its record reports.

        A new transaction makes the row ACCEPTED if it is from the latest attempt. With `lease`, it is from the attempt
        of the call that holds this lease; without, it is from the latest attempt unless it is older. A known
        transaction leaves the row's state as it is. If `may_add` is false, a new one is not recorded.

        Return False if the payment is not in the journal, or a new transaction was not recorded because it is another
        payment's or `may_add` is false.
        """
        if lease is not None and not self.leases.holds(lease):
            return True  # a forked child: its parent records
        values = self.values(entry, the_transaction_id=report.transaction_id)
        values |= {f"new_{name}": getattr(report, name) for name in sql.REPORTED}
        values["new_clock_offset"] = clock_offset
        remedy = ""
        with self.database.transaction() as connection:
            before = self._locked(connection, values)
            if before is None:
                return False
            known = next((t for t in before.transactions if t.transaction_id == report.transaction_id), None)
            if known is None and not (may_add and self._insert(connection, before, report, lease)):
                return False  # it is another payment's
            stage = stage_of(report.status)
            is_paid = stage is Stage.PAID and update_one(connection, sql.PAY, values)
            is_reported = is_paid or update_one(connection, sql.REPORT[stage], values)
            # A response belongs to the attempt of its own call, whatever the clocks say. A payout has one transaction,
            # even if two requests with one key were sent.
            is_payout = not REPEATS[entry.kind]
            is_latest = is_payout or (
                before.claim == lease.id if lease else not is_earlier(before, report.created_at, report.status)
            )
            if known is None and is_latest:
                connection.execute(sql.ACCEPT[entry.kind], values)
                # Another attempt may have been executed, too.
                if is_payout and before.state in UNRESOLVED and before.attempts > 1 and lease is None:
                    connection.execute(sql.SEARCH_AGAIN, values | {"service_now": None})
            elif known is None or known.status != report.status:
                connection.execute(sql.TOUCH, values)
            if len(before.transactions) > (known is not None) and (known is None or is_paid):  # there are others
                remedy = self._remedy(connection, entry)
            what = {"is_reported": is_reported, "is_latest": is_latest, "is_paid_twice": bool(remedy)}
            history.add(connection, history.of_record(self.account, before, report, **what))
        if remedy:
            logger.critical("reference %s was paid more than once: %s", redacted_repr(entry.reference), remedy)
        return True

    def contradict(self, entry: JournalEntry, transaction_id: str) -> bool:
        """Record that a transaction is another payment, so that it is unknown whether this one was made."""
        values = self.values(entry, the_transaction_id=transaction_id)
        is_latest = entry.transaction_ids[-1:] == (transaction_id,)
        with self.database.transaction() as connection:
            connection.execute(sql.TOUCH, values)
            is_deleted = connection.execute(sql.DELETE_TRANSACTION, values).rowcount == 1
            is_unknown = is_deleted and is_latest and update_one(connection, sql.CONTRADICT[entry.kind], values)
            if is_deleted:
                after = JournalState.UNKNOWN if is_unknown else entry.state
                details: dict[str, object] = {"before": entry.state, "after": after, "source": "read"}
                self._add(connection, entry, HistoryKind.CONTRADICTED, **details, transaction_id=transaction_id)
            return is_unknown

    def sight(self, entry: JournalEntry) -> bool:
        """Record that a payment that was refused or not sent may have been made after all."""
        values = self.values(entry, the_revision=entry.revision)
        return self._change(entry, HistoryKind.UNKNOWN, sql.SIGHT[entry.kind], values, source="search")

    def _insert(self, connection: Connection, entry: JournalEntry, report: Report, lease: Lease | None) -> bool:
        """Insert a transaction of a payment, and return whether it is new."""
        sent_at = entry.sent_at
        if lease is None and report.created_at is not None:  # by the payer's clock, which orders all transactions
            with suppress(OverflowError):  # at the edge of the calendar
                sent_at = min(sent_at, report.created_at + timedelta(seconds=entry.clock_offset or 0.0))
        columns = {"account": self.account, "kind": entry.kind, "reference": entry.reference, "phone": entry.phone}
        columns |= {"transaction_id": report.transaction_id, "amount": format_amount(entry.amount)}
        columns["sent_at"] = sent_at.isoformat(timespec="microseconds")
        return insert_new(connection, transactions, columns)

    def _remedy(self, connection: Connection, known: JournalEntry | Draft) -> str:
        """Return the remedy for a payment that was made twice, "" if it was not."""
        entry = self.entry(connection, known.kind, known.reference)
        if entry is None or not entry.paid_twice:
            return ""
        ids = ", ".join(each.transaction_id for each in entry.counting)
        if entry.kind is EntryKind.PAYOUT:
            return f"by transactions {ids}: ask the recipient for one of them back"
        return f"by transactions {ids}: {self.refundable(entry.reference, connection=connection).remedy()}"

    def seconds_to_release(self, entry: JournalEntry) -> float:
        """Return after how many seconds a person may release an entry that reads as UNKNOWN; 0 or less means now."""
        with self.database.connection() as connection:
            row = connection.execute(sql.LEASE, self.values(entry)).mappings().one_or_none()
            if row is None:
                return 0.0
            left = self.leases.seconds_left(row)
            if row["machine"] != clock.machine() and left + RELEASE_AFTER_LEASE > 0:
                # This process may end before the wait does. Later ones of this machine count on.
                moved = {"new_machine": clock.machine(), "new_lease_until": clock.now() + left}
                update_one(connection, sql.MOVE_LEASE, self.values(entry, the_claim=row["claim"], **moved))
        return left + RELEASE_AFTER_LEASE

    def release(self, entry: JournalEntry, by: str, service_now: datetime | None = None) -> bool:
        """Change an entry that was read as UNKNOWN to NOT_SENT; return False if it has changed since."""
        now = datetime.now(UTC).isoformat(timespec="microseconds")
        values = self.values(entry, the_revision=entry.revision, new_released_by=by, now=now)
        values["service_now"] = None if service_now is None else service_now.timestamp()
        details = {"source": "person", "by_whom": by, "service_time": history.text_of(service_now)}
        change = sql.RELEASE[entry.kind]
        return entry.state is JournalState.UNKNOWN and self._change(
            entry, HistoryKind.RELEASED, change, values, after=JournalState.NOT_SENT, **details
        )

    def change(self, change: Update, values: Mapping[str, object] | None = None) -> bool:
        """Change a row if it is still as the statement expects, and return whether it was."""
        with self.database.connection() as connection:
            return update_one(connection, change, values)

    def _change(
        self, entry: JournalEntry, what: HistoryKind, change: Update, values: Mapping[str, object], **details: object
    ) -> bool:
        """Change a row as `change` does, and tell so in its history."""
        with self.database.transaction() as connection:
            is_changed = update_one(connection, change, values)
            if is_changed:
                self._add(connection, entry, what, **{"before": entry.state, "after": JournalState.UNKNOWN, **details})
            return is_changed

    def _locked(self, connection: Connection, values: Mapping[str, Any]) -> JournalEntry | None:
        """Return an entry that nobody else can change until the transaction ends."""
        connection.execute(sql.LOCK, values)
        return self.entry(connection, values["the_kind"], values["the_reference"])

    def _add(self, connection: Connection, of: JournalEntry | Draft, *kinds: HistoryKind, **details: object) -> None:
        """Add to the history of a payment."""
        history.add(connection, [history.event(self.account, of, what, **details) for what in kinds])

    def values(self, of: JournalEntry | Draft, **values: object) -> dict[str, object]:
        """Return the parameters with which a statement finds the row of a payment, and other parameters."""
        return {"the_account": self.account, "the_kind": of.kind, "the_reference": of.reference, **values}
