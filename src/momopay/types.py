"""Types for annotations: what calls take and return, apart from the names in `momopay` itself.

Users rarely create them. Events are in `momopay.events`.
"""

from __future__ import annotations

from momopay._core.config import SHARED_BUDGET, UNCHANGED, AsyncTransport, SyncTransport
from momopay._core.reads import TransactionIterator, TransactionPages
from momopay._polling.wait import WaitIterator
from momopay._ratelimit.budget import Lane
from momopay._ratelimit.redis_budget import RedisClient
from momopay.durable.pay_all import PayoutIterator
from momopay.durable.payment import PayoutOutcome
from momopay.durable.reconcile import DayReport
from momopay.durable.remedies import BookedOrder, Difference
from momopay.durable.sweep import SweepReport
from momopay.journal import ActivityDay, ActivitySum, HistoryEntry, HistoryKind, JournalCheck, JournalTransaction
from momopay.models.arguments import ChannelRef, HasId, HasTransactionId, TransactionRef
from momopay.models.callbacks import CallbackTransaction
from momopay.models.payments import AsyncPaymentHandler, PaymentHandler
from momopay.models.records import ResponseInfo
from momopay.models.requests import UNSET
from momopay.models.transactions import TransactionOverview, TransactionPage, TransactionSummary, UnreadTransaction
from momopay.resources.channels import Channels
from momopay.resources.payouts import Payouts
from momopay.resources.stk import Stk
from momopay.resources.transactions import Transactions
from momopay.resources.wallet import Wallet
from momopay.spreadsheets.faults import FaultyFileError, FileFault

__all__ = [
    "SHARED_BUDGET",
    "UNCHANGED",
    "UNSET",
    "ActivityDay",
    "ActivitySum",
    "AsyncPaymentHandler",
    "AsyncTransport",
    "BookedOrder",
    "CallbackTransaction",
    "ChannelRef",
    "Channels",
    "DayReport",
    "Difference",
    "FaultyFileError",
    "FileFault",
    "HasId",
    "HasTransactionId",
    "HistoryEntry",
    "HistoryKind",
    "JournalCheck",
    "JournalTransaction",
    "Lane",
    "PaymentHandler",
    "PayoutIterator",
    "PayoutOutcome",
    "Payouts",
    "RedisClient",
    "ResponseInfo",
    "Stk",
    "SweepReport",
    "SyncTransport",
    "TransactionIterator",
    "TransactionOverview",
    "TransactionPage",
    "TransactionPages",
    "TransactionRef",
    "TransactionSummary",
    "Transactions",
    "UnreadTransaction",
    "WaitIterator",
    "Wallet",
]
