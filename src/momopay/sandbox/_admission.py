"""Who may come in: the key of HTTP Basic authentication, then the key's rate limit."""

from base64 import b64decode
from datetime import datetime

from momopay.sandbox._refusals import Refusal
from momopay.sandbox._state import Book, World


def key_of(authorization: str | None) -> str:
    """The API key: the user name of Basic credentials; the password is ignored.

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
            "INVALID_API_KEY",
            "The API key is missing",
            headers={"www-authenticate": 'Basic realm="momopay sandbox"'},
        )
    return key


def admit(world: World, authorization: str | None, now: datetime) -> Book:
    """The book of the account that calls, its request counted.

    Raises:
        Refusal: INVALID_API_KEY or RATE_LIMIT_EXCEEDED.
    """
    book = world.book(key_of(authorization), now)
    account = book.account
    if account.rate_limit is not None:
        book.rate.admit(now, account.rate_limit, account.switches.rate_window)
    return book
