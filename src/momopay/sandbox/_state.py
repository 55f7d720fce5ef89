"""Everything the service remembers, in plain collections. It knows no clock: `now` is always passed in.

Invariants: every transaction is in `transactions` and, at the index `number`, in the history of its account;
`counts` agrees with that history. Only one event loop touches the state, one step at a time, so there are no locks.
"""

import heapq
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal

from momopay.sandbox._accounts import KEY_PREFIX, Account, Switches, mask_key, open_account, restore, tenant_id_of
from momopay.sandbox._outcomes import OutcomePlan
from momopay.sandbox._records import CallbackRecord, Delivery, Kind, Movement, MovementKind, Status, Transaction
from momopay.sandbox._refusals import Refusal
from momopay.sandbox._throttling import RateWindow, StkHealth

# The running number keeps what is due at the same instant in its order of arrival.
Entry = tuple[datetime, int, Transaction | Delivery]


@dataclass(slots=True)
class AccountState:
    """What the service remembers of one account beside its settings."""

    account: Account
    history: list[Transaction] = field(default_factory=list[Transaction])
    # Kept as transactions move, so that the overview of a plain list needs no scan of the history.
    counts: Counter[tuple[Kind, Status]] = field(default_factory=Counter[tuple[Kind, Status]])
    rate: RateWindow = field(default_factory=RateWindow)
    health: StkHealth = field(default_factory=StkHealth)
    # Transactions that the fault `list_lag` ever kept out of lists: with one of them, `counts` is not enough.
    lagging: int = 0

    def admit(self, now: datetime) -> None:
        """Count a request in, or raise RATE_LIMIT_EXCEEDED."""
        if self.account.rate_limit is not None:
            self.rate.admit(now, self.account.rate_limit, self.account.switches.rate_window)


@dataclass(slots=True)
class ServiceState:
    """All accounts; `version` grows with every change that a reader could see."""

    accounts: dict[str, AccountState] = field(default_factory=dict[str, AccountState])
    transactions: dict[str, Transaction] = field(default_factory=dict[str, Transaction])
    deliveries: dict[str, Delivery] = field(default_factory=dict[str, Delivery])
    callbacks: list[CallbackRecord] = field(default_factory=list[CallbackRecord])
    ledger: list[Movement] = field(default_factory=list[Movement])
    # A heap of what is due when, from which nothing is removed early: see `pop_due`.
    agenda: list[Entry] = field(default_factory=list[Entry])
    entries: int = 0
    unsaved: dict[str, Transaction] = field(default_factory=dict[str, Transaction])
    outcomes: OutcomePlan = field(default_factory=OutcomePlan)
    # Beside loopback. A setting, and here because the rules read it.
    callback_hosts: frozenset[str] = frozenset()
    version: int = 0
    # Those of a fresh account.
    switches: Switches = field(default_factory=Switches)

    def use_switches(self, switches: Switches) -> None:
        """Give every account these switches, those that were there before too."""
        self.switches = switches
        for account_state in self.accounts.values():
            account_state.account.switches = switches.model_copy()

    def account_of(self, key: str, now: datetime) -> AccountState:
        """Return the state of a `pk_test_` key's account, opened at its first use."""
        if not key.startswith(KEY_PREFIX) or key == KEY_PREFIX:
            raise Refusal("INVALID_API_KEY", "The API key is invalid or revoked")
        tenant_id = tenant_id_of(key)
        # Any test key will do: a test must not have to register one first.
        account_state = self.accounts.get(tenant_id)
        if account_state is None:
            account_state = self.accounts[tenant_id] = AccountState(
                open_account(tenant_id, mask_key(key), now, self.switches)
            )
            self.version += 1
        return account_state

    def add(self, transaction: Transaction) -> None:
        """Add a new transaction and schedule its first planned step."""
        self.insert(transaction)
        self.schedule(transaction, transaction.created_at)

    def insert(self, transaction: Transaction) -> None:
        """Insert a transaction, new or loaded, wherever it is looked up."""
        account_state = self.accounts[transaction.tenant_id]
        account_state.history.append(transaction)
        account_state.counts[transaction.kind, transaction.status] += 1
        self.transactions[transaction.id] = transaction
        if transaction.listed_from is not None:
            account_state.lagging += 1

    def add_callback(self, record: CallbackRecord) -> None:
        """Add a callback delivery, new or loaded."""
        self.callbacks.append(record)
        self.version += 1

    def schedule(self, transaction: Transaction, now: datetime) -> None:
        """Schedule the first step of the transaction's plan."""
        self.mark_changed(transaction)
        transaction.due = transaction.plan[0].due(now) if transaction.plan else None
        self.put_on_agenda(transaction)

    def put_on_agenda(self, subject: Transaction | Delivery) -> None:
        """Have a transaction or a delivery taken when it is due, if it is."""
        if subject.due is not None:
            self.entries += 1
            heapq.heappush(self.agenda, (subject.due, self.entries, subject))

    def pop_due(self, until: datetime) -> tuple[datetime, Transaction | Delivery] | None:
        """Remove and return what is due first, if it is by `until`.

        A transaction that a user cancels, or a delivery that is planned anew, leaves its old entry behind: an entry is
        right only where its instant is the `due` of the thing itself.
        """
        while self.agenda and self.agenda[0][0] <= until:
            due, _, subject = heapq.heappop(self.agenda)
            if subject.due == due:
                return due, subject
        return None

    def mark_changed(self, transaction: Transaction) -> None:
        """Have a changed transaction saved, and readers informed."""
        self.unsaved[transaction.id] = transaction
        self.version += 1

    def record_movement(self, kind: MovementKind, transaction: Transaction, amount: Decimal, now: datetime) -> None:
        """Append a committed movement of money to the ledger."""
        # A fee of 0 means that no pricing rule is configured, and then nothing moves.
        if amount:
            of = transaction
            self.ledger.append(Movement(kind, of.id, of.tenant_id, of.reference, amount, of.phone, now))

    def reset(self, now: datetime) -> None:
        """Forget everything; the accounts stay, restored in place."""
        accounts = [account_state.account for account_state in self.accounts.values()]
        for collection in (self.transactions, self.deliveries, self.callbacks, self.ledger, self.unsaved):
            collection.clear()
        self.agenda.clear()
        self.outcomes.waiting.clear()
        self.version += 1
        for account in accounts:
            restore(account, now, self.switches)
            self.accounts[account.tenant_id] = AccountState(account)
