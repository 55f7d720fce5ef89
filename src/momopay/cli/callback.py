"""Callbacks (webhooks) as the service would send them, to an application under development."""

from __future__ import annotations

import json
import os
import time
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any
from uuid import uuid4

import typer
from typer import Argument, Option

import momopay
from momopay.cli.command import Group, command
from momopay.cli.exit_codes import CommandError, ExitCode
from momopay.cli.options import ServiceOptions, amount, whole_phone
from momopay.cli.output import Output, table
from momopay.errors import RequestValidationError
from momopay.urls import check_callback_url, is_loopback

# No payment is for more, and from here on a JSON number is not exact to the cent.
_MOST = 10_000_000_000_000
app: typer.Typer = typer.Typer(
    cls=Group, help="Send callbacks to an application under development.", no_args_is_help=True
)

# Seconds that the service gives an application to answer.
_ANSWER_LIMIT = 30.0
# Characters of an answer that are read and shown.
_ANSWER_SHOWN = 500

_AGAIN = "Not acknowledged: the service would deliver it again, five times at most."
# What the statuses mean that momopay's callback views answer, and frameworks before them.
_WHERE_TO_LOOK = {
    400: "the application does not take this body for a callback; its log says why",
    401: "the URL asks for a login; the service sends none",
    403: "the URL's token: run this with the application's MOMOPAY_CALLBACK_SECRET; Django views must be csrf_exempt",
    404: "the path in --to, and the routes of the application",
    405: "the route must take POST",
    500: "the application's log: its handler raised an error",
    503: (
        "the application's log: its handler raised a MomoPayError. It cannot confirm a made-up payment (give"
        " --transaction ID of a real one), it did not reach the service, another delivery of this callback is being"
        " handled, or the callback differs from the journal's entry"
    ),
}


class End(StrEnum):
    """How the payment ended."""

    success = "success"
    failed = "failed"
    cancelled = "cancelled"
    expired = "expired"


class Kind(StrEnum):
    """What moved the money."""

    STK = "STK"
    B2C = "B2C"


_RESULTS = {
    End.success: ("0", "The service request is processed successfully."),
    End.failed: ("1", "The balance is insufficient for the transaction."),
    End.cancelled: ("1032", "Request cancelled by user."),
    End.expired: ("1037", "DS timeout, user cannot be reached."),
}


# Without a callback, typer turns a group of one command into that command.
@app.callback()
def group() -> None:
    """Send callbacks to an application under development."""


@command(app)
def send(
    options: ServiceOptions,
    end: Annotated[End, Argument(metavar="END", help="success, failed, cancelled or expired.")],
    to: Annotated[str, Option("--to", metavar="URL", help="The application's callback URL.")],
    transaction: Annotated[
        str | None, Option("--transaction", metavar="ID", help="Report this one, as read from the service.")
    ] = None,
    reference: Annotated[str, Option(metavar="TEXT", help="Of a made-up payment.")] = "INV-42",
    amount_: Annotated[
        Decimal, Option("--amount", metavar="KES", parser=amount, help="Of a made-up payment.")
    ] = Decimal(100),
    phone: Annotated[str, Option(metavar="PHONE", help="Of a made-up payment.")] = "254712345678",
    kind: Annotated[Kind, Option("--type", metavar="STK|B2C", help="Of a made-up payment.")] = Kind.STK,
    times: Annotated[int, Option(metavar="N", min=1, max=100, help="Send it again: callbacks may come twice.")] = 1,
    anywhere: Annotated[bool, Option("--anywhere", help="Also to a host that is not this machine.")] = False,
) -> ExitCode:
    """POST a callback as the service would, and show the answer.

    It is made up, unless --transaction reads a payment from the service: then an application that confirms callbacks
    accepts it too, if the payment really ended so. With MOMOPAY_CALLBACK_SECRET set, the URL is signed as
    CallbackSigner signs it. Exits with 0 if every answer was 2xx, 1 if not, 6 if there was none. With --json, one
    answer a line.

    Examples:
        momopay callback send success --to http://127.0.0.1:8000/callbacks
    """
    _check_target(to, anywhere=anywhere)
    if transaction is None:
        if not 1 <= amount_ < _MOST:
            raise RequestValidationError({"amount": f"must be at least KES 1, and below KES {_MOST:,}"})
        reported = _made_up(reference=reference, amount=amount_, phone=whole_phone(phone), kind=kind)
    else:
        with options.client() as client:
            reported = client.transactions.get(transaction)
    # Serialised once: a second delivery is the same bytes, as the service's retries are.
    body = _body(end, reported)
    secret = os.environ.get("MOMOPAY_CALLBACK_SECRET")
    url = momopay.CallbackSigner(secret).url(to, reference=reported.account_reference or "") if secret else to
    # The later exit codes are the worse ones: no answer at all, then a refusal.
    return max(_deliver(options.output, url, body) for _ in range(times))


def _check_target(url: str, *, anywhere: bool) -> None:
    # Only the form of the URL: which hosts are allowed differs here, since the sender is this machine.
    try:
        check_callback_url(url, on_loopback=True)
    except ValueError as error:
        raise CommandError(f"--to {error}", remedy="give a URL such as http://127.0.0.1:8000/callbacks") from error
    if not anywhere and not is_loopback(url):
        raise CommandError(
            "--to is not on this machine",
            remedy="a made-up callback may mislead its receiver: give --anywhere if that application is yours",
        )


def _made_up(*, reference: str, amount: Decimal, phone: str, kind: Kind) -> momopay.Transaction:
    now = datetime.now(UTC)
    ids = ("transaction_id", "tenant_id", "provider_request_id", "provider_checkout_id")
    of_payment = {"type": kind.value, "amount": amount, "phone": phone, "account_reference": reference}
    times = {"created_at": now, "updated_at": now}
    made_up = {"status": "PENDING", "transaction_fee": Decimal(1), **{name: str(uuid4()) for name in ids}}
    return momopay.Transaction.model_validate(of_payment | times | made_up)


def _body(end: End, transaction: momopay.Transaction) -> str:
    """Return the callback that reports this end of a payment, with a receipt that is made up: no read shows one."""
    from momopay.callbacks import callback_body

    code, description = _RESULTS[end]
    ended = {
        "status": momopay.TransactionStatus(end.upper()),
        "result_code": momopay.ResultCode(code),
        "result_desc": description,
        "provider": "MOMO",
    }
    body: dict[str, Any] = json.loads(callback_body(transaction.model_copy(update=ended)))
    body["transaction"]["momo_receipt"] = uuid4().hex[:10].upper() if end is End.success else None
    return json.dumps(body)


def _deliver(output: Output, url: str, body: str) -> ExitCode:
    """Send the callback once, and show what came back."""
    begun = time.monotonic()
    status, answer, problem = _post(url, body)
    elapsed = time.monotonic() - begun
    is_in_time = status is not None and elapsed <= _ANSWER_LIMIT
    acknowledged = is_in_time and status is not None and status // 100 == 2  # noqa: PLR2004  any 2xx
    made = {
        "status": status,
        "acknowledged": acknowledged,
        "elapsed_seconds": round(elapsed, 3),
        "answer": answer,
        "problem": problem,
    }
    row = (status or "none", f"{elapsed:.3f} s of {_ANSWER_LIMIT:.0f} s", output.text(answer or problem))
    hint = [] if acknowledged else [_AGAIN, f"Where to look: {_where_to_look(status)}."]
    output.result(made, table(("Status", "Took", "Answer"), [row]), *hint)
    return ExitCode.OK if acknowledged else ExitCode.REFUSED if is_in_time else ExitCode.TRY_LATER


def _where_to_look(status: int | None) -> str:
    if status is None:
        return "is the application running, and does it listen at the host and port of --to"
    if status // 100 == 2:  # noqa: PLR2004  any 2xx
        return "the application answered too late; answer first, and do the work in a queue"
    return _WHERE_TO_LOOK.get(status, "the application's log, at the time of this request")


def _post(url: str, body: str) -> tuple[int | None, str, str | None]:
    """Return the status of the answer, what it begins with, and why there was none."""
    import httpx

    headers = {"content-type": "application/json", "user-agent": "momopay"}
    begun = time.monotonic()
    status, answer = None, ""
    try:
        # No proxy from the environment: it would see, or fail, what is meant for this machine.
        with (
            httpx.Client(timeout=_ANSWER_LIMIT, trust_env=False, follow_redirects=False) as client,
            client.stream("POST", url, content=body, headers=headers) as response,
        ):
            status = response.status_code
            # httpx bounds each read. An application that sends byte by byte is cut off by the whole limit here.
            for chunk in response.iter_text(_ANSWER_SHOWN):
                answer = (answer + chunk)[:_ANSWER_SHOWN]
                if len(answer) == _ANSWER_SHOWN or time.monotonic() - begun > _ANSWER_LIMIT:
                    break
    except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
        return status, answer, f"{type(error).__name__}: {error}"
    return status, answer, None
