"""The account's service wallet and payment channels. Nothing here moves money."""

from __future__ import annotations

from momopay.cli.credentials import open_client
from momopay.cli.options import BaseUrl, Json, Utc
from momopay.cli.output import Output, fields, kes, table


def balance(base_url: BaseUrl = None, _utc: Utc = False, as_json: Json = False) -> None:
    """Show the service wallet, from which fees are paid.

    The B2C wallet, from which payouts are paid, cannot be read over the API: see the account console.

    Examples:
        momopay balance
    """
    with open_client(base_url) as client:
        wallet = client.wallet.balance()
    shown = {
        "Available": f"{wallet.currency} {kes(wallet.available_balance)}",
        "Ledger": f"{wallet.currency} {kes(wallet.ledger_balance)}",
        "Updated": wallet.updated_at,
    }
    Output(as_json).result(wallet, "Service wallet", fields(shown))


def channels(base_url: BaseUrl = None, as_json: Json = False) -> None:
    """List the payment channels, the default one first.

    Examples:
        momopay channels --json
    """
    output = Output(as_json)
    with open_client(base_url) as client:
        found = client.channels.list()
    rows = [
        (
            f"{channel.name}{' (default)' if channel.is_default else ''}\n{channel.id}",
            channel.type,
            channel.shortcode,
            output.text(channel.account_number),
        )
        for channel in found
    ]
    shown = table(("Channel", "Type", "Shortcode", "Account"), rows)
    output.result(
        {"items": found}, shown if found else "This account has no payment channel: an STK prompt would be refused."
    )
