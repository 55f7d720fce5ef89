"""A Flask shop: orders in SQLite, signed callbacks, and a sweep for what is lost, with one handler for both.

    python examples/flask_shop.py [--port 8001]
    python examples/flask_shop.py --sweep          on the real service, from cron, every few minutes

The shop stores the order before it sends the prompt, and the prompt goes through a journal. Callbacks and the sweep
bring each end to `on_end`, once. Order and parcel change in one transaction, so an order ships once. Without MOMOPAY_*
settings it runs on the embedded sandbox. On the real service set SHOP_URL, the public https:// address, and
SHOP_SECRET, 16 random characters or more.
"""

from __future__ import annotations

import argparse
import os
import secrets
import sqlite3
import sys
import tempfile
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

from flask import Flask, abort, redirect, render_template_string, request, url_for
from werkzeug.wrappers import Response

from momopay import (
    Callback,
    CallbackSigner,
    Client,
    Journal,
    MomoPayError,
    OutcomeUnknownError,
    RequestValidationError,
    SweepReport,
    Transaction,
    normalise_phone,
)
from momopay.integrations.flask import callback_endpoint

PRICES = {"beans": 950, "cup": 250, "filter": 120}  # KES; a price never comes from a form
SCHEMA = """
CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, item TEXT NOT NULL, amount INTEGER NOT NULL,
    state TEXT NOT NULL DEFAULT 'WAITING');
CREATE TABLE IF NOT EXISTS parcels (number INTEGER PRIMARY KEY, order_id TEXT NOT NULL);
"""
PAGE = """<!doctype html><html lang="en"><meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark"><title>Duka</title>
{% if state == "WAITING" %}<meta http-equiv="refresh" content="2">{% endif %}
<style>body { font: 1.1rem/1.6 system-ui; max-width: 24rem; margin: 4rem auto; padding: 0 1rem }
input, select, button { font: inherit; width: 100%; padding: .5rem; margin: .25rem 0 1rem }</style>
<h1>Duka</h1>
{% if state %}<p id="state" class="{{ state }}">{{ {"WAITING": "Enter your PIN on your phone.",
"PAID": "Paid. It is on its way.", "FAILED": "That was not paid."}[state] }}</p><a href="/">Back to the shop</a>
{% else %}<form method="post">{% if fault %}<p role="alert">{{ fault }}</p>{% endif %}
<input type="hidden" name="order" value="{{ order }}">
<label>What <select name="item">{% for item, price in prices.items() %}<option value="{{ item }}">{{ item }},
KES {{ price }}</option>{% endfor %}</select></label>
<label>Phone <input name="phone" type="tel" required></label><button>Pay by phone</button></form>{% endif %}"""


class Shop:
    """The orders and their states. Many threads may use it: each call opens its own connection."""

    def __init__(self, client: Client, database: str, url: str) -> None:
        """Create the tables. The service sends callbacks to `url`."""
        self.journal = Journal(f"sqlite:///{database}.journal")
        self._client, self._database, self._url = client.with_options(journal=self.journal), database, url
        self.signer = CallbackSigner(os.environ.get("SHOP_SECRET") or secrets.token_hex())
        with self._db() as db:
            db.executescript(SCHEMA)

    @contextmanager
    def _db(self) -> Generator[sqlite3.Connection]:
        with closing(sqlite3.connect(self._database)) as db, db:
            yield db

    def state(self, order_id: str) -> str | None:
        """Return the state of an order, or None if there is no such order."""
        with self._db() as db:
            row = db.execute("SELECT state FROM orders WHERE id = ?", (order_id,)).fetchone()
        return None if row is None else str(row[0])

    def buy(self, order_id: str, item: str, phone: str) -> None:
        """Store the order, then prompt."""
        phone = normalise_phone(phone)
        with self._db() as db:
            new = "INSERT OR IGNORE INTO orders (id, item, amount) VALUES (?, ?, ?)"
            if not db.execute(new, (order_id, item, PRICES[item])).rowcount:
                return  # the form was sent twice: one prompt is enough
        try:
            self._client.stk.collect_once(
                reference=order_id,
                amount=PRICES[item],
                phone=phone,
                transaction_desc=item,
                callback_url=self.signer.url(f"{self._url}/momo", reference=order_id),
            )
        except OutcomeUnknownError:
            return  # there may be a prompt: the callback or the sweep ends the order
        except MomoPayError:
            self._end(order_id, "FAILED")
            raise

    def on_callback(self, callback: Callback) -> None:
        """Act on the service's own record, never on the callback. After an error here the service sends it again."""
        self.on_end(self._client.transactions.confirm(callback))

    def on_end(self, transaction: Transaction) -> None:
        """End the order of a transaction, whether a callback or the sweep brings it."""
        if transaction.status == "SUCCESS":
            self._end(transaction.account_reference or "", "PAID", int(transaction.amount))
        elif transaction.status.ended_without_success:
            self._end(transaction.account_reference or "", "FAILED")

    def _end(self, order_id: str, state: str, paid: int | None = None) -> None:
        # A late PIN may pay an order that had failed.
        end = "UPDATE orders SET state = ? WHERE id = ? AND state IN ('WAITING', ?) AND amount = coalesce(?, amount)"
        before = "FAILED" if state == "PAID" else "WAITING"
        with self._db() as db:  # one database transaction: order and parcel, or neither
            if db.execute(end, (state, order_id, before, paid)).rowcount and state == "PAID":
                db.execute("INSERT INTO parcels (order_id) VALUES (?)", (order_id,))

    def sweep(self) -> SweepReport:
        """Bring the ends that no callback brought."""
        return self._client.transactions.sweep(handler=self.on_end)


def create_app(shop: Shop) -> Flask:
    """Return the app with its pages and its callback URL."""
    app = Flask(__name__)
    app.post("/momo")(callback_endpoint(shop.on_callback, signer=shop.signer, journal=shop.journal))

    @app.route("/", methods=["GET", "POST"])
    def front() -> str | Response:
        fault = ""
        if request.method == "POST":
            order_id, item = request.form.get("order", ""), request.form.get("item", "")
            if item not in PRICES or not 0 < len(order_id) <= 12:  # noqa: PLR2004  the longest reference
                abort(400)
            try:
                shop.buy(order_id, item, request.form.get("phone", ""))
                return redirect(url_for("order", order_id=order_id), 303)
            except (RequestValidationError, ValueError) as error:
                fault = str(error)
            except MomoPayError:
                fault = "Payments do not work at the moment; nothing was charged."
        return render_template_string(PAGE, order=secrets.token_hex(6), prices=PRICES, fault=fault)

    @app.get("/orders/<order_id>")
    def order(order_id: str) -> str:
        state = shop.state(order_id)
        return render_template_string(PAGE, state=state) if state else abort(404)

    return app


def main() -> int:
    """Serve the shop, or sweep once."""
    parser = argparse.ArgumentParser(description="A Flask shop.")
    parser.add_argument("--port", type=int, default=8001)
    parser.add_argument("--sweep", action="store_true", help="end the orders whose callbacks were lost, then exit")
    options = parser.parse_args()
    url = os.environ.get("SHOP_URL", f"http://127.0.0.1:{options.port}")
    if "MOMOPAY_BASE_URL" in os.environ:
        shop = Shop(Client(), os.environ.get("SHOP_DATABASE", "flask_shop.db"), url)
        if options.sweep:
            print(f"{shop.sweep().open} orders are still open")
        else:
            create_app(shop).run(port=options.port)
        return 0
    from momopay.sandbox import Sandbox

    with Sandbox(speed=20) as sandbox, tempfile.TemporaryDirectory() as folder:
        print(f"The sandbox's phone is at {sandbox.url}", flush=True)
        shop = Shop(Client("pk_test_duka", base_url=sandbox.base_url), str(Path(folder) / "shop.db"), url)
        create_app(shop).run(port=options.port)
    return 0


if __name__ == "__main__":
    sys.exit(main())
