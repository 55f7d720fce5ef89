"""momopay: STK collections, B2C payouts, wallet, channels, transactions and callbacks, typed to the last field.

Importing the package imports nothing else. A name's module is loaded when the name is first used.
"""

from importlib import import_module
from os import environ as _environ

__version__ = "0.3.0.dev0"

# Type checkers and editors take this name for true and follow the imports below it. It is not imported from `typing`,
# because that import alone takes longer than everything that this package may cost at start-up.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from momopay._core.config import *
    from momopay._polling.schedule import *
    from momopay._polling.wait import *
    from momopay._ratelimit.budget import *
    from momopay._ratelimit.file_budget import *
    from momopay._ratelimit.limiter import *
    from momopay.callbacks import *
    from momopay.client import *
    from momopay.errors import *
    from momopay.journal import *
    from momopay.models.arguments import *
    from momopay.models.callbacks import *
    from momopay.models.channels import *
    from momopay.models.enums import *
    from momopay.models.payouts import *
    from momopay.models.records import *
    from momopay.models.request_base import *
    from momopay.models.stk import *
    from momopay.models.transactions import *
    from momopay.models.wallet import *
    from momopay.phones import *
    from momopay.redis import *
    from momopay.resources.channels import *
    from momopay.resources.day_report import *
    from momopay.resources.delivery import *
    from momopay.resources.pagination import *
    from momopay.resources.pay_all import *
    from momopay.resources.payout_items import *
    from momopay.resources.payouts import *
    from momopay.resources.stk import *
    from momopay.resources.sweep import *
    from momopay.resources.transactions import *
    from momopay.resources.wallet import *
    from momopay.signing import *

    __all__: list[str]
else:
    # Each module lists the same names in its own `__all__`; a test compares the two.
    _PUBLIC = {
        "_core.config": "SHARED_BUDGET UNCHANGED",
        "_polling.schedule": "PollSchedule settled terminal",
        "_polling.wait": "WaitIterator",
        "_ratelimit.budget": "Budget Lane RateBudget",
        "_ratelimit.file_budget": "FileRateBudget",
        "_ratelimit.limiter": "SharedBudget",
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
        "journal": "EntryKind Journal JournalCheck JournalEntry JournalState Prompt ReconcilingClient",
        "models.arguments": "ChannelRef HasId HasTransactionId TransactionRef",
        "models.callbacks": "Callback CallbackTransaction",
        "models.channels": "PaymentChannel",
        "models.enums": "ChannelType EventType ResultCode TransactionStatus TransactionType",
        "models.payouts": "Payout",
        "models.records": "ResponseInfo",
        "models.request_base": "UNSET",
        "models.stk": "StkTransaction",
        "models.transactions": "Transaction TransactionOverview TransactionPage TransactionSummary",
        "models.wallet": "TopUp WalletBalance",
        "phones": "normalise_phone",
        "redis": "RedisClient RedisRateBudget",
        "resources.channels": "Channels",
        "resources.day_report": "BookedOrder DayReport Difference",
        "resources.delivery": "AsyncTransactionHandler TransactionHandler",
        "resources.pagination": "TransactionIterator TransactionPages",
        "resources.pay_all": "PayoutIterator",
        "resources.payout_items": "PayoutItem PayoutOutcome",
        "resources.payouts": "Payouts",
        "resources.stk": "Stk",
        "resources.sweep": "SweepReport",
        "resources.transactions": "Transactions",
        "resources.wallet": "Wallet",
        "signing": "CallbackSigner",
    }
    _MODULE_OF = {name: module for module, names in _PUBLIC.items() for name in names.split()}

    __all__ = sorted([*_MODULE_OF, "__version__"])  # noqa: PLE0605

    def __getattr__(name: str) -> object:
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})

    if _environ.get("MOMOPAY_LOG"):
        import_module("momopay._core.log").configure(_environ["MOMOPAY_LOG"])
