"""momopay: STK collections, B2C payouts, wallet, channels, transactions and callbacks, typed to the last field.

Importing the package imports nothing else. A name's module is loaded when the name is first used.
"""

from importlib import import_module as _import_module
from os import environ as _environ

__version__ = "0.4.0"

# Type checkers and editors take this name for true, and find the names below it. It is not imported from `typing`,
# because that import alone takes longer than everything that this package may cost at start-up. The names are imported
# one by one: of a star import, Jedi completes whatever the module has, its own imports included.
TYPE_CHECKING = bool()  # noqa: UP018  Jedi would skip what stands below a plain False
if TYPE_CHECKING:
    from momopay._core.config import (
        SHARED_BUDGET as SHARED_BUDGET,
        UNCHANGED as UNCHANGED,
    )
    from momopay._polling.schedule import (
        PollSchedule as PollSchedule,
        settled as settled,
        terminal as terminal,
    )
    from momopay._polling.wait import WaitIterator as WaitIterator
    from momopay._ratelimit.budget import (
        Lane as Lane,
        RateBudget as RateBudget,
    )
    from momopay._ratelimit.file_budget import FileRateBudget as FileRateBudget
    from momopay._ratelimit.redis_budget import (
        RedisClient as RedisClient,
        RedisRateBudget as RedisRateBudget,
    )
    from momopay.callbacks import (
        AsyncCallbackHandler as AsyncCallbackHandler,
        CallbackHandler as CallbackHandler,
        parse_callback as parse_callback,
    )
    from momopay.client import (
        AsyncClient as AsyncClient,
        Client as Client,
    )
    from momopay.errors import (
        APIConnectionError as APIConnectionError,
        APIError as APIError,
        BudgetExhaustedError as BudgetExhaustedError,
        CallbackError as CallbackError,
        CallbackMismatchError as CallbackMismatchError,
        ChannelInUseError as ChannelInUseError,
        ChannelNotFoundError as ChannelNotFoundError,
        ConfigurationError as ConfigurationError,
        DuplicateCollectionError as DuplicateCollectionError,
        DuplicatePayoutError as DuplicatePayoutError,
        ForgedCallbackError as ForgedCallbackError,
        InsufficientFundsError as InsufficientFundsError,
        InsufficientServiceBalanceError as InsufficientServiceBalanceError,
        InvalidApiKeyError as InvalidApiKeyError,
        InvalidCallbackError as InvalidCallbackError,
        InvalidPhoneError as InvalidPhoneError,
        JournalError as JournalError,
        KycNotVerifiedError as KycNotVerifiedError,
        MomoPayError as MomoPayError,
        NoDefaultChannelError as NoDefaultChannelError,
        NoPaymentChannelsError as NoPaymentChannelsError,
        OutcomeUnknownError as OutcomeUnknownError,
        ProtocolError as ProtocolError,
        RateLimitExceededError as RateLimitExceededError,
        RequestValidationError as RequestValidationError,
        ServerError as ServerError,
        StkTempBannedError as StkTempBannedError,
        ThrottledError as ThrottledError,
        TransactionHealthBlockedError as TransactionHealthBlockedError,
        TransactionNotFoundError as TransactionNotFoundError,
        WaitTimeoutError as WaitTimeoutError,
    )
    from momopay.journal import (
        EntryKind as EntryKind,
        Journal as Journal,
        JournalCheck as JournalCheck,
        JournalEntry as JournalEntry,
        JournalState as JournalState,
        JournalTransaction as JournalTransaction,
        ReconcilingClient as ReconcilingClient,
    )
    from momopay.models.arguments import (
        ChannelRef as ChannelRef,
        HasId as HasId,
        HasTransactionId as HasTransactionId,
        TransactionRef as TransactionRef,
    )
    from momopay.models.callbacks import (
        Callback as Callback,
        CallbackTransaction as CallbackTransaction,
    )
    from momopay.models.account import PaymentChannel as PaymentChannel
    from momopay.models.enums import (
        ChannelType as ChannelType,
        EventType as EventType,
        ResultCode as ResultCode,
        TransactionStatus as TransactionStatus,
        TransactionType as TransactionType,
    )
    from momopay.models.transactions import Payout as Payout
    from momopay.models.records import ResponseInfo as ResponseInfo
    from momopay.models.requests import UNSET as UNSET
    from momopay.models.transactions import StkTransaction as StkTransaction
    from momopay.models.transactions import (
        Transaction as Transaction,
        TransactionOverview as TransactionOverview,
        TransactionPage as TransactionPage,
        TransactionSummary as TransactionSummary,
    )
    from momopay.models.account import (
        TopUp as TopUp,
        WalletBalance as WalletBalance,
    )
    from momopay.phones import normalise_phone as normalise_phone
    from momopay.resources.channels import Channels as Channels
    from momopay.durable.day_report import (
        BookedOrder as BookedOrder,
        DayReport as DayReport,
        Difference as Difference,
    )
    from momopay.durable.delivery import (
        AsyncTransactionHandler as AsyncTransactionHandler,
        TransactionHandler as TransactionHandler,
    )
    from momopay.resources.pagination import (
        TransactionIterator as TransactionIterator,
        TransactionPages as TransactionPages,
    )
    from momopay.durable.pay_all import PayoutIterator as PayoutIterator
    from momopay.durable.payment import Payment as Payment
    from momopay.durable.payout_items import (
        PayoutItem as PayoutItem,
        PayoutOutcome as PayoutOutcome,
    )
    from momopay.resources.payouts import Payouts as Payouts
    from momopay.resources.stk import Stk as Stk
    from momopay.durable.sweep import SweepReport as SweepReport
    from momopay.resources.transactions import Transactions as Transactions
    from momopay.resources.wallet import Wallet as Wallet
    from momopay.signing import CallbackSigner as CallbackSigner

    __all__: list[str]
else:
    # Each module lists the same names in its own `__all__` as this and the imports above do; tests compare them.
    _PUBLIC = {
        "_core.config": "SHARED_BUDGET UNCHANGED",
        "_polling.schedule": "PollSchedule settled terminal",
        "_polling.wait": "WaitIterator",
        "_ratelimit.budget": "Lane RateBudget",
        "_ratelimit.file_budget": "FileRateBudget",
        "_ratelimit.redis_budget": "RedisClient RedisRateBudget",
        "callbacks": "AsyncCallbackHandler CallbackHandler parse_callback",
        "client": "AsyncClient Client",
        "errors": """
            APIConnectionError APIError BudgetExhaustedError CallbackError CallbackMismatchError ChannelInUseError
            ChannelNotFoundError ConfigurationError DuplicateCollectionError DuplicatePayoutError ForgedCallbackError
            InsufficientFundsError InsufficientServiceBalanceError InvalidApiKeyError InvalidCallbackError
            InvalidPhoneError JournalError KycNotVerifiedError MomoPayError NoDefaultChannelError
            NoPaymentChannelsError OutcomeUnknownError ProtocolError RateLimitExceededError RequestValidationError
            ServerError StkTempBannedError ThrottledError TransactionHealthBlockedError TransactionNotFoundError
            WaitTimeoutError
        """,
        "journal": "EntryKind Journal JournalCheck JournalEntry JournalState JournalTransaction ReconcilingClient",
        "models.arguments": "ChannelRef HasId HasTransactionId TransactionRef",
        "models.callbacks": "Callback CallbackTransaction",
        "models.enums": "ChannelType EventType ResultCode TransactionStatus TransactionType",
        "models.records": "ResponseInfo",
        "models.requests": "UNSET",
        "models.transactions": """
            Payout StkTransaction Transaction TransactionOverview TransactionPage TransactionSummary
        """,
        "models.account": "PaymentChannel TopUp WalletBalance",
        "phones": "normalise_phone",
        "resources.channels": "Channels",
        "durable.day_report": "BookedOrder DayReport Difference",
        "durable.delivery": "AsyncTransactionHandler TransactionHandler",
        "resources.pagination": "TransactionIterator TransactionPages",
        "durable.pay_all": "PayoutIterator",
        "durable.payment": "Payment",
        "durable.payout_items": "PayoutItem PayoutOutcome",
        "resources.payouts": "Payouts",
        "resources.stk": "Stk",
        "durable.sweep": "SweepReport",
        "resources.transactions": "Transactions",
        "resources.wallet": "Wallet",
        "signing": "CallbackSigner",
    }
    _MODULE_OF = {name: module for module, names in _PUBLIC.items() for name in names.split()}

    __all__ = sorted([*_MODULE_OF, "__version__"])  # noqa: PLE0605

    def __getattr__(name: str) -> object:
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(_import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})

    if _environ.get("MOMOPAY_LOG"):
        _import_module("momopay._core.log").configure(_environ["MOMOPAY_LOG"])
