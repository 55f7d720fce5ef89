"""The sandbox, started from a terminal or by a machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from momopay.cli.exits import CommandError, ExitCode
from momopay.cli.options import Json
from momopay.cli.output import Output

if TYPE_CHECKING:
    from momopay.sandbox import Sandbox


def sandbox(
    port: Annotated[int, typer.Option(metavar="PORT", min=0, max=65535, help="0 takes a free one.")] = 8787,
    speed: Annotated[float, typer.Option(metavar="FACTOR", min=0, help="Virtual seconds to a second.")] = 1.0,
    state: Annotated[str | None, typer.Option(metavar="FILE", help="Keep the state in this file of SQLite.")] = None,
    as_json: Json = False,
) -> None:
    """Run the payments service on this machine, with a phone page, until Ctrl-C.

    Any pk_test_ key is an account of its own. With --json, one line once it is up: base_url and page.
    """
    if as_json:
        from momopay.sandbox import Sandbox

        _run(Sandbox(port=port, speed=speed, state=state))
        return
    from momopay.sandbox.__main__ import main

    arguments = ["--port", str(port), "--speed", str(speed)]
    raise typer.Exit(main([*arguments, "--state", state] if state else arguments))


def _run(service: Sandbox) -> None:
    from momopay.sandbox.__main__ import until_told

    stop = until_told()
    try:
        service.start()
    except (OSError, OverflowError, ValueError) as error:
        raise CommandError(
            str(error), remedy="give another --port, --speed or --state", code=ExitCode.REFUSED
        ) from None
    try:
        Output(as_json=True).document({"base_url": service.base_url, "page": f"{service.url}/"})
        stop.wait()
    finally:
        service.close()
