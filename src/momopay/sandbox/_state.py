"""Everything the service remembers, in plain collections. It knows no clock: `now` is always passed in."""

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal

from momopay.sandbox._accounts import KEY_PREFIX, Account, masked, open_account, restore, tenant_of
from momopay.sandbox._deliveries import CallbackRecord, Delivery
from momopay.sandbox._health import Health
from momopay.sandbox._limits import RateWindow
from momopay.sandbox._outcomes import Kind, Status
from momopay.sandbox._refusals import Refusal
from momopay.sandbox._scheduler import Agenda
from momopay.sandbox._transactions import Movement, MovementKind, Transaction


@dataclass(slots=True)
class Book:
    """What the service remembers of one account beside its settings."""

    account: Account
    history: list[Transaction] = field(default_factory=list[Transaction])
    counts: Counter[tuple[Kind, Status]] = field(default_factory=Counter[tuple[Kind, Status]])
    rate: RateWindow = field(default_factory=RateWindow)
    health: Health = field(default_factory=Health)
    replays: dict[str, Transaction] = field(default_factory=dict[str, Transaction])
    linked_channels: set[str] = field(default_factory=set[str])
    unlisted: int = 0


@dataclass(slots=True)
class World:
    """All accounts; `version` grows with every change that a reader could see."""

    books: dict[str, Book] = field(default_factory=dict[str, Book])
    transactions: dict[str, Transaction] = field(default_factory=dict[str, Transaction])
    deliveries: dict[str, Delivery] = field(default_factory=dict[str, Delivery])
    callbacks: list[CallbackRecord] = field(default_factory=list[CallbackRecord])
    ledger: list[Movement] = field(default_factory=list[Movement])
    agenda: Agenda = field(default_factory=Agenda)
    touched: dict[str, Transaction] = field(default_factory=dict[str, Transaction])
    version: int = 0

    def book(self, key: str, now: datetime) -> Book:
        """The book of a `pk_test_` key, opened at its first use.

        Raises:
            Refusal: INVALID_API_KEY, for any other key.
        """
        if not key.startswith(KEY_PREFIX) or key == KEY_PREFIX:
            raise Refusal("INVALID_API_KEY", "The API key is invalid or revoked")
        tenant_id = tenant_of(key)
        book = self.books.get(tenant_id)
        if book is None:
            book = self.books[tenant_id] = Book(open_account(tenant_id, masked(key), now))
            self.version += 1
        return book

    def add(self, transaction: Transaction) -> None:
        """Enter a new transaction, with its first planned step."""
        self.enter(transaction)
        self.schedule(transaction, transaction.created_at)

    def enter(self, transaction: Transaction) -> None:
        """Enter a transaction in the books."""
        book = self.books[transaction.tenant_id]
        book.history.append(transaction)
        book.counts[transaction.kind, transaction.status] += 1
        self.transactions[transaction.id] = transaction
        if transaction.channel_id is not None:
            book.linked_channels.add(transaction.channel_id)
        if transaction.idempotency_key is not None:
            book.replays[transaction.idempotency_key] = transaction
        if transaction.listed_from is not None:
            book.unlisted += 1

    def schedule(self, transaction: Transaction, now: datetime) -> None:
        """Put the first step of the transaction's plan on the agenda."""
        self.touch(transaction)
        transaction.due = transaction.plan[0].due(now) if transaction.plan else None
        if transaction.due is not None:
            self.agenda.add(transaction.due, "transaction", transaction.id)

    def touch(self, transaction: Transaction) -> None:
        """Note a change of a transaction."""
        self.touched[transaction.id] = transaction
        self.version += 1

    def move_money(self, kind: MovementKind, transaction: Transaction, amount: Decimal, now: datetime) -> None:
        """Enter a committed movement of money."""
        if amount:
            self.ledger.append(
                Movement(
                    kind,
                    transaction.id,
                    transaction.tenant_id,
                    transaction.reference,
                    amount,
                    transaction.phone,
                    now,
                )
            )

    def reset(self, now: datetime) -> None:
        """Forget everything; the accounts stay, restored in place."""
        accounts = [book.account for book in self.books.values()]
        for collection in (self.transactions, self.deliveries, self.callbacks, self.ledger, self.touched):
            collection.clear()
        self.agenda = Agenda()
        self.version += 1
        for account in accounts:
            restore(account, now)
            self.books[account.tenant_id] = Book(account)
