"""The account's service wallet and payment channels. Nothing here moves money."""

from __future__ import annotations

from momopay.cli.options import ServiceOptions
from momopay.cli.output import fields, kes, table


def balance(options: ServiceOptions) -> None:
    """Show the service wallet, from which fees are paid.

    The B2C wallet, from which payouts are paid, cannot be read over the API: see the account console.

    Examples:
        momopay balance
    """
    with options.client() as client:
        wallet = client.wallet.balance()
    shown = {
        "Available": f"{wallet.currency} {kes(wallet.available_balance)}",
        "Ledger": f"{wallet.currency} {kes(wallet.ledger_balance)}",
        "Updated": wallet.updated_at,
    }
    options.output.result(wallet, "Service wallet", fields(shown))


def channels(options: ServiceOptions) -> None:
    """List the payment channels, the default one first.

    Examples:
        momopay channels --json
    """
    output = options.output
    with options.client() as client:
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
