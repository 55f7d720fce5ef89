"""Pytest rewrites the assertions of each test file: ten seconds of work, which the workers of a run share here."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from _pytest.assertion import rewrite

_LEAST = 20
"""So many files or fewer each worker may rewrite for itself."""


def share_the_rewriting(config: pytest.Config, is_left_out: Callable[[Path], bool]) -> None:
    """Rewrite this worker's share of what is to be collected. Without this, each worker of a first run rewrites all."""
    given: dict[str, str | int] = getattr(config, "workerinput", {})
    if not given or sys.dont_write_bytecode:
        return
    number, workers = int(str(given["workerid"]).removeprefix("gw")), int(given["workercount"])
    files = _to_be_collected(config, is_left_out)
    if len(files) <= _LEAST:
        return
    state = config.stash[rewrite.assertstate_key]
    for path in files[number::workers]:
        kept = rewrite.get_cache_dir(path) / f"{path.stem}{rewrite.PYC_TAIL}"
        if rewrite._read_pyc(path, kept) is None and rewrite.try_makedirs(kept.parent):
            stamp, code = rewrite._rewrite_test(path, config)
            rewrite._write_pyc(state, code, stamp, kept)


def _to_be_collected(config: pytest.Config, is_left_out: Callable[[Path], bool]) -> list[Path]:
    """Return the test files below what the command line names, in one order for all workers."""
    places = [config.invocation_params.dir / argument.partition("::")[0] for argument in config.args]
    files = {path.resolve() for place in places for path in ([place] if place.is_file() else place.rglob("test_*.py"))}
    return sorted(path for path in files if not any(map(is_left_out, (path, *path.parents))))
