"""Stable sort of rows by integers, many times as fast as numpy's.

A key and its row number form one word, and words are sorted with vector instructions.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.state.vector import Rows

_WORD_BITS = 63


def order_by(*keys: npt.NDArray[np.integer]) -> Rows:
    """Return the row numbers sorted by the first key, then by the second one, and so on. The sort is stable.

    Args:
        keys: arrays of signed integers with the same length, at least one.
    """
    order = _order(keys[-1])
    for key in keys[-2::-1]:
        order = order[_order(key[order])]
    return order


def _order(key: npt.NDArray[np.integer]) -> Rows:
    if len(key) < 2:
        return np.arange(len(key))
    first, bits = int(key.min()), len(key).bit_length()
    if (int(key.max()) - first).bit_length() + bits > _WORD_BITS:
        return np.argsort(key, kind="stable")
    words = key.astype(np.int64)
    words -= first
    words <<= bits
    words |= np.arange(len(key))
    words.sort()
    words &= (1 << bits) - 1
    return words
