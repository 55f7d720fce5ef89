"""The command line, extra ``cli``. Knows the client, the journal and the sandbox; nothing knows it."""

from __future__ import annotations

import sys

_EXTRA = frozenset({"rich", "typer"})
_CONFIGURATION = 3


def main() -> int:
    """Run the command line; the installed ``momopay`` and ``python -m momopay`` are this.

    Returns:
        The exit status; ``momopay --help`` lists them.
    """
    try:
        from momopay.cli.app import app
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in _EXTRA:
            raise
        sys.stderr.write("momopay: the command line is an extra: pip install 'momopay[cli]'\n")
        return _CONFIGURATION
    app(prog_name="momopay")
    return 0
