"""One account with many branches: each collects on its own channel with its own provider credentials.

    python examples/branches.py [branches.toml]

The routes are checked at the start: a branch without a channel on the account stops the program before the first sale.
A sale then only names its branch. Without MOMOPAY_* settings this runs on the embedded sandbox and makes a few sales.
With them it only shows the routes and the sales of the day.
"""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

from momopay import Client, PaymentChannel, PollSchedule, StkTransaction

NAIROBI = timezone(timedelta(hours=3))


class Route(NamedTuple):
    """The channel that receives a branch's money, and the credentials for its prompts."""

    channel: PaymentChannel
    credential_id: str | None


class Branches:
    """The routes of all branches. The constructor checks them."""

    def __init__(self, client: Client, path: Path) -> None:
        """Match the file with the account's channels.

        Raises:
            LookupError: A branch names a shortcode that has no channel.
        """
        self._client = client
        by_shortcode = {channel.shortcode: channel for channel in client.channels.list()}
        wanted = tomllib.loads(path.read_text(encoding="utf-8"))
        missing = [name for name, branch in wanted.items() if branch["shortcode"] not in by_shortcode]
        if missing:
            raise LookupError(f"no channel on the account for: {', '.join(missing)}")
        self.routes: dict[str, Route] = {
            name: Route(by_shortcode[branch["shortcode"]], branch.get("credential_id"))
            for name, branch in wanted.items()
        }

    def sell(self, branch: str, *, amount: int | Decimal, phone: str, reference: str) -> StkTransaction:
        """Prompt for a sale. Without a channel, the account's default channel would receive the branch's money.

        With a credential profile, the channel decides the transaction type and receives the money. The profile's own
        shortcode only authenticates the request (service page, "POST /payments/stk").
        """
        route = self.routes[branch]
        return self._client.stk.initiate(
            amount=amount,
            phone=phone,
            account_reference=reference,
            transaction_desc=branch[:13],
            channel_id=route.channel,
            credential_id=route.credential_id,
        )

    def sales_today(self) -> Iterator[tuple[str, int, Decimal]]:
        """Yield each branch's name, number of sales today and their sum in KES, from the service's list."""
        midnight = datetime.now(NAIROBI).replace(hour=0, minute=0, second=0, microsecond=0)
        for name, route in self.routes.items():
            paid = self._client.transactions.iter(
                channel_id=route.channel, type="STK", status="SUCCESS", from_=midnight
            )
            amounts = [transaction.amount for transaction in paid]
            yield name, len(amounts), sum(amounts, Decimal(0))


def show(branches: Branches) -> None:
    """Print the routes and the sales of today."""
    for name, route in branches.routes.items():
        credentials = route.credential_id or "the account's own"
        print(f"{name:<12} {route.channel.type:<12} {route.channel.shortcode}  credentials: {credentials}")
    for name, sales, total in branches.sales_today():
        print(f"{name:<12} {sales} sales, KES {total}")


def main() -> None:
    """Show the routes on the real service, or sell on the sandbox."""
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("branches.toml")
    if "MOMOPAY_BASE_URL" in os.environ:
        with Client() as client:
            show(Branches(client, path))
        return
    from momopay.sandbox import Credential, Sandbox

    with Sandbox(speed=20) as sandbox, Client("pk_test_chain", base_url=sandbox.base_url) as client:
        profiles = (branch.get("credential_id") for branch in tomllib.loads(path.read_text(encoding="utf-8")).values())
        sandbox.account("pk_test_chain").credentials = {profile: Credential() for profile in profiles if profile}
        try:
            Branches(client, path)
        except LookupError as refused:
            print(f"Before the channels exist: {refused}")
        client.channels.create(name="Westlands", type="TILL_NUMBER", shortcode="600201")
        client.channels.create(name="Mombasa", type="PAYBILL", shortcode="600202", account_number="MSA")
        branches = Branches(client, path)
        sales = [
            branches.sell(branch, amount=amount, phone="0712 345 678", reference=f"SALE-{number}")
            for number, (branch, amount) in enumerate([("westlands", 150), ("mombasa", 80), ("mombasa", 20)], start=1)
        ]
        for paid in client.transactions.wait_all(sales, schedule=PollSchedule(first=1, every=1, limit=60)):
            print(f"{paid.account_reference}: {paid.status}")
        show(branches)


if __name__ == "__main__":
    main()
