"""Callbacks on a laptop: the ends of an account's payments, forwarded to an application under development."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

from typer import Option

import momopay
from momopay.cli.credentials import api_key
from momopay.cli.exit_codes import CommandError
from momopay.cli.options import ServiceOptions, finite
from momopay.cli.output import Output, plain
from momopay.cli.times import local, moment_of
from momopay.errors import MomoPayError, RequestValidationError

if TYPE_CHECKING:  # at run time it loads what sends
    from momopay.integrations._listener import Delivery, Listener

_SECRET = "MOMOPAY_CALLBACK_SECRET"  # noqa: S105  the name of a variable


def listen(
    options: ServiceOptions,
    forward_to: Annotated[str, Option("--forward-to", metavar="URL", help="The application's callback URL.")],
    every: Annotated[
        float, Option(metavar="SECONDS", min=1, callback=finite, help="Time between polls of the list.")
    ] = 10.0,
    since: Annotated[
        str | None, Option(metavar="TIME", help="Also what ended since then: 2026-11-30, or 2026-11-30T08:00.")
    ] = None,
    secret_env: Annotated[
        str, Option("--secret-env", metavar="NAME", help="The variable that holds the secret for signed URLs.")
    ] = _SECRET,
    allow_host: Annotated[
        list[str] | None, Option("--allow-host", metavar="NAME", help="Also forward to this host.")
    ] = None,
) -> None:
    """Forward the ends of payments to an application on this machine, until Ctrl-C.

    Polls the account's list, one request each time, and POSTs each end to the application as the service would. What
    is not answered with 2xx comes again after the service's delays. Only reads are sent to the service. A callback
    from here has no momo_receipt, since no read shows it. With a secret, the URL is signed as CallbackSigner signs it.
    With --json, a line for each delivery, and one with the counts.

    Examples:
        momopay listen --forward-to http://127.0.0.1:8000/callbacks
    """
    # What sends is loaded by this command alone.
    from momopay.integrations._listener import Listener

    output = options.output
    secret = os.environ.get(secret_env)
    if secret_env != _SECRET and not secret:
        raise CommandError("--secret-env names a variable that is not set", remedy="set it, or leave the option out")
    begin = None if since is None else moment_of(since, "--since")
    key = api_key()
    with options.client(key=key) as client:
        signer = momopay.CallbackSigner(secret) if secret else None
        try:
            listener = Listener(
                client, forward_to, every=every, since=begin, signer=signer, allowed_hosts=allow_host or ()
            )
        except RequestValidationError as error:
            remedy = "give one such as http://127.0.0.1:8000/callbacks; callbacks hold phones: --allow-host NAME allows"
            problem = f"--forward-to: {error.fields['forward_to']}"
            raise CommandError(problem, remedy=f"{remedy} a host, if the application there is yours") from error
        if not key.startswith("pk_test_"):
            output.note("This is a live key: these are real payments. Nothing but reads is sent to the service.")
        output.note(f"Forwarding to {plain(forward_to)}, {'signed' if secret else 'not signed'}. Ctrl-C ends it.")
        output.note("No read shows the receipt: momo_receipt is null, on success too.")
        _forward(output, listener)


def _forward(output: Output, listener: Listener) -> None:
    counts = Counter[str]()
    try:
        for told in listener.run():
            if isinstance(told, MomoPayError):
                output.note(f"The list could not be read, and is read again: {plain(told)}")
            else:
                counts["acknowledged"] += told.is_acknowledged
                counts["failed"] += not told.is_acknowledged
                _show(output, told)
    finally:
        acknowledged, failed = counts["acknowledged"], counts["failed"]
        output.result(
            {"acknowledged": acknowledged, "failed": failed},
            f"{acknowledged} ends acknowledged, {failed} deliveries without a 2xx response",
        )


def _show(output: Output, delivery: Delivery) -> None:
    result = delivery.http_status or f"no response ({output.text(delivery.problem)})"
    again = ""
    if not delivery.is_acknowledged:
        again = "; the service would give up" if delivery.retry_in is None else f"; again in {delivery.retry_in:.0f} s"
    time = f"{local(delivery.at):%H:%M:%S}"
    reference = plain(output.text(delivery.reference)) or "-"
    output.result(
        asdict(delivery), f"{time}  {delivery.transaction_id}  {reference}  {delivery.status}  {plain(result)}{again}"
    )
