"""The state of the service, in plain collections, and the three rules that answer 429.

These are the rate limit of a key, transaction health, and the abuse ban. `now` is always passed in.

Invariant: every transaction is in `transactions` and, at the index `number`, in the history of its account. Only one
event loop uses the state, one step at a time, so there are no locks.
"""

import heapq
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from math import ceil

from momopay.sandbox._accounts import Account, Switches, mask_key, open_account, restore, tenant_id_of
from momopay.sandbox._outcomes import OutcomePlan
from momopay.sandbox._records import (
    COMPLETED,
    CallbackRecord,
    Delivery,
    Kind,
    Movement,
    MovementKind,
    Status,
    Transaction,
    iso,
)
from momopay.sandbox._refusals import Refusal

WINDOW = timedelta(seconds=60)
SAMPLE = 100
MINIMUM_SUCCESS = 0.3
HEALTH_PAUSE = timedelta(minutes=30)
BAN = timedelta(hours=1)
# The number keeps what is due at the same instant in order of arrival.
Entry = tuple[datetime, int, Transaction | Delivery]


def throttled(code: str, seconds: int, **details: object) -> Refusal:
    """Return a 429 whose Retry-After header has the seconds."""
    return Refusal(code, details=details, headers={"retry-after": str(seconds)})


def _paused(code: str, until: datetime, now: datetime, **details: object) -> Refusal:
    wait = ceil((until - now).total_seconds())
    return throttled(code, wait, retryAfterSeconds=wait, **details)


# The field names of both dataclasses are also the format of the state file, see `_engine`.
@dataclass(slots=True)
class RateWindow:
    """The admitted requests of one key, in a fixed window, which the first request opens, or in a sliding one."""

    hits: deque[datetime] = field(default_factory=deque[datetime])

    def admit(self, now: datetime, limit: int | None, window: str, code: str = "RATE_LIMIT_EXCEEDED") -> None:
        """Count one request, or raise a refusal with this code; a refused request does not count."""
        if limit is None:
            return
        while self.hits and now - self.hits[0] >= WINDOW:
            if window == "fixed":
                self.hits.clear()
            else:
                self.hits.popleft()
        if len(self.hits) >= limit:
            # Rounded up, so that a client that waits exactly this long is not refused again.
            wait = max(1, ceil((self.hits[0] + WINDOW - now).total_seconds()))
            raise throttled(code, wait, limit=limit, remaining=0, resetInSeconds=wait)
        self.hits.append(now)

    def headers(self, limit: int | None) -> dict[str, str]:
        """Return the headers of the switch `rate_limit_headers`; without a limit, there are none."""
        if limit is None or not self.hits:
            return {}
        return {
            "x-ratelimit-limit": str(limit),
            "x-ratelimit-remaining": str(max(0, limit - len(self.hits))),
            "x-ratelimit-reset": str(ceil((self.hits[0] + WINDOW).timestamp())),
        }


@dataclass(slots=True)
class StkHealth:
    """The results of the latest completed STK payments, and the two pauses of STK."""

    results: list[bool] = field(default_factory=list[bool])
    blocked_until: datetime | None = None
    success_rate: float = 0.0
    banned_until: datetime | None = None

    def add_result(self, now: datetime, *, succeeded: bool) -> None:
        """Count a completed payment, except during a pause. The latest 100, once there are 100, may begin a pause."""
        if self.blocked_until is not None and now < self.blocked_until:
            return
        self.results.append(succeeded)
        del self.results[:-SAMPLE]
        rate = sum(self.results) / SAMPLE
        if len(self.results) == SAMPLE and rate < MINIMUM_SUCCESS:
            self.block(now, rate)

    def block(self, now: datetime, rate: float = 0.0) -> None:
        """Begin the health pause. Counting restarts from zero after it."""
        self.blocked_until, self.success_rate = now + HEALTH_PAUSE, rate
        self.results.clear()

    def ban(self, now: datetime) -> None:
        self.banned_until = now + BAN

    def check(self, now: datetime) -> None:
        """Raise if STK is paused."""
        if self.blocked_until is not None and now < self.blocked_until:
            rates = {"successRate": self.success_rate, "sampleSize": SAMPLE, "minSuccessRate": MINIMUM_SUCCESS}
            until = self.blocked_until
            raise _paused("TRANSACTION_HEALTH_BLOCKED", until, now, blockedUntil=iso(until), **rates)
        if self.banned_until is not None and now < self.banned_until:
            raise _paused("STK_TEMP_BANNED", self.banned_until, now)


def is_abuse(newest_first: Iterable[Transaction], switches: Switches, now: datetime) -> bool:
    """Return whether enough prompts in the window have completed, and too few of them succeeded."""
    if switches.ban_pushes is None:
        return False
    since = now - timedelta(seconds=switches.ban_window)
    completed = succeeded = 0
    for transaction in newest_first:
        # The history is in order of creation, so everything else is older.
        if transaction.created_at < since:
            break
        if transaction.kind is Kind.STK and transaction.status in COMPLETED:
            completed += 1
            succeeded += transaction.status is Status.SUCCESS
    return completed >= switches.ban_pushes and succeeded < switches.ban_success_rate * completed


@dataclass(slots=True)
class AccountState:
    """The state of one account beside its settings."""

    account: Account
    history: list[Transaction] = field(default_factory=list[Transaction])
    # The newest transaction of each kind under each Idempotency-Key.
    keys: dict[tuple[Kind, str], Transaction] = field(default_factory=dict[tuple[Kind, str], Transaction])
    rate: RateWindow = field(default_factory=RateWindow)
    health: StkHealth = field(default_factory=StkHealth)


@dataclass(slots=True)
class ServiceState:
    """All accounts; `version` grows with every change that a reader could see."""

    accounts: dict[str, AccountState] = field(default_factory=dict[str, AccountState])
    transactions: dict[str, Transaction] = field(default_factory=dict[str, Transaction])
    deliveries: dict[str, Delivery] = field(default_factory=dict[str, Delivery])
    callbacks: list[CallbackRecord] = field(default_factory=list[CallbackRecord])
    ledger: list[Movement] = field(default_factory=list[Movement])
    # A heap of what is due when. Entries that no longer apply stay in it, see `pop_due`.
    agenda: list[Entry] = field(default_factory=list[Entry])
    entries: int = 0
    outcomes: OutcomePlan = field(default_factory=OutcomePlan)
    callback_hosts: frozenset[str] = frozenset()  # beside loopback
    version: int = 0
    switches: Switches = field(default_factory=Switches)  # of a fresh account

    def use_switches(self, switches: Switches) -> None:
        """Give these switches to every account, new or existing."""
        self.switches = switches
        for account_state in self.accounts.values():
            account_state.account.switches = switches.model_copy()

    def account_of(self, key: str, now: datetime, *, is_raw: bool = False) -> AccountState:
        """Return the state of the account of a key. Any key that the switches accept opens an account on first use."""
        tenant_id = tenant_id_of(key)
        account_state = self.accounts.get(tenant_id)
        switches = account_state.account.switches if account_state else self.switches
        if not switches.accept_key(key, is_raw=is_raw):
            raise Refusal("INVALID_API_KEY", "The API key is invalid or revoked")
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
        """Insert a transaction, new or loaded, into every collection that has it."""
        account_state = self.accounts[transaction.tenant_id]
        account_state.history.append(transaction)
        if transaction.idempotency_key:
            account_state.keys[transaction.kind, transaction.idempotency_key] = transaction
        self.transactions[transaction.id] = transaction

    def find(self, transaction_id: str) -> Transaction:
        """Return the transaction with an id, or raise Refusal."""
        if transaction_id not in self.transactions:
            raise Refusal("TRANSACTION_NOT_FOUND")
        return self.transactions[transaction_id]

    def add_callback(self, record: CallbackRecord) -> None:
        self.callbacks.append(record)
        self.version += 1

    def schedule(self, transaction: Transaction, now: datetime) -> None:
        """Schedule the first step of the transaction's plan."""
        self.version += 1
        transaction.due = now + timedelta(seconds=transaction.plan[0].after) if transaction.plan else None
        self.put_on_agenda(transaction)

    def put_on_agenda(self, subject: Transaction | Delivery) -> None:
        """Put a transaction or a delivery on the agenda, if it has a due time."""
        if subject.due is not None:
            self.entries += 1
            heapq.heappush(self.agenda, (subject.due, self.entries, subject))

    def pop_due(self, until: datetime) -> tuple[datetime, Transaction | Delivery] | None:
        """Remove and return what is due first, if it is due by `until`.

        A cancelled transaction or a rescheduled delivery leaves an old entry behind. An entry is valid only if its
        instant is still the `due` of its subject.
        """
        while self.agenda and self.agenda[0][0] <= until:
            due, _, subject = heapq.heappop(self.agenda)
            if subject.due == due:
                return due, subject
        return None

    def move(self, kind: MovementKind, transaction: Transaction, amount: Decimal, now: datetime) -> None:
        """Change the wallet that a movement concerns, and append it to the ledger."""
        if not amount:  # a fee without a pricing rule
            return
        of, account = transaction, self.accounts[transaction.tenant_id].account
        change = -amount if kind in {MovementKind.payout, MovementKind.fee} else amount
        is_b2c = of.kind is Kind.WALLET_TOPUP_B2C or kind in {MovementKind.payout, MovementKind.reversal}
        if is_b2c:
            account.b2c_balance += change
        elif kind is not MovementKind.stk:  # which goes to the merchant's own channel
            account.service_balance += change
            account.service_updated_at = now
        self.ledger.append(Movement(kind, of.id, of.tenant_id, of.reference, amount, of.phone, now))

    def reset(self, now: datetime) -> None:
        """Forget everything except the accounts, which are restored in place."""
        accounts = [account_state.account for account_state in self.accounts.values()]
        for collection in (self.transactions, self.deliveries, self.callbacks, self.ledger):
            collection.clear()
        self.agenda.clear()
        self.outcomes.waiting.clear()
        self.version += 1
        for account in accounts:
            restore(account, now, self.switches)
            self.accounts[account.tenant_id] = AccountState(account)
