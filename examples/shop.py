"""A shop, from start to end: checkout, webhook, sweep, another phone, refund, and a refund that came back.

    python examples/shop.py                  each step, one after the other, with a customer on the sandbox
    python examples/shop.py --port 8000      the shop in your browser

docs/start/shop.md explains it. An order is collected once and paid back once, whatever is clicked twice or lost on the
way. Without MOMOPAY_* settings it runs on the embedded sandbox and moves no real money. On the real service set
MOMOPAY_CALLBACK_SECRET and SHOP_URL, the public https:// address for callbacks, and protect `refund` by a login.
"""

from __future__ import annotations

import argparse
import asyncio
import atexit
import logging
import os
import secrets
import shutil
import sqlite3
import tempfile
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, closing, contextmanager
from decimal import Decimal
from http import HTTPStatus
from string import Template

import uvicorn
from fastapi import FastAPI, HTTPException
from fastapi.responses import HTMLResponse
from pydantic import BaseModel, Field

from momopay import (
    CallbackSigner,
    Client,
    DuplicateCollectionError,
    EntryKind,
    InvalidPhoneError,
    Journal,
    JournalError,
    MomoPayError,
    Payment,
    RequestValidationError,
)
from momopay.integrations.fastapi import callback_endpoint, status_endpoint
from momopay.sandbox import Sandbox

SANDBOX = None if "MOMOPAY_BASE_URL" in os.environ else Sandbox(speed=20).start()
if SANDBOX is not None:
    os.chdir(folder := tempfile.mkdtemp())  # the sandbox forgets its payments, and so must the journal
    atexit.register(shutil.rmtree, folder)
    atexit.register(SANDBOX.close)
    os.environ |= {"MOMOPAY_API_KEY": "pk_test_shop", "MOMOPAY_BASE_URL": SANDBOX.base_url}
    os.environ.setdefault("MOMOPAY_CALLBACK_SECRET", secrets.token_hex())

PRICE = 450  # KES; a price never comes from a form
journal = Journal("sqlite:///payments.db")
client = Client(journal=journal)
signer = CallbackSigner(os.environ["MOMOPAY_CALLBACK_SECRET"])
logger = logging.getLogger("shop")


@contextmanager
def shop() -> Generator[sqlite3.Connection]:
    """Open the shop's own database for one transaction."""
    with closing(sqlite3.connect("shop.db", timeout=30)) as database, database:
        yield database


with shop() as created:
    created.execute("CREATE TABLE IF NOT EXISTS orders (id PRIMARY KEY, amount, state)")


def move(order: str, state: str, *before: str) -> None:
    """Change the state of an order, if it is in one of the states before. Raise LookupError if there is no order."""
    among = f"AND state IN ({', '.join('?' * len(before))})"
    update = f"UPDATE orders SET state = ? WHERE id = ? {among}"  # noqa: S608  question marks only
    exists = "SELECT 1 FROM orders WHERE id = ?"
    with shop() as database:
        if database.execute(update, (state, order, *before)).rowcount:
            # The place to deliver what was paid. An error here undoes the change.
            print(f"  order {order}: {state}", flush=True)
        elif not database.execute(exists, [order]).fetchone():
            raise LookupError(f"there is no order {order}")


def callback_url(reference: str) -> str:
    """Return the address for the callback of a payment, signed for its reference."""
    return signer.url(f"{os.environ['SHOP_URL']}/momo", reference=reference)


def pay(order: str, phone: str) -> tuple[int, str]:
    """Collect an order, however often "Pay" is pressed, and from which phone. Return an HTTP status and a text."""
    with shop() as database:  # committed before the prompt is sent
        insert = "INSERT OR IGNORE INTO orders VALUES (?, ?, 'WAITING')"
        database.execute(insert, (order, PRICE))
    move(order, "WAITING", "NOT PAID")
    try:
        client.stk.collect_once(
            reference=order,
            amount=PRICE,
            phone=phone,
            callback_url=callback_url(order),
        )
    except DuplicateCollectionError:
        return 409, "Open on the other phone."
    except (RequestValidationError, InvalidPhoneError) as error:
        move(order, "NOT PAID", "WAITING")
        return 422, str(error)
    except MomoPayError as error:
        logger.exception("order %s", order)
        if isinstance(error, JournalError) or not error.may_have_executed:
            move(order, "NOT PAID", "WAITING")
            return 503, "Please try again in a minute."
    return 200, "Enter your PIN on your phone."


def on_end(payment: Payment) -> None:
    """Act on the end of a payment. Callbacks and sweeps bring each end here once; after an error, again."""
    if not payment.in_journal:
        return  # the shop did not ask for it: a pay link, or the dashboard
    if payment.kind is EntryKind.COLLECTION:
        if payment.is_paid:
            # NOT PAID: the PIN came after the prompt had ended.
            move(payment.reference, "PAID", "WAITING", "NOT PAID")
        else:
            move(payment.reference, "NOT PAID", "WAITING")
    elif payment.refund_of is not None:
        if payment.status == "REVERSED":
            move(payment.refund_of, "REFUND CAME BACK", "PAID", "REFUNDED")
        elif payment.is_paid and payment.refunded >= paid(payment.refund_of):
            # After a part, it stays PAID.
            move(payment.refund_of, "REFUNDED", "PAID", "REFUND CAME BACK")


def paid(order: str) -> Decimal:
    """Return what was paid for an order, in KES; more than its amount, if it was paid twice."""
    entry = journal.get(order, EntryKind.COLLECTION)
    return sum((each.amount for each in (entry.counting if entry else ())), Decimal(0))


def sweep() -> None:
    """Bring the ends that no callback brought to the same handler."""
    client.transactions.sweep(handler=on_end)


def refund(order: str, amount: int | None = None, number: int = 1) -> Payment:
    """Pay back an amount, by default all that is left. However often it is called, each number is one refund."""
    reference = f"{order}-R{number}"
    return client.payouts.refund(
        of=order,
        amount=amount,
        reference=reference,
        callback_url=callback_url(reference),
    )


class Press(BaseModel):
    """What the page sends when the customer presses "Pay"."""

    order: str = Field(pattern="^[0-9a-f]{12}$")
    phone: str


def press(body: Press) -> str:
    """Collect an order, and say how that went."""
    status, text = pay(body.order, body.phone)
    if status != HTTPStatus.OK:
        raise HTTPException(status, text)
    return text


def show(order: str) -> dict[str, object]:
    """Return an order as the shop has it."""
    with shop() as database:
        found = database.execute("SELECT * FROM orders WHERE id = ?", [order]).fetchone()
    if found is None:
        raise HTTPException(404, "There is no such order.")
    return dict(zip(("order", "amount", "state"), found, strict=True))


def front() -> HTMLResponse:
    """Return the page, with a new order on it, and the address that it asks every second how the payment stands."""
    order = secrets.token_hex(6)
    status = signer.status_url("/status", reference=order)
    return HTMLResponse(PAGE.substitute(order=order, price=PRICE, status=status))


@asynccontextmanager
async def lifespan(_app: FastAPI) -> AsyncGenerator[None]:
    """Sweep every minute while the shop is open."""

    async def sweep_again_and_again() -> None:
        while True:
            try:
                await asyncio.to_thread(sweep)
            except MomoPayError as error:  # the next one goes on
                print(f"  the sweep failed: {error}", flush=True)
            await asyncio.sleep(float(os.environ.get("SHOP_SWEEP_SECONDS", "60")))

    sweeping = asyncio.create_task(sweep_again_and_again())
    yield
    sweeping.cancel()


app = FastAPI(lifespan=lifespan)
app.get("/")(front)
app.post("/pay")(press)
app.get("/orders/{order}")(show)
app.post("/momo")(callback_endpoint(on_end, client=client, signer=signer))
app.get("/status")(status_endpoint(client=client, signer=signer))

PAGE = Template("""<!doctype html><html lang="en"><meta charset="utf-8"><title>Kahawa, the corner coffee shop</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,"><style>
:root { color-scheme: light dark; --accent: light-dark(#0a7a4b, #3ecb8b) }
body { font: 1.1rem/1.5 system-ui, sans-serif; max-width: 22rem; margin: 3rem auto; padding: 0 1.25rem }
input, button { font: inherit; width: 100%; padding: .7rem; margin: .3rem 0 1rem; box-sizing: border-box }
button { border: 0; background: var(--accent); color: light-dark(#fff, #08281a); font-weight: 600 }
#state { font-weight: 600 } .paid { color: var(--accent) } .not_paid { color: light-dark(#a8321f, #ff9482) }</style>
<h1>Kahawa</h1><p>A bag of beans, KES $price</p>
<form><label>Phone number<input name="phone" type="tel" required></label><button>Pay</button></form>
<p id="state" role="status"></p><script>
const form = document.querySelector("form"), line = document.querySelector("#state"), order = "$order";
const texts = {waiting: "Enter your PIN on your phone.", paid: "Paid. Your beans are on their way.",
  not_paid: "Not paid. Try again, also from another phone.", unknown: "We are finding out whether you paid."};
function tell(text, state) { line.textContent = text; line.className = state; form.hidden = state == "paid" }
async function follow() {
  const {state} = await (await fetch("$status")).json();
  tell(texts[state], state);
  if (state == "waiting" || state == "unknown") setTimeout(follow, 1000);
}
form.onsubmit = async (event) => {
  event.preventDefault();
  const body = JSON.stringify({order, phone: form.phone.value});
  const answer = await fetch("/pay", {method: "POST", headers: {"content-type": "application/json"}, body});
  if (answer.ok) follow(); else tell((await answer.json()).detail, "not_paid");
}</script>""")


def steps(sandbox: Sandbox) -> None:
    """Be the customers, one step after the other."""

    def press_pay(order: str, phone: str) -> None:
        pay(order, phone)
        print(f"  {phone} presses Pay: {show(order)['state']}")

    def until(order: str, state: str, act: Callable[[], object] = lambda: None) -> None:
        while show(order)["state"] != state:
            time.sleep(1)  # each sweep takes requests of the minute's 60
            act()

    first, second, third = (secrets.token_hex(6) for _ in range(3))
    print("1. The customer presses Pay, twice. One prompt is sent, and the webhook says that it was paid.")
    press_pay(first, "0712345678")
    press_pay(first, "0712345678")
    until(first, "PAID")
    print("2. The webhook is lost. The sweep finds out.")
    press_pay(second, "0712349943")
    until(second, "PAID", sweep)
    print("3. The customer cancels, and tries again from another phone.")
    press_pay(third, "0712349932")
    until(third, "NOT PAID")
    press_pay(third, "0723000001")
    until(third, "PAID")
    print("4. The shop pays back KES 40, which leaves the order PAID. It runs the refund twice, and it is paid once.")
    print(f"  refund {refund(first, 40).reference}, {refund(first, 40).reference}")
    print(f"  refund the rest, {refund(first, number=2).reference}")
    until(first, "REFUNDED", sweep)
    print("5. A refund comes back, as the sweep finds out, and is paid again under the next reference.")
    sandbox.end_next("reversed", kind="payout")
    print(f"  refund {refund(third).reference}")
    until(third, "REFUND CAME BACK", sweep)
    print(f"  refund {refund(third, number=2).reference}")
    until(third, "REFUNDED", sweep)
    moved = [f"{each.kind} {each.reference}" for each in sandbox.ledger if each.kind != "fee"]
    print("The service's own ledger:", *moved, sep="\n  ")


def main() -> None:
    """Serve the shop; without a port, to the customers of `steps`."""
    parser = argparse.ArgumentParser(description="A shop, from start to end.")
    parser.add_argument("--port", type=int, help="serve the shop on this port")
    port = parser.parse_args().port
    if SANDBOX is None or port is not None:
        os.environ.setdefault("SHOP_URL", f"http://127.0.0.1:{port or 8000}")
        phone = "" if SANDBOX is None else f", its phone at {SANDBOX.url}"
        print(f"The shop is at {os.environ['SHOP_URL']}{phone}", flush=True)
        uvicorn.run(app, port=port or 8000, log_level="warning")
        return
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))  # a free port
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        os.environ["SHOP_URL"] = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        steps(SANDBOX)
    finally:
        server.should_exit = True
        thread.join()


if __name__ == "__main__":
    main()
