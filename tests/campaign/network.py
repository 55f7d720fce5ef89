"""A network that loses every packet for a while: the loopback link of a network namespace of our own, set down."""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import sys

_CLONE_NEWUSER, _CLONE_NEWNET = 0x1000_0000, 0x4000_0000
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 0x1


def enter_namespace() -> str | None:
    """Move this process into a network namespace of its own; return why that cannot be, or None.

    To be called before any thread or process is started: what was started before stays in the old one.
    """
    if sys.platform != "linux":
        return "network namespaces are Linux's"
    # Root needs no user namespace, and keeps the right to start PostgreSQL as somebody else.
    flags = _CLONE_NEWNET if os.geteuid() == 0 else _CLONE_NEWUSER | _CLONE_NEWNET
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(flags) != 0:
        return f"no network namespace: {os.strerror(ctypes.get_errno())}"
    set_link(up=True)
    return None


def set_link(*, up: bool) -> None:
    """Set the loopback link of this process's namespace up or down."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        asked = fcntl.ioctl(control, _SIOCGIFFLAGS, struct.pack("16sH14x", b"lo", 0))
        (flags,) = struct.unpack_from("H", asked, 16)
        flags = flags | _IFF_UP if up else flags & ~_IFF_UP
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags))
