"""Spark's hash functions, over columns of any type: each value's hash is the seed of the next one's.

Nulls leave the seed as it is; structs and arrays hash their parts in order.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.operators.expressions.base import Expression, Mask
from penstock.operators.expressions.murmur3 import hash_leaf
from penstock.operators.expressions.ragged import valid_lists
from penstock.operators.expressions.vectors import from_vector
from penstock.state.hashing import chain_hash

Hashes = npt.NDArray[Any]


class ChainedHash(Expression):
    """``xxhash64`` (a long) and ``hash``, which is Murmur3 (an int)."""

    nullable = False

    def __init__(self, children: Sequence[Expression], data_type: pa.DataType, seed: int) -> None:
        self.children = tuple(children)
        self.data_type = data_type
        self.seed = seed

    def evaluate(self, batch: pa.RecordBatch, mask: Mask | None = None) -> pa.Array:
        signed = np.int64 if pa.types.is_int64(self.data_type) else np.int32
        seeds: Hashes = np.full(batch.num_rows, self.seed, signed)
        hashes = seeds.view(np.uint64 if signed is np.int64 else np.uint32)
        for child in self.children:
            hashes = chained(child.evaluate(batch, mask), hashes)
        return from_vector(hashes.view(signed), self.data_type)


def chained(array: pa.Array, seeds: Hashes) -> Hashes:
    """The hash whose words the seeds are, with an array's values on top."""
    if pa.types.is_null(array.type) or len(array) == 0:
        return seeds
    if pa.types.is_struct(array.type):
        for field in array.flatten():
            seeds = chained(field, seeds)
        return seeds
    if not pa.types.is_list(array.type):
        return chain_hash(array, seeds) if seeds.dtype == np.uint64 else hash_leaf(array, seeds)
    lists = valid_lists(array)
    hashes = seeds.copy()
    for place in range(int(lists.sizes.max(initial=0))):
        rows = np.flatnonzero(lists.sizes > place)
        hashes[rows] = chained(lists.values.take(pa.array(lists.starts[rows] + place)), hashes[rows])
    return hashes


def crc32(data: bytes) -> int:
    return zlib.crc32(data)


def sha1(data: bytes) -> str:
    return hashlib.sha1(data, usedforsecurity=False).hexdigest()
