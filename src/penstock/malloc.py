"""Settings of the C allocator for processes that compute on arrays.

NumPy allocates every intermediate array with ``malloc``. By default glibc returns the memory of large arrays to the
system after almost every step. The next step then pays a page fault for each page, several times the cost of the
arithmetic.
"""

from __future__ import annotations

import ctypes

from penstock.logs import get_logger

log = get_logger(__name__)

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # constants of malloc.h
KEPT_BYTES = 32 << 20
"""Free memory that each arena keeps at its end. There is about one arena per computing thread."""
MAPPED_BYTES = 8 << 20
"""Larger arrays are mapped from the system and returned to it when they are freed."""


def keep_freed_memory() -> bool:
    """Let this process keep freed memory, up to ``KEPT_BYTES`` per arena.

    Returns:
        False if the C library has no ``mallopt`` (it is not glibc) or refuses a setting.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        log.debug("this C library has no mallopt")
        return False
    return bool(mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)) and bool(mallopt(_M_MMAP_THRESHOLD, MAPPED_BYTES))
