"""Checks of arguments of the vectorized form: selections of keys, and timestamps by key."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.operators.stateful.arrow_processor import Where
from penstock.state.vector import Rows


def selected_keys(where: Where, count: int) -> Rows:
    """Return the numbers of the keys that ``where`` selects, in its order. ``count``: number of all keys.

    Raises:
        TypeError: ``where`` is neither a mask nor integers.
        ValueError: the mask does not have length ``count``, a key number is repeated, or it is out of range.
    """
    if where is None:
        return np.arange(count)
    array = np.asarray(where)
    if array.dtype == np.bool_:
        if array.shape != (count,):
            raise ValueError(f"where is a mask of shape {array.shape}, and there are {count} keys")
        return np.flatnonzero(array)
    if array.ndim != 1 or (len(array) and array.dtype.kind not in "iu"):
        raise TypeError(f"where is None, a boolean mask over the keys, or their numbers, not {array.dtype} values")
    numbers = array.astype(np.int64)
    if len(numbers) and (numbers.min() < 0 or numbers.max() >= count):
        raise ValueError(f"where names a key below 0 or above {count - 1}")
    if len(numbers) and np.bincount(numbers).max() > 1:
        raise ValueError("where names a key twice")
    return numbers


def timer_moments(moments: npt.ArrayLike, count: int) -> npt.NDArray[np.int64]:
    """Return the timestamps of ``count`` timers. A single timestamp is repeated.

    Raises:
        TypeError: the timestamps are not integers.
        ValueError: there is neither one timestamp nor one per timer.
    """
    array: npt.NDArray[Any] = np.asarray(moments)
    if array.size and array.dtype.kind not in "iu":
        raise TypeError(f"moments are integers, milliseconds since 1970, without nulls, not {array.dtype} values")
    if array.shape not in ((), (count,)):
        raise ValueError(
            f"moments of shape {array.shape} are given for {count} keys; give one, or one per key that is named"
        )
    return np.broadcast_to(array.astype(np.int64), (count,))
