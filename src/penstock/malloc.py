"""The C allocator of a process that computes on arrays all day.

NumPy takes every intermediate array from ``malloc``. By default glibc gives the memory of such sizes back to the system
after almost every step, and the next step pays for each page of it anew: several times what the arithmetic costs.
"""

from __future__ import annotations

import ctypes

from penstock.logs import get_logger

log = get_logger(__name__)

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of malloc.h
KEPT_BYTES = 32 << 20
"""So much free memory at its end each arena (one per thread that computes) keeps."""
MAPPED_BYTES = 8 << 20
"""Larger arrays come from the system and go back to it."""


def keep_freed_memory() -> bool:
    """Let this process keep what it frees, within ``KEPT_BYTES``. False where the C library is not glibc: nothing is
    changed then."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        log.debug("this C library has no mallopt")
        return False
    return bool(mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)) and bool(mallopt(_M_MMAP_THRESHOLD, MAPPED_BYTES))
