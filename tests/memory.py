"""A folder that lies in memory: half of the journal's tests would be waiting for a disk."""

import os
import shutil
from pathlib import Path

_ROOM = 3 * 2**30
"""Bytes; a run of all tests takes about half of it, most of it for databases of PostgreSQL."""


def in_memory() -> Path | None:
    """Return a folder in memory, where there is one with room.

    What is tested is the order of the writes: processes die here, never the machine.
    """
    memory = Path("/dev/shm")
    has_room = os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > _ROOM
    return memory if has_room else None
