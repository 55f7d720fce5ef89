"""A checkout: a form for phone and amount, a PIN prompt, and a page that follows the payment live.

    python examples/checkout/app.py [--port 8000]

The shop stores the order before it sends the prompt. A signed callback ends the order, or a sweep if the callback was
lost, with the same handler. One statement in the database decides, so the order ships once (shop.py). The page works
without JavaScript too. Without MOMOPAY_* settings it runs on the embedded sandbox. On the real service set SHOP_URL,
the public https:// address for callbacks, and SHOP_SECRET, 16 random characters or more, the same at every start.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import secrets
import tempfile
from collections.abc import AsyncIterator
from html import escape
from pathlib import Path
from string import Template
from urllib.parse import parse_qsl

import uvicorn
from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from shop import Order, Shop

from momopay import normalise_phone
from momopay.integrations.fastapi import callback_endpoint

PAGE = Template(Path(__file__).with_name("page.html").read_text(encoding="utf-8"))
LIVE = """<script>
  const order = document.getElementById("order");
  const events = new EventSource(location.pathname + "/events");
  events.onmessage = (event) => {
    order.innerHTML = event.data;
    if (!order.querySelector(".WAITING")) events.close();
  };
</script>"""
HEADINGS = {"WAITING": "Check your phone", "PAID": "Paid, thank you", "FAILED": "Not paid"}
MARKS = {"WAITING": "", "PAID": "\N{CHECK MARK}", "FAILED": "!"}


def form(phone: str = "", amount: str = "250", fault: str = "") -> HTMLResponse:
    """Return the form. It has the id of the order, so that sending it twice makes one order and one prompt."""
    body = f"""<h1>Kahawa</h1><p>A bag of beans from the corner shop, paid by phone.</p>
      <form method="post" action="/">
        <input type="hidden" name="order" value="{secrets.token_hex(6)}">
        <label for="phone">Phone number</label>
        <input id="phone" name="phone" type="tel" autocomplete="tel" required placeholder="0712 345 678"
               value="{escape(phone)}" aria-describedby="fault">
        <label for="amount">Amount, KES</label>
        <input id="amount" name="amount" type="number" inputmode="numeric" min="1" max="100000" required
               value="{escape(amount)}">
        <p id="fault" class="fault" role="alert">{escape(fault)}</p>
        <button>Pay</button>
      </form>"""
    return HTMLResponse(PAGE.substitute(refresh="", body=body), status_code=422 if fault else 200)


def checked(fields: dict[str, str]) -> tuple[str, str, int]:
    """Return order id, phone and amount from the form.

    Raises:
        ValueError: A message for the customer.
    """
    order_id, phone, amount = (fields.get(name, "") for name in ("order", "phone", "amount"))
    if not re.fullmatch("[0-9a-f]{12}", order_id):
        raise ValueError("Please send the form again")
    if not re.fullmatch("[1-9][0-9]{0,4}|100000", amount):
        raise ValueError("The amount is a whole number, from 1 to 100,000")
    try:
        return order_id, normalise_phone(phone), int(amount)
    except ValueError as fault:
        raise ValueError(f"The phone number {fault}") from None


def status(order: Order) -> str:
    """Return the state of an order as one line of HTML, since an event of the live page is a line."""
    notes = {"WAITING": "We sent you a prompt. Enter your PIN to pay.", "PAID": "Your beans are on their way."}
    again = '<a class="button" href="/">Try again</a>' if order.state == "FAILED" else ""
    return (
        f'<section class="{order.state}"><div class="mark" aria-hidden="true">{MARKS[order.state]}</div>'
        f"<h1>{HEADINGS[order.state]}</h1><p>{escape(notes.get(order.state, order.note))}</p>"
        f"<dl><dt>Amount</dt><dd>KES {order.amount:,}</dd><dt>Phone</dt><dd>…{order.phone[-3:]}</dd>"
        f"<dt>Order</dt><dd>{order.id}</dd></dl>{again}</section>"
    )


async def changes(shop: Shop, order_id: str) -> AsyncIterator[str]:
    """Yield an event for the live page whenever its order changes, until it ends."""
    last = ""
    while "WAITING" in last or not last:
        now = status(shop.order(order_id))
        if now != last:
            yield f"data: {now}\n\n"
        last = now
        await asyncio.sleep(0.2)  # reads the shop's own database, not the service


def create_app(shop: Shop) -> FastAPI:
    """Return the app with its pages and its callback URL."""
    app = FastAPI(lifespan=lambda _app: shop.open(), docs_url=None, redoc_url=None, openapi_url=None)
    app.post("/momo")(callback_endpoint(shop.on_callback, signer=shop.signer, journal=shop.journal))

    def known(order_id: str) -> Order:
        try:
            return shop.order(order_id)
        except LookupError as error:
            raise HTTPException(404) from error

    @app.get("/")
    def ask() -> HTMLResponse:
        return form()

    @app.post("/")
    async def buy(request: Request) -> Response:
        # A real shop authenticates its customer first: here anybody could send prompts to any phone.
        fields = dict(parse_qsl((await request.body()).decode(errors="replace")))
        try:
            order_id, phone, amount = checked(fields)
        except ValueError as fault:
            return form(fields.get("phone", ""), fields.get("amount", ""), str(fault))
        await shop.buy(order_id, phone, amount)
        return RedirectResponse(f"/orders/{order_id}", status_code=303)

    @app.get("/orders/{order_id}")
    async def show(order_id: str) -> HTMLResponse:
        order = known(order_id)
        waiting = order.state == "WAITING"
        refresh = '<noscript><meta http-equiv="refresh" content="2"></noscript>' if waiting else ""
        live = f'<div id="order" aria-live="polite">{status(order)}</div>{LIVE if waiting else ""}'
        return HTMLResponse(PAGE.substitute(refresh=refresh, body=live), headers={"cache-control": "no-store"})

    @app.get("/orders/{order_id}/events")
    async def events(order_id: str) -> StreamingResponse:
        known(order_id)
        return StreamingResponse(
            changes(shop, order_id), media_type="text/event-stream", headers={"cache-control": "no-store"}
        )

    return app


def main() -> None:
    """Serve the shop."""
    parser = argparse.ArgumentParser(description="A checkout with a live page.")
    parser.add_argument("--port", type=int, default=8000)
    port = parser.parse_args().port
    url = os.environ.get("SHOP_URL", f"http://127.0.0.1:{port}")
    if "MOMOPAY_BASE_URL" in os.environ:
        shop = Shop(
            os.environ.get("SHOP_DATABASE", "checkout.db"), url, every=float(os.environ.get("SHOP_SWEEP_SECONDS", "60"))
        )
        uvicorn.run(create_app(shop), port=port, timeout_graceful_shutdown=1)
        return
    from momopay.sandbox import Sandbox

    with Sandbox(speed=20) as sandbox, tempfile.TemporaryDirectory() as folder:
        os.environ |= {"MOMOPAY_API_KEY": "pk_test_checkout", "MOMOPAY_BASE_URL": sandbox.base_url}
        print(f"Shop {url}  Phone {sandbox.url}  (0712349932 cancels, 0712349945 waits for your PIN)", flush=True)
        shop = Shop(f"{folder}/orders.db", url, every=1)
        uvicorn.run(create_app(shop), port=port, timeout_graceful_shutdown=1, log_level="warning")


if __name__ == "__main__":
    main()
