"""momopay: STK collections, B2C payouts, wallet, channels, transactions and callbacks, typed to the last field.

Names are loaded when they are first used, so that importing this package costs nearly nothing.
"""

from importlib import import_module

__version__ = "0.2.0"

TYPE_CHECKING = False  # checkers take it for true; importing typing would cost more than all of this file
if TYPE_CHECKING:
    from momopay._budget import Budget, Lane, RateBudget
    from momopay._schedule import PollSchedule, settled, terminal
    from momopay.callbacks import parse_callback
    from momopay.client import AsyncClient, Client
    from momopay.errors import (
        APIConnectionError,
        APIError,
        BudgetExhaustedError,
        CallbackError,
        CallbackMismatchError,
        ChannelInUseError,
        ChannelNotFoundError,
        ConfigurationError,
        DuplicatePayoutError,
        ForgedCallbackError,
        InsufficientFundsError,
        InsufficientServiceBalanceError,
        InvalidApiKeyError,
        InvalidCallbackError,
        InvalidPhoneError,
        JournalError,
        KycNotVerifiedError,
        MomoPayError,
        NoDefaultChannelError,
        NoPaymentChannelsError,
        OutcomeUnknownError,
        ProtocolError,
        RateLimitExceededError,
        RequestValidationError,
        ServerError,
        StkTempBannedError,
        ThrottledError,
        TransactionHealthBlockedError,
        TransactionNotFoundError,
        WaitTimeoutError,
    )
    from momopay.journal import Journal, JournalEntry, JournalState
    from momopay.models.callbacks import Callback, CallbackTransaction
    from momopay.models.channels import PaymentChannel
    from momopay.models.enums import ChannelType, EventType, ResultCode, TransactionStatus, TransactionType
    from momopay.models.payouts import Payout
    from momopay.models.records import ResponseInfo
    from momopay.models.stk import StkTransaction
    from momopay.models.transactions import (
        Transaction,
        TransactionOverview,
        TransactionPage,
        TransactionSummary,
    )
    from momopay.models.wallet import TopUp, WalletBalance
    from momopay.phones import normalise_phone
    from momopay.redis import RedisRateBudget
    from momopay.signing import CallbackSigner

_ROOMS = {
    "_budget": (
        "Budget",
        "Lane",
        "RateBudget",
    ),
    "_schedule": (
        "PollSchedule",
        "settled",
        "terminal",
    ),
    "callbacks": ("parse_callback",),
    "client": (
        "AsyncClient",
        "Client",
    ),
    "errors": (
        "APIConnectionError",
        "APIError",
        "BudgetExhaustedError",
        "CallbackError",
        "CallbackMismatchError",
        "ChannelInUseError",
        "ChannelNotFoundError",
        "ConfigurationError",
        "DuplicatePayoutError",
        "ForgedCallbackError",
        "InsufficientFundsError",
        "InsufficientServiceBalanceError",
        "InvalidApiKeyError",
        "InvalidCallbackError",
        "InvalidPhoneError",
        "JournalError",
        "KycNotVerifiedError",
        "MomoPayError",
        "NoDefaultChannelError",
        "NoPaymentChannelsError",
        "OutcomeUnknownError",
        "ProtocolError",
        "RateLimitExceededError",
        "RequestValidationError",
        "ServerError",
        "StkTempBannedError",
        "ThrottledError",
        "TransactionHealthBlockedError",
        "TransactionNotFoundError",
        "WaitTimeoutError",
    ),
    "journal": (
        "Journal",
        "JournalEntry",
        "JournalState",
    ),
    "models.callbacks": (
        "Callback",
        "CallbackTransaction",
    ),
    "models.channels": ("PaymentChannel",),
    "models.enums": (
        "ChannelType",
        "EventType",
        "ResultCode",
        "TransactionStatus",
        "TransactionType",
    ),
    "models.payouts": ("Payout",),
    "models.records": ("ResponseInfo",),
    "models.stk": ("StkTransaction",),
    "models.transactions": (
        "Transaction",
        "TransactionOverview",
        "TransactionPage",
        "TransactionSummary",
    ),
    "models.wallet": (
        "TopUp",
        "WalletBalance",
    ),
    "phones": ("normalise_phone",),
    "redis": ("RedisRateBudget",),
    "signing": ("CallbackSigner",),
}
_ROOM_OF = {name: room for room, names in _ROOMS.items() for name in names}

__all__ = [
    "APIConnectionError",
    "APIError",
    "AsyncClient",
    "Budget",
    "BudgetExhaustedError",
    "Callback",
    "CallbackError",
    "CallbackMismatchError",
    "CallbackSigner",
    "CallbackTransaction",
    "ChannelInUseError",
    "ChannelNotFoundError",
    "ChannelType",
    "Client",
    "ConfigurationError",
    "DuplicatePayoutError",
    "EventType",
    "ForgedCallbackError",
    "InsufficientFundsError",
    "InsufficientServiceBalanceError",
    "InvalidApiKeyError",
    "InvalidCallbackError",
    "InvalidPhoneError",
    "Journal",
    "JournalEntry",
    "JournalError",
    "JournalState",
    "KycNotVerifiedError",
    "Lane",
    "MomoPayError",
    "NoDefaultChannelError",
    "NoPaymentChannelsError",
    "OutcomeUnknownError",
    "PaymentChannel",
    "Payout",
    "PollSchedule",
    "ProtocolError",
    "RateBudget",
    "RateLimitExceededError",
    "RedisRateBudget",
    "RequestValidationError",
    "ResponseInfo",
    "ResultCode",
    "ServerError",
    "StkTempBannedError",
    "StkTransaction",
    "ThrottledError",
    "TopUp",
    "Transaction",
    "TransactionHealthBlockedError",
    "TransactionNotFoundError",
    "TransactionOverview",
    "TransactionPage",
    "TransactionStatus",
    "TransactionSummary",
    "TransactionType",
    "WaitTimeoutError",
    "WalletBalance",
    "__version__",
    "normalise_phone",
    "parse_callback",
    "settled",
    "terminal",
]


def __getattr__(name: str) -> object:
    room = _ROOM_OF.get(name)
    if room is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{room}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
