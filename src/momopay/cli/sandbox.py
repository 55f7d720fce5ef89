"""The sandbox, started from a terminal."""

from __future__ import annotations

from typing import Annotated

import typer


def sandbox(
    port: Annotated[int, typer.Option(metavar="PORT", min=0, max=65535, help="0 takes a free one.")] = 8787,
    speed: Annotated[float, typer.Option(metavar="FACTOR", min=0, help="Virtual seconds to a second.")] = 1.0,
    state: Annotated[str | None, typer.Option(metavar="FILE", help="Keep the state in this file of SQLite.")] = None,
) -> None:
    """Run the payments service on this machine, with a phone page, until Ctrl-C.

    Any pk_test_ key is an account of its own.
    """
    from momopay.sandbox.__main__ import main

    arguments = ["--port", str(port), "--speed", str(speed)]
    raise typer.Exit(main([*arguments, "--state", state] if state else arguments))
