"""Functions of the bitmaps that ``bitmap_construct_agg`` makes."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from penstock.catalyst.trees import JavaTree, elements
from penstock.functions import Expression
from penstock.functions.bitmaps import bitmaps
from penstock.functions.plan_registry import Translation, catalyst

AREA = "Bitmaps"

_KERNELS: dict[str, Callable[..., Expression]] = {
    "BitmapExpressionUtils.bitmapBucketNumber": bitmaps.BitmapBucket,
    "BitmapExpressionUtils.bitmapBitPosition": bitmaps.BitmapPosition,
    "BitmapExpressionUtils.bitmapCount": bitmaps.BitmapCount,
}


@catalyst(*_KERNELS, area=AREA, forms="`bitmap_bucket_number`, `bitmap_bit_position`, `bitmap_count`")
def bitmap_function(tree: JavaTree, translation: Translation) -> Expression:
    [argument] = map(translation, elements(tree.arguments()))
    kernel = _KERNELS[f"BitmapExpressionUtils.{tree.functionName()}"]
    return kernel((argument,), pa.int64(), bool(tree.nullable()))
