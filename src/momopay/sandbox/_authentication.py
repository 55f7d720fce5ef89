"""Who calls: the key of HTTP Basic authentication, then the key's rate limit."""

from base64 import b64decode
from datetime import datetime

from momopay.sandbox._refusals import Refusal
from momopay.sandbox._state import AccountState, ServiceState


def key_of(authorization: str | None) -> str:
    """Return the API key: the user name of Basic credentials; the password is ignored.

    Raises:
        Refusal: INVALID_API_KEY.
    """
    scheme, _, encoded = (authorization or "").partition(" ")
    try:
        decoded = b64decode(encoded.strip(), validate=True).decode("utf-8")
    except ValueError:
        decoded = ""
    key, colon, _ = decoded.partition(":")
    if scheme.lower() != "basic" or not colon:
        raise Refusal(
            "INVALID_API_KEY", "The API key is missing", headers={"www-authenticate": 'Basic realm="momopay sandbox"'}
        )
    return key


def admit(state: ServiceState, authorization: str | None, now: datetime) -> AccountState:
    """Return the account that calls, its request counted.

    Raises:
        Refusal: INVALID_API_KEY or RATE_LIMIT_EXCEEDED.
    """
    # The key comes first: a request without a valid one has no account whose budget it could use.
    account_state = state.account_of(key_of(authorization), now)
    account = account_state.account
    if account.rate_limit is not None:
        account_state.rate.admit(now, account.rate_limit, account.switches.rate_window)
    return account_state
