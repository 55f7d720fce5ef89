"""Commands for developing an application: run the sandbox, send a made-up callback (webhook), forward real ends."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict
from datetime import UTC, datetime
from decimal import Decimal
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias
from urllib.parse import urlsplit
from uuid import uuid4

import typer
from typer import Argument, Option

import momopay
from momopay._redaction import key_mode
from momopay.cli.command import Group, command
from momopay.cli.exit_codes import CommandError, ExitCode
from momopay.cli.options import (
    ServiceOptions,
    api_key,
    checked,
    kes_option,
    not_blank,
    one_of,
    seconds_option,
    whole_phone,
    word_option,
)
from momopay.cli.output import Output, local, plain
from momopay.errors import MomoPayError, RequestValidationError
from momopay.urls import check_callback_url, is_loopback

if TYPE_CHECKING:  # at run time it would load the modules that send
    from momopay.integrations._listener import ForwardedEnd

_VARIABLE = "MOMOPAY_CALLBACK_SECRET"
app: typer.Typer = typer.Typer(
    cls=Group, help="Send callbacks to an application under development.", no_args_is_help=True
)

_ANSWER_SHOWN = 500  # characters
_AGAIN = "Not acknowledged: the service would deliver it again, five times at most. The application's log says why."
_RESULTS = {
    "SUCCESS": ("0", "The service request is processed successfully."),
    "FAILED": ("1", "The balance is insufficient for the transaction."),
    "CANCELLED": ("1032", "Request cancelled by user."),
    "EXPIRED": ("1037", "DS timeout, user cannot be reached."),
}


AllowHost: TypeAlias = Annotated[list[str] | None, Option(metavar="NAME", help="Also to this host; repeatable.")]


# Without a callback, typer turns a group of one command into that command.
@app.callback()
def group() -> None:
    """Send callbacks to an application under development."""


@command(app)
def send(
    options: ServiceOptions,
    end: Annotated[
        str,
        Argument(metavar="END", parser=one_of(lambda: _RESULTS), help="success, failed, cancelled or expired."),
    ],
    to: Annotated[str, Option("--to", metavar="URL", help="The application's callback URL.")],
    transaction: Annotated[str | None, Option(metavar="ID", help="Report this one, as read from the service.")] = None,
    reference: Annotated[str, Option(metavar="TEXT", callback=not_blank, help="Of a made-up payment.")] = "INV-42",
    amount_: Annotated[
        Decimal, kes_option("--amount", "Of a made-up payment.", callback=checked("StkRequest.amount"))
    ] = Decimal(100),
    phone: Annotated[str, Option(metavar="PHONE", callback=whole_phone, help="Of a made-up payment.")] = "254712345678",
    kind: Annotated[str, word_option("STK|B2C", lambda: ("STK", "B2C"), "Of a made-up payment.", "--type")] = "STK",
    times: Annotated[int, Option(metavar="N", min=1, max=100, help="Send it again: callbacks may come twice.")] = 1,
    allow_host: AllowHost = None,
) -> ExitCode:
    """POST a callback as the service would, and show the answer.

    It is made up, unless --transaction reads a payment from the service: then an application that confirms callbacks
    accepts it too, if the payment really ended so. With MOMOPAY_CALLBACK_SECRET set, the URL is signed as
    CallbackSigner signs it. Exits with 0 if every answer was 2xx, 1 if not, 6 if there was none. With --json, one
    answer a line.

    Examples:
        momopay callback send success --to http://127.0.0.1:8000/callbacks
    """
    to = _checked_target("--to", to, allow_host)
    status = momopay.TransactionStatus(end)
    if transaction is None:
        if not reference.isprintable():  # JSON has no bytes that are not UTF-8
            raise RequestValidationError({"reference": "must be text"})
        reported = _made_up(reference=reference, amount=amount_, phone=phone, type_=kind)
    else:
        with options.client() as client:
            reported = client.transactions.get(transaction)
    # Serialised once, because the service's retries have the same bytes.
    body = _body(status, reported)
    secret = os.environ.get(_VARIABLE)
    url = momopay.CallbackSigner(secret).url(to, reference=reported.account_reference or "") if secret else to
    # The highest exit code is the worst: 6 for no answer, then 1 for a refusal.
    return max(_deliver(options.output, url, body) for _ in range(times))


def _checked_target(option: str, url: str, allowed_hosts: list[str] | None) -> str:
    """Return the URL; raise CommandError if it is neither on this machine nor on an allowed host."""
    try:
        # Checks only the form, since the service's rule for hosts is the opposite of this one.
        checked = check_callback_url(url, on_loopback=True)
        if not is_loopback(checked) and urlsplit(checked).hostname not in {
            host.lower() for host in allowed_hosts or ()
        }:
            raise ValueError("is not on this machine")
    except ValueError as error:
        remedy = "give one such as http://127.0.0.1:8000/callbacks; callbacks hold phones: --allow-host NAME allows"
        raise CommandError(
            f"{option}: {error}", remedy=f"{remedy} a host, if the application there is yours"
        ) from error
    return checked


def _made_up(*, reference: str, amount: Decimal, phone: str, type_: str | None) -> momopay.Transaction:
    now = datetime.now(UTC)
    ids = ("transaction_id", "tenant_id", "provider_request_id", "provider_checkout_id")
    of_payment = {"type": type_, "amount": amount, "phone": phone, "account_reference": reference}
    times = {"created_at": now, "updated_at": now}
    made_up = {"status": "PENDING", "transaction_fee": Decimal(1), **{name: str(uuid4()) for name in ids}}
    return momopay.Transaction.model_validate(of_payment | times | made_up)


def _body(end: momopay.TransactionStatus, transaction: momopay.Transaction) -> bytes:
    """Return the callback for this end of a payment. Its receipt is made up, since most reads show none."""
    from momopay.callbacks import callback_body

    code, description = _RESULTS[end.value]
    ended = {"status": end, "result_code": momopay.ResultCode(code), "result_desc": description, "provider": "MOMO"}
    body: dict[str, Any] = json.loads(callback_body(transaction.model_copy(update=ended)))
    body["transaction"]["momo_receipt"] = uuid4().hex[:10].upper() if end == momopay.TransactionStatus.SUCCESS else None
    return json.dumps(body).encode()


def _deliver(output: Output, url: str, body: bytes) -> ExitCode:
    """Send the callback once, and show what came back."""
    from momopay.integrations._listener import RESPONSE_LIMIT, post_callback  # loads the modules that send

    begun = time.monotonic()
    status, answer, problem = post_callback(url, body)
    elapsed = time.monotonic() - begun
    acknowledged = status is not None and HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES
    text = answer.decode("utf-8", "replace")[:_ANSWER_SHOWN]
    document = {
        "status": status,
        "acknowledged": acknowledged,
        "answer": text,
        "problem": problem,
        "elapsed_seconds": round(elapsed, 3),
    }
    took = {"code": status or "none", "took": f"{elapsed:.3f} s of {RESPONSE_LIMIT:.0f} s", "answer": text or problem}
    hint = [] if acknowledged else [_AGAIN]
    output.result(document, output.table([took], {"Status": "code", "Took": "took", "Answer": "answer"}), *hint)
    return ExitCode.OK if acknowledged else ExitCode.TRY_LATER if status is None else ExitCode.REFUSED


def listen(
    options: ServiceOptions,
    forward_to: Annotated[str, Option(metavar="URL", help="The application's callback URL.")],
    every: Annotated[float, seconds_option("Time between polls of the list.")] = 10.0,
    allow_host: AllowHost = None,
) -> None:
    """Forward the ends of payments to an application on this machine, until Ctrl-C.

    Polls the account's list, one request each time, and POSTs each end to the application as the service would. What
    is not answered with 2xx comes again after the service's delays. Only reads are sent to the service. A callback
    from here has no momo_receipt if the service's reads show none. With MOMOPAY_CALLBACK_SECRET set, the URL is signed
    as CallbackSigner signs it. With --json, a line for each delivery.

    Examples:
        momopay listen --forward-to http://127.0.0.1:8000/callbacks
    """
    from momopay.integrations._listener import Listener  # loads the modules that send

    output = options.output
    url = _checked_target("--forward-to", forward_to, allow_host)
    secret, key = os.environ.get(_VARIABLE), api_key()
    with options.client(key=key) as client:
        signer = momopay.CallbackSigner(secret) if secret else None
        listener = Listener(client, url, every=every, signer=signer)
        if key_mode(key) != "test":
            output.note("This is a live key: these are real payments. Nothing but reads is sent to the service.")
        output.note(f"Forwarding to {plain(forward_to)}, {'signed' if secret else 'not signed'}. Ctrl-C ends it.")
        output.note("Most reads do not show the receipt: momo_receipt may be null, on success too.")
        for event in listener.run():
            if isinstance(event, MomoPayError):
                output.note(f"The list could not be read, and is read again: {plain(event)}")
            else:
                _show(output, event)


def _show(output: Output, delivery: ForwardedEnd) -> None:
    result = delivery.http_status or f"no response ({output.text(delivery.problem)})"
    again = ""
    if not delivery.is_acknowledged:
        again = "; the service would give up" if delivery.retry_in is None else f"; again in {delivery.retry_in:.0f} s"
    time = f"{local(delivery.at):%H:%M:%S}"
    reference = plain(output.text(delivery.reference)) or "-"
    output.result(
        asdict(delivery), f"{time}  {delivery.transaction_id}  {reference}  {delivery.status}  {plain(result)}{again}"
    )


def sandbox(context: typer.Context) -> None:
    """Run the payments service on this machine, with a phone page, until Ctrl-C.

    Any pk_test_ key is an account of its own. Takes the options of ``python -m momopay.sandbox``.
    """
    from momopay.sandbox.__main__ import main  # from an extra that the other commands do not need

    raise typer.Exit(ExitCode.USAGE if main(context.args) else ExitCode.OK)
