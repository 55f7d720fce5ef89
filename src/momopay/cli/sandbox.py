"""The sandbox, started from a terminal or by a program."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Annotated

import typer

from momopay.cli.exit_codes import CommandError, ExitCode
from momopay.cli.options import Json
from momopay.cli.output import Output


def sandbox(
    port: Annotated[int, typer.Option(metavar="PORT", min=0, max=65535, help="0 takes a free one.")] = 8787,
    speed: Annotated[
        float, typer.Option(metavar="FACTOR", min=0, max=1_000_000, help="Virtual seconds to a second.")
    ] = 1.0,
    state: Annotated[str | None, typer.Option(metavar="FILE", help="Keep the state in this SQLite file.")] = None,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Listen on this address.")] = "127.0.0.1",
    allow_host: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Answer under this name too; repeatable.")
    ] = None,
    callback_host: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Send callbacks to this host too; repeatable.")
    ] = None,
    profile: Annotated[
        Path | None,
        typer.Option(metavar="FILE", exists=True, dir_okay=False, help="Behave as this file of `momopay probe` says."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run the payments service on this machine, with a phone page, until Ctrl-C.

    Any pk_test_ key is an account of its own. With --json, one line once it is up: base_url and page.

    Examples:
        momopay sandbox --speed 10
    """
    # An extra that the other commands do without.
    from momopay.sandbox import Sandbox
    from momopay.sandbox.__main__ import announce, stop_on_signals

    stop = stop_on_signals()
    try:
        service = Sandbox(
            port=port,
            speed=speed,
            state=state,
            profile=profile,
            host=host,
            allow_hosts=allow_host or (),
            callback_hosts=callback_host or (),
        )
        service.start()
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            remedy = "give another --port; 0 takes a free one"
            raise CommandError(f"--port: {error.strerror}", remedy=remedy, code=ExitCode.REFUSED) from error
        if error.errno == errno.EACCES:
            raise CommandError(f"--port: {error.strerror}", remedy="give one above 1023") from error
        raise CommandError(f"--host: {error.strerror}", remedy="give an IPv4 address of this machine") from error
    except ValueError as error:
        # The message begins with the value.
        names = tuple(repr(name.lower()) for name in allow_host or ())
        values = {"--state": (str(state),), "--profile": (str(profile),), "--allow-host": names}
        option = next((option for option, given in values.items() if str(error).startswith(given)), "--callback-host")
        remedy = "`momopay sandbox --help` shows how it is used"
        raise CommandError(f"{option}: {error}", remedy=remedy) from error
    try:
        if as_json:
            Output(as_json).result({"base_url": service.base_url, "page": f"{service.url}/"})
        else:
            announce(service, speed=speed, state=state)
        stop.wait()
    finally:
        service.close()
