"""A network namespace of this process's own, whose loopback link can be set down: then it loses every packet."""

import ctypes
import os
import socket
import struct
import sys

_CLONE_NEWUSER, _CLONE_NEWNET = 0x1000_0000, 0x4000_0000
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 0x1


def enter_namespace(*, keeps_rights: bool) -> str | None:
    """Move this process into a network namespace of its own; return why that cannot be, or None.

    To be called before any thread or process is started: what was started before stays in the old one. `keeps_rights`:
    as root, enter no user namespace, in which PostgreSQL cannot be started as somebody else.
    """
    if sys.platform != "linux":
        return "network namespaces are Linux's"
    libc = ctypes.CDLL(None, use_errno=True)
    may_change_user = os.geteuid() != 0 or not keeps_rights
    if libc.unshare(_CLONE_NEWNET) and not (may_change_user and libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET) == 0):
        return f"no network namespace: {os.strerror(ctypes.get_errno())}"
    set_link(up=True)
    return None


def set_link(*, up: bool) -> None:
    import fcntl  # here, since only Linux calls this

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        asked = fcntl.ioctl(control, _SIOCGIFFLAGS, struct.pack("16sH14x", b"lo", 0))
        (flags,) = struct.unpack_from("H", asked, 16)
        flags = flags | _IFF_UP if up else flags & ~_IFF_UP
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags))
