"""Spark's hash functions over columns of any type. The hash of each value is the seed for the next value.

Null does not change the seed. Structs and arrays hash their parts in order.
"""

from __future__ import annotations

import hashlib
import hmac
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import EvaluationError
from penstock.functions.core.base import Expression, Mask
from penstock.functions.core.vectors import from_vector
from penstock.functions.hashes.murmur3 import MURMUR3
from penstock.state.hashing import chain_hash, chain_hash_with

Hashes = npt.NDArray[Any]

HMAC_NAMES = {
    "SHA-256": "sha256", "SHA256": "sha256", "SHA-224": "sha224", "SHA224": "sha224", "SHA-384": "sha384",
    "SHA384": "sha384", "SHA-512": "sha512", "SHA512": "sha512", "SHA-1": "sha1", "SHA1": "sha1", "MD5": "md5",
}  # fmt: skip
"""Spark's names of the algorithms (matched without case) and Python's names."""


class ChainedHash(Expression):
    """``xxhash64`` (a long) and ``hash`` (Murmur3, an int)."""

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
            array = child.evaluate(batch, mask)
            hashes = chain_hash(array, hashes) if signed is np.int64 else chain_hash_with(array, hashes, MURMUR3)
        return from_vector(hashes.view(signed), self.data_type)


def crc32(data: bytes) -> int:
    return zlib.crc32(data)


def sha1(data: bytes) -> str:
    return hashlib.sha1(data, usedforsecurity=False).hexdigest()


def hmac_of(algorithm: str, key: bytes, message: bytes) -> bytes:
    """Return the HMAC of a message.

    Raises:
        EvaluationError: the key is empty, which Java rejects.
    """
    if not key:
        raise EvaluationError(
            "[INVALID_PARAMETER_VALUE.HMAC_CRYPTO_ERROR] The value of parameter(s) `key` in `hmac` is invalid: detail "
            "message: Empty key"
        )
    return hmac.digest(key, message, algorithm)


def md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def sha2(data: bytes, bits: int) -> str | None:
    """Return the digest of this length; None for lengths other than 224, 256 (or 0), 384 and 512."""
    make = _SHA2.get(bits)
    return None if make is None else make(data).hexdigest()


_SHA2: dict[int, Callable[[bytes], hashlib._Hash]] = {
    0: hashlib.sha256,
    224: hashlib.sha224,
    256: hashlib.sha256,
    384: hashlib.sha384,
    512: hashlib.sha512,
}
