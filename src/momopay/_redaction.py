"""Recognise API keys, and keep keys, callback tokens and whole phone numbers out of messages, reprs and tracebacks.

This is the lowest module of the package, because the errors need it. It is pure.
"""

from __future__ import annotations

import re
from binascii import a2b_base64
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import wraps
from traceback import walk_tb
from typing import Final, Literal, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

# How a key begins: letters, which the account console decides, and the mode. Stripe's secret keys begin with "sk_".
_BEGIN: Final = "[A-Za-z]{2,}_(?:live|test)_"
_PREFIX: Final = re.compile(r"(?!(?i:sk)_)[A-Za-z]{2,}_(live|test)_")
# How it goes on. It ends before a character that ends a value in JSON, a URL or a sentence.
_REST: Final = r"[!#$%*+./^_~=-]*[0-9A-Za-z][!#$%*+./^_~=0-9A-Za-z-]*(?<![.!])"
_WHOLE_KEY: Final = re.compile(_PREFIX.pattern + _REST)

# A key in plain text. A letter or digit follows its prefix, unlike in our own "pk_live_/pk_test_...".
# After a digit or "_", as in an escape sequence, so much must follow that it is no name in a program.
_START: Final = rf"((?:(?<![0-9A-Za-z_])|(?<=%[0-9A-Fa-f]{{2}})|(?<=[0-9_])(?={_BEGIN}[0-9A-Za-z_-]{{16}}))"
_END: Final = rf"{_BEGIN})(?![^0-9A-Za-z_]+{_BEGIN}){_REST}"
# A folder or a file is no key, unless as many characters follow as hardly any name of a folder has.
_NO_FILE: Final = rf"(?!(?<=[^/]/)(?!{_BEGIN}[0-9A-Za-z_-]{{16}})[\w-]+[./]\w)"
_KEY: Final = re.compile(_START + _NO_FILE + _END)
_KEY_IN_URL: Final = re.compile(_START + _END)
_URL: Final = re.compile(r"https?://[^\s\"'<>]+", re.IGNORECASE)

# What may be the base64 of a key, as in Basic authentication.
_BASE64 = re.compile(r"(?:(?<![0-9A-Za-z+/])|(?<=%[0-9A-Fa-f]{2}))([0-9A-Za-z+/]{4})[0-9A-Za-z+/]{4,}={0,2}")

# The token that `CallbackSigner` adds to a URL.
_TOKEN = re.compile(r"(momo_token(?:=|%3D))[0-9A-Za-z.]+")

# A Kenyan number in any spelling, also in a URL, where %20, %28 and %29 are a space and parentheses. The first
# alternative consumes hexadecimal ids and UUIDs, whose digits are no phone.
_PHONE = re.compile(
    r"(?P<id>(?<![0-9A-Za-z])(?:[0-9a-f]{16,}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?![0-9A-Za-z]))"
    r"|(?<![0-9])(?:\+?254|0(?=(?:[ ()-]|%2[089])?[17]))(?:(?:[ ()-]|%2[089]){0,2}[0-9]){9}(?![0-9])"
)

# Packages whose frames hold a request, its headers or a row of the journal during a call.
_CARRIERS: Final = frozenset(
    {
        "aiohttp",
        "anyio",
        "asyncio",
        "contextlib",  # its frames hold our generators
        "h11",
        "httpcore",
        "httpcore2",
        "httpx",
        "httpx2",
        "httpx_aiohttp",
        "momopay",
        "psycopg",
        "pydantic",
        "redis",
        "socket",
        "sqlalchemy",
        "ssl",
        "trio",
    }
)


def mask_phone(text: str) -> str:
    """Return the first four and the last three characters, as in ``2547*****678``."""
    return f"{text[:4]}*****{text[-3:]}"


def key_mode(key: str) -> Literal["live", "test"] | None:
    """Return "live" if an API key moves real money, else "test"; None if it is no key of this service."""
    match = _WHOLE_KEY.fullmatch(key)
    if match is None:
        return None
    return "live" if match[1] == "live" else "test"


def key_problem(key: str) -> str:
    """Return what is wrong with a text that is no API key, without the text."""
    if not _PREFIX.match(key):
        return (
            "must start with pk_live_ or pk_test_, or with other letters and _live_ or _test_, but not with sk_, as the"
            " secret keys of another service do: copy the key from the account console, under settings"
        )
    return (
        "must go on with letters and digits after its _live_ or _test_, without spaces, quotes, colons, brackets or a"
        " dot at its end: copy it again from the account console"
    )


def redact(text: str) -> str:
    """Return the text with all keys, callback tokens and phone numbers masked, and nothing else."""
    hidden = _URL.sub(lambda url: _KEY_IN_URL.sub(r"\1*****", url[0]), _BASE64.sub(_without_key, text))
    hidden = _TOKEN.sub(r"\1*****", _KEY.sub(r"\1*****", hidden))
    return _PHONE.sub(lambda match: match[0] if match["id"] else mask_phone(match[0]), hidden)


def _without_key(base64: re.Match[str]) -> str:
    decoded = a2b_base64(base64[0][: len(base64[0]) // 4 * 4]).decode("latin-1")
    is_key = _PREFIX.match(decoded) is not None or decoded.startswith("pk_")
    return f"{base64[1]}*****" if is_key else base64[0]


def redacted_repr(value: object) -> str:
    """Return the redacted repr of a value. A reference may be a phone number, so log references with this."""
    return redact(repr(value))


def clear_frames(error: BaseException) -> None:
    """Drop what crash reporters would show of a request: the locals of library frames, and secrets in causes.

    This covers the error and its whole chain. Only frames of `_CARRIERS` are cleared, so that users can debug their own
    functions and transports. A running frame cannot be cleared: `clears_frames` and `operation` delete their arguments.
    """
    for link in _chain(error):
        # A library's message may quote its arguments. The user's own errors are left as they are.
        if link is not error and type(link).__module__.partition(".")[0] in _CARRIERS:
            link.args = tuple(redact(each) if isinstance(each, str) else each for each in link.args)
        for frame, _ in walk_tb(link.__traceback__):
            if str(frame.f_globals.get("__name__")).partition(".")[0] in _CARRIERS:
                with suppress(RuntimeError):  # the frame is still running
                    frame.clear()


def clears_frames(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function whose arguments must not stay in the traceback of its errors."""

    @wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            from momopay._hints import explain  # noqa: PLC0415  for wrong names only

            explain(error, function)
            clear_frames(error)
            del args, kwargs
            raise

    return wrapper


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, its causes and its contexts, each once."""
    seen = set[int]()
    pending = [error]
    while pending:
        link = pending.pop()
        if id(link) not in seen:
            seen.add(id(link))
            yield link
            pending += [each for each in (link.__cause__, link.__context__) if each is not None]
