"""momopay: STK collections, B2C payouts, wallet, channels, transactions and callbacks, typed to the last field.

The first call, with MOMOPAY_API_KEY and MOMOPAY_BASE_URL in the environment::

    client = momopay.Client(journal="sqlite:///payments.db")
    payment = client.stk.collect_once(reference="INV-1", amount=100, phone="0712 345 678")

The whole interface on one page, with its rules, a shop, a payroll, a refund and a test, is ``llms.txt`` beside this
file: ``importlib.resources.files("momopay").joinpath("llms.txt").read_text()``. For people, it is the page "The
interface on one page" of the documentation.

Importing the package imports nothing else: the module of a name is loaded when the name is first used. Further types
for annotations are in `momopay.types`, and events in `momopay.events`.
"""

from importlib import import_module as _import_module
from os import environ as _environ

__version__ = "0.4.0"

# Type checkers and editors take this name for true, and find the imports below it. It is not imported from `typing`,
# because that alone would take longer than the whole package may take at start-up. The names are imported one by one,
# because from a star import Jedi completes the module's own imports, too.
TYPE_CHECKING = bool()  # noqa: UP018  Jedi would skip the imports below a plain False
if TYPE_CHECKING:
    from momopay import events as events, types as types
    from momopay._polling.wait import PollSchedule as PollSchedule, settled as settled, terminal as terminal
    from momopay._ratelimit.budget import RateBudget as RateBudget
    from momopay._ratelimit.file_budget import FileRateBudget as FileRateBudget
    from momopay._ratelimit.redis_budget import RedisRateBudget as RedisRateBudget
    from momopay.callbacks import parse_callback as parse_callback
    from momopay.client import AsyncClient as AsyncClient, Client as Client
    from momopay.durable.payment import PayoutItem as PayoutItem
    from momopay.models.payments import Payment as Payment
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
        JournalEntry as JournalEntry,
        JournalState as JournalState,
    )
    from momopay.models.callbacks import Callback as Callback
    from momopay.models.enums import (
        ChannelType as ChannelType,
        EventType as EventType,
        ResultCode as ResultCode,
        TransactionStatus as TransactionStatus,
        TransactionType as TransactionType,
    )
    from momopay.models.transactions import (
        PaymentChannel as PaymentChannel,
        Payout as Payout,
        StkTransaction as StkTransaction,
        TopUp as TopUp,
        Transaction as Transaction,
        WalletBalance as WalletBalance,
    )
    from momopay.phones import normalise_phone as normalise_phone
    from momopay.signing import CallbackSigner as CallbackSigner

    __all__: list[str]
else:
    # The imports above repeat these names for type checkers; a test compares the two.
    _PUBLIC = {
        "_polling.wait": "PollSchedule settled terminal",
        "_ratelimit.budget": "RateBudget",
        "_ratelimit.file_budget": "FileRateBudget",
        "_ratelimit.redis_budget": "RedisRateBudget",
        "callbacks": "parse_callback",
        "client": "AsyncClient Client",
        "durable.payment": "PayoutItem",
        "models.payments": "Payment",
        "errors": """
            APIConnectionError APIError BudgetExhaustedError CallbackError CallbackMismatchError ChannelInUseError
            ChannelNotFoundError ConfigurationError DuplicateCollectionError DuplicatePayoutError ForgedCallbackError
            InsufficientFundsError InsufficientServiceBalanceError InvalidApiKeyError InvalidCallbackError
            InvalidPhoneError JournalError KycNotVerifiedError MomoPayError NoDefaultChannelError NoPaymentChannelsError
            OutcomeUnknownError ProtocolError RateLimitExceededError RequestValidationError ServerError
            StkTempBannedError ThrottledError TransactionHealthBlockedError TransactionNotFoundError WaitTimeoutError
        """,
        "journal": "EntryKind Journal JournalEntry JournalState",
        "models.callbacks": "Callback",
        "models.enums": "ChannelType EventType ResultCode TransactionStatus TransactionType",
        "models.transactions": "PaymentChannel Payout StkTransaction TopUp Transaction WalletBalance",
        "phones": "normalise_phone",
        "signing": "CallbackSigner",
    }
    _MODULE_OF = {name: module for module, names in _PUBLIC.items() for name in names.split()}

    __all__ = sorted(_MODULE_OF)  # noqa: PLE0605

    def __getattr__(name: str) -> object:
        if name in ("events", "types"):
            return _import_module(f"{__name__}.{name}")
        if name not in _MODULE_OF:
            raise _import_module(f"{__name__}._hints").missing_name(name)
        value = getattr(_import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted([*__all__, "__version__", "events", "types"])

    if _environ.get("MOMOPAY_LOG"):
        _import_module("momopay._core.config").configure_logging(_environ["MOMOPAY_LOG"])
