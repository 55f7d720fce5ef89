"""Loaded by the Python for Windows that setup makes: what Wine lacks. A real Windows needs none of it."""

import msvcrt
from typing import Any

_locking: Any = vars(msvcrt)["locking"]


def _with_errno(descriptor: int, mode: int, count: int) -> None:
    try:
        _locking(descriptor, mode, count)
    except OSError as error:
        if error.errno == 0:  # Wine sets none where Windows says EACCES
            raise PermissionError(13, "Permission denied") from None
        raise


setattr(msvcrt, "locking", _with_errno)  # noqa: B010  its type is for Windows alone
