"""Hashes and checksums."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pyarrow as pa

from penstock.catalyst.trees import JavaTree, arrow_type, kind
from penstock.functions import Expression
from penstock.functions.core.strict import ScalarFunction
from penstock.functions.hashes import hashes
from penstock.functions.plan_registry import Translation, catalyst, constant, refuse

AREA = "Hashes"

_DIGESTS: dict[str, tuple[Callable[..., object], str]] = {
    "Md5": (hashes.md5, "`md5`"),
    "Sha1": (hashes.sha1, "`sha1`, `sha`"),
    "Sha2": (hashes.sha2, "`sha2`"),
    "Crc32": (hashes.crc32, "`crc32`"),
}


def digest(tree: JavaTree, translation: Translation) -> Expression:
    function = _DIGESTS[kind(tree)][0]
    return ScalarFunction(function, translation.children(tree), arrow_type(tree), bool(tree.nullable()))


for _name, (_, _forms) in _DIGESTS.items():
    catalyst(_name, area=AREA, forms=_forms)(digest)


@catalyst("ExpressionImplUtils.hmac", area=AREA, forms="`hmac`", limits="the algorithm is a constant")
def hmac(tree: JavaTree, translation: Translation) -> Expression:
    *operands, algorithm = translation.children(tree)
    name = hashes.HMAC_NAMES.get(str(constant(algorithm)).upper())
    if name is None:
        refuse(tree, f"the algorithm must be one of {', '.join(hashes.HMAC_NAMES)}")
    return ScalarFunction(partial(hashes.hmac_of, name), operands, pa.binary(), bool(tree.nullable()))


@catalyst("Murmur3Hash", "XxHash64", area=AREA, forms="`hash`, `xxhash64`", limits="not of maps")
def chained_hash(tree: JavaTree, translation: Translation) -> Expression:
    operands = translation.children(tree)
    if any(has_map(operand.data_type) for operand in operands):
        refuse(tree, "hash array_sort(map_entries(...)) of it")
    return hashes.ChainedHash(operands, arrow_type(tree), int(tree.seed()))


def has_map(data_type: pa.DataType) -> bool:
    """Return True if a type contains a map."""
    inner = [data_type.field(i).type for i in range(data_type.num_fields)]
    return pa.types.is_map(data_type) or any(map(has_map, inner))
