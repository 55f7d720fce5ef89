"""The options that commands share. The key is none of them: it comes from the environment or a hidden prompt."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Annotated, TypeAlias

import typer


def amount(value: str | Decimal) -> Decimal:
    """Read an amount of KES.

    Raises:
        typer.BadParameter: It is none.
    """
    text = str(value)  # typer brings defaults here too
    try:
        read = Decimal(text) if text.isascii() and "_" not in text else Decimal("NaN")
    except InvalidOperation:
        read = Decimal("NaN")
    if not read.is_finite():
        raise typer.BadParameter("must be an amount in KES, such as 100 or 99.50, without commas")
    return read


Json: TypeAlias = Annotated[bool, typer.Option("--json", help="JSON on stdout, for machines.")]
BaseUrl: TypeAlias = Annotated[
    str | None,
    typer.Option("--base-url", metavar="URL", envvar="MOMOPAY_BASE_URL", help="The service's address, ending in /v1."),
]
ShowPhones: TypeAlias = Annotated[bool, typer.Option("--show-phones", help="Show phones whole, not masked.")]
JournalAt: TypeAlias = Annotated[
    str,
    typer.Option(
        "--journal",
        metavar="FILE|URL",
        envvar="MOMOPAY_JOURNAL",
        help="The account's journal: a file of SQLite, or a postgresql+psycopg:// URL.",
    ),
]
ConfirmLive: TypeAlias = Annotated[
    Decimal | None,
    typer.Option(
        "--confirm-live",
        metavar="TOTAL",
        parser=amount,
        help="For scripts, with a live key too: the exact sum, KES, that may move.",
    ),
]
Timeout: TypeAlias = Annotated[
    float, typer.Option("--timeout", metavar="SECONDS", min=1, help="Give up waiting after this long.")
]
Every: TypeAlias = Annotated[
    float,
    typer.Option(
        "--every",
        metavar="SECONDS",
        min=0.1,
        help="Look this often; a new prompt first after one and a half times this.",
    ),
]
