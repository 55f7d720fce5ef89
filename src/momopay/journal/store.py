"""Changes the payments of one account and their transactions, as `momopay.journal.rules` allows.

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
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Update, UpdateBase

from momopay._core.config import KeyIdentity
from momopay._redaction import redacted_repr
from momopay._transport import clock
from momopay.errors import JournalError
from momopay.journal import history
from momopay.journal import statements as sql
from momopay.journal.database import bounded, change, defer
from momopay.journal.entries import UNRESOLVED, HistoryKind, JournalEntry, JournalState, JournalTransaction
from momopay.journal.evidence import Draft, Evidence
from momopay.journal.leases import Lease
from momopay.journal.pages import Entries
from momopay.journal.rules import RELEASE_AFTER_LEASE, REPEATS, check_sharing, is_earlier
from momopay.journal.schema import INSERTS, PAYMENT, payments
from momopay.models.enums import EntryKind, Stage, stage_of
from momopay.money import format_amount

logger: logging.Logger = logging.getLogger("momopay")


@dataclass(frozen=True)
class _Match:
    """How a transaction belongs to a payment."""

    before: JournalEntry  # the payment as it was
    known: JournalTransaction | None = None  # the transaction as it was; None if it is new
    is_latest: bool = False  # a new one is from the latest attempt
    is_response: bool = False  # a new one is in the response to the call's own request


class Store(Entries):
    """The payments of one account. Every method raises JournalError if the database fails."""

    # A statement that passed its deadline may have been committed, or may still be, by a server that was frozen.
    bounded: staticmethod[[float], AbstractContextManager[None]] = staticmethod(bounded)

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
            seen = self.watermark.seen()
            mark, entry = self.mark_and_entry(connection, kind, reference)
            self.watermark.compare(connection, mark, seen)
            return entry, self.accounts.check(connection, identity)

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
        time = datetime.now(UTC)
        now = time.isoformat(timespec="microseconds")  # a constant length, as texts are compared
        # From the time that is written, because this machine's clock may be set at any moment.
        offset = None if service_now is None else (time - service_now).total_seconds()
        with self.database.transaction() as connection:
            # First, because it keeps other payments out: what the checks read stays true until the commit.
            mark = self.watermark.raise_sequence(connection)
            lease_columns = self.leases.columns(lease, seconds)
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
                statement: UpdateBase = INSERTS[payments]
            elif draft.is_resend:
                statement = sql.RESEND[draft.kind]
                values = self.values(draft, the_revision=read.revision, **lease_columns)
            else:
                statement = sql.BEGIN[draft.kind]
                values = {f"new_{name}": value for name, value in values.items()} | lease_columns
                values = self.values(draft, now=now, the_revision=read.revision, **values)
            defer(connection, statement, values)
            before, attempt = (None, 1) if read is None else (read.state, read.attempts + 1)
            details = {"attempt": attempt, "service_time": None if service_now is None else service_now.isoformat()}
            begun = history.add_begun(connection, self.account, draft, lease.id, before, **details)
        self.watermark.note(mark)
        if begun and not self.leases.holds(lease):
            self.record_not_sent(lease, draft)
        if not begun:
            found = self.get(draft.kind, draft.reference)
            if found is None:  # a trigger drops rows, or a replica that lags serves the reads
                raise JournalError("the journal's database neither took the row nor shows one")
            if found.claim == lease.id:
                self.record_not_sent(lease, draft)
                raise JournalError("the journal's database took the row, and not what its history has to say")
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
            if row is None or not change(connection, sql.OUTCOMES[state][draft.kind], values):
                return False
            kinds = [HistoryKind.SENT] if state is JournalState.REFUSED else []
            changes = [(kind, JournalState.SENDING, state) for kind in (*kinds, HistoryKind[state.name])]
            history.add(connection, self.account, draft, changes, attempt=row.attempts, source="answer")
            return True

    def record_not_sent(self, lease: Lease, draft: Draft) -> bool:
        """Record that the call of a lease sent nothing; return as `record_outcome`."""
        state = JournalState.UNKNOWN if draft.is_resend else JournalState.NOT_SENT
        return self.record_outcome(lease, draft, state)

    def _check_others(self, connection: Connection, draft: Draft) -> str | None:
        """Raise RequestValidationError if other payments block this one; return what was paid of what it refunds."""
        if draft.kind is EntryKind.COLLECTION:
            # The amount too, and not only in `check_sharing`: a shop may have one reference for all its orders.
            has_amount = PAYMENT.amount == format_amount(draft.amount)
            for other in self.entries(connection, PAYMENT.wire_reference == draft.wire_reference, has_amount):
                check_sharing(other, draft.wire_reference, draft.reference, draft.amount)
        if draft.refund_of is None:
            return None
        refundable = self.refundable(draft.refund_of, draft.reference, connection=connection)
        refundable.check(draft.amount, draft.phone)
        return format_amount(refundable.paid)

    def record(
        self,
        entry: JournalEntry | Draft,
        evidence: Evidence,
        *,
        lease: Lease | None = None,
        clock_offset: float | None = None,
        may_add: bool = True,
    ) -> bool:
        """Record a transaction that the service accepted, and what its record says.

        A new transaction makes the row ACCEPTED if it is from the latest attempt. With `lease`, it is from the attempt
        of the call that holds this lease; without, it is from the latest attempt unless it is older. A known
        transaction leaves the row's state as it is. If `may_add` is false, a new one is not recorded.

        Return False if the payment is not in the journal, or a new transaction was not recorded because it is another
        payment's or `may_add` is false.
        """
        if lease is not None and not self.leases.holds(lease):
            return True  # a forked child: its parent records
        with self.database.transaction() as connection:
            before = self._locked(connection, self.values(entry))
            match = self._match(connection, before, evidence, lease, may_add=may_add)
            remedy = "" if match is None else self._write(connection, match, evidence, clock_offset)
        if remedy:
            _warn(entry, remedy)
        return match is not None

    def record_reads(self, reads: Iterable[tuple[JournalEntry, Evidence]]) -> None:
        """Record what reads and pages say of transactions that the journal knows, all in one transaction."""
        remedies, found = list[tuple[JournalEntry, str]](), list(reads)
        if not found:
            return
        locked: dict[tuple[EntryKind, str, str], _Match] = {}
        with self.database.transaction() as connection:
            # Apart by kind, as SQLite uses no index for pairs of kind and reference.
            for kind, references in self.lock_all(connection, (entry for entry, _ in found)).items():
                for before in self.entries(connection, PAYMENT.kind == kind, PAYMENT.reference.in_(references)):
                    for known in before.transactions:
                        locked[kind, before.reference, known.transaction_id] = _Match(before, known)
            # In order, as `Queue.mark_checked` locks transactions whose payments it does not lock.
            for entry, evidence in sorted(found, key=lambda read: read[1].transaction_id):
                match = locked.get((entry.kind, entry.reference, evidence.transaction_id))
                if match is not None and (remedy := self._write(connection, match, evidence, None)):
                    remedies.append((entry, remedy))
        for entry, remedy in remedies:
            _warn(entry, remedy)

    def _match(
        self,
        connection: Connection,
        before: JournalEntry | None,
        evidence: Evidence,
        lease: Lease | None,
        *,
        may_add: bool,
    ) -> _Match | None:
        """Return how a transaction belongs to a payment, whose row is locked; None if it does not.

        A new transaction is inserted, so that no other payment can have it.
        """
        if before is None:
            return None
        known = next((t for t in before.transactions if t.transaction_id == evidence.transaction_id), None)
        if known is not None:
            return _Match(before, known)
        if not (may_add and self._insert(connection, before, evidence, lease)):
            return None  # it is another payment's
        # A response belongs to the attempt of its own call, whatever the clocks say. A payout has one transaction, even
        # if two requests with one key were sent.
        is_latest = not REPEATS[before.kind] or (
            before.claim == lease.id if lease else not is_earlier(before, evidence.created_at, evidence.status)
        )
        return _Match(before, is_latest=is_latest, is_response=lease is not None)

    def _insert(self, connection: Connection, entry: JournalEntry, evidence: Evidence, lease: Lease | None) -> bool:
        """Insert a transaction of a payment, and return whether it is new."""
        sent_at = entry.sent_at
        if lease is None and evidence.created_at is not None:  # by the payer's clock, which orders all transactions
            with suppress(OverflowError):  # at the edge of the calendar
                sent_at = min(sent_at, evidence.created_at + timedelta(seconds=entry.clock_offset or 0.0))
        columns: dict[str, object] = {"account": self.account, "kind": entry.kind, "reference": entry.reference}
        columns |= {"phone": entry.phone, "amount": format_amount(entry.amount)}
        columns["sent_at"] = sent_at.isoformat(timespec="microseconds")
        return change(connection, sql.ADD_TRANSACTION, columns | vars(evidence))

    def _write(self, connection: Connection, match: _Match, evidence: Evidence, clock_offset: float | None) -> str:
        """Write what a record of the service says. Return the remedy if the payment was made twice, else ""."""
        before, known = match.before, match.known
        stage, values = stage_of(evidence.status), self.values(before, new_clock_offset=clock_offset)
        is_paid, is_newer = stage is Stage.PAID, True
        if known is not None:
            shown = {f"new_{name}": getattr(evidence, name) for name in sql.EVIDENCE}
            shown |= values | {"the_transaction_id": evidence.transaction_id}
            if not evidence.is_timed and stage_of(known.status) is stage:  # the end was known before
                shown["new_ended_at"] = None
            if evidence.status is None:  # a callback's receipt, and nothing else
                is_newer = change(connection, sql.ADD_RECEIPT, shown)
            else:
                is_paid = is_paid and change(connection, sql.MARK_PAID, shown)
                is_newer = is_paid or change(connection, sql.ADVANCE[stage], shown)
        if known is None and match.is_latest:
            defer(connection, sql.ACCEPT[before.kind], values)
            # Another attempt may have been executed, too.
            was_unresolved = before.state in UNRESOLVED and before.attempts > 1 and not match.is_response
            if was_unresolved and not REPEATS[before.kind]:
                defer(connection, sql.SEARCH_AGAIN, values | {"service_now": None})
        elif known is None or known.status != evidence.status:
            defer(connection, sql.TOUCH, values)
        has_others = len(before.transactions) > (known is not None)
        remedy = self._remedy(connection, before) if has_others and (known is None or is_paid) else ""
        what = {"is_newer": is_newer, "is_latest": match.is_latest, "is_paid_twice": bool(remedy)}
        history.add_evidence(connection, self.account, before, known, evidence, **what)
        return remedy

    def _remedy(self, connection: Connection, before: JournalEntry) -> str:
        """Return the remedy for a payment that was made twice, "" if it was not."""
        entry = self.entry(connection, before.kind, before.reference)
        if entry is None or not entry.paid_twice:
            return ""
        ids = ", ".join(each.transaction_id for each in entry.counting)
        if entry.kind is EntryKind.PAYOUT:
            return f"by transactions {ids}: ask the recipient for one of them back"
        return f"by transactions {ids}: {self.refundable(entry.reference, connection=connection).remedy()}"

    def mark_contradicted(self, entry: JournalEntry, transaction_id: str) -> bool:
        """Record that a transaction is another payment, so that it is unknown whether this one was made."""
        values = self.values(entry, the_transaction_id=transaction_id)
        is_latest = entry.transaction_ids[-1:] == (transaction_id,)
        with self.database.transaction() as connection:
            defer(connection, sql.TOUCH, values)
            is_deleted = change(connection, sql.DELETE_TRANSACTION, values)
            is_unknown = is_deleted and is_latest and change(connection, sql.MARK_CONTRADICTED[entry.kind], values)
            if is_deleted:
                after = JournalState.UNKNOWN if is_unknown else entry.state
                changes = [(HistoryKind.CONTRADICTED, entry.state, after)]
                history.add(connection, self.account, entry, changes, source="read", transaction_id=transaction_id)
            return is_unknown

    def mark_seen(self, entry: JournalEntry) -> bool:
        """Record that a payment that was refused or not sent may have been made after all."""
        values = self.values(entry, the_revision=entry.revision)
        recorded = (HistoryKind.UNKNOWN, entry.state, JournalState.UNKNOWN)
        return self._change(entry, sql.MARK_SEEN[entry.kind], values, recorded, source="search")

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
                change(connection, sql.MOVE_LEASE, self.values(entry, the_claim=row["claim"], **moved))
        return left + RELEASE_AFTER_LEASE

    def release(self, entry: JournalEntry, by: str, service_now: datetime | None = None) -> bool:
        """Change an entry that was read as UNKNOWN to NOT_SENT; return False if it has changed since."""
        if entry.state is not JournalState.UNKNOWN:
            return False
        now = datetime.now(UTC).isoformat(timespec="microseconds")
        values = self.values(entry, the_revision=entry.revision, new_released_by=by, now=now)
        values["service_now"] = None if service_now is None else service_now.timestamp()
        details = {"service_time": None if service_now is None else service_now.isoformat()}
        recorded = (HistoryKind.RELEASED, entry.state, JournalState.NOT_SENT)
        return self._change(entry, sql.RELEASE[entry.kind], values, recorded, source="person", by_whom=by, **details)

    def _change(
        self,
        entry: JournalEntry,
        statement: Update,
        values: Mapping[str, object],
        recorded: history.Change,
        **details: object,
    ) -> bool:
        """Change a row, with its history, if it is still as the statement expects. Return whether it was."""
        with self.database.transaction() as connection:
            is_changed = change(connection, statement, values)
            if is_changed:
                history.add(connection, self.account, entry, [recorded], **details)
            return is_changed

    def lock_all(self, connection: Connection, entries: Iterable[JournalEntry]) -> Mapping[EntryKind, set[str]]:
        """Lock the rows of entries, in the database's own order. Return the references by kind."""
        references_of: dict[EntryKind, set[str]] = {}
        for each in entries:
            references_of.setdefault(each.kind, set()).add(each.reference)
        if self.database.shared.locks_rows:
            for kind, references in sorted(references_of.items()):
                lock = {"the_account": self.account, "the_kind": kind, "references": list(references)}
                connection.execute(sql.LOCK_SOME, lock)
        return references_of

    def _locked(self, connection: Connection, values: Mapping[str, Any]) -> JournalEntry | None:
        """Return an entry that nobody else can change until the transaction ends."""
        if self.database.shared.locks_rows:
            defer(connection, sql.LOCK, values)
        return self.entry(connection, values["the_kind"], values["the_reference"])


def _warn(of: JournalEntry | Draft, remedy: str) -> None:
    """Log a payment that was made twice, with its remedy."""
    logger.critical("reference %s was paid more than once: %s", redacted_repr(of.reference), remedy)
