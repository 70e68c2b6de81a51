"""Spark's errors for arrays and maps. Spark raises most of them in legacy mode too."""

from __future__ import annotations

from penstock.errors import EvaluationError


def null_map_key() -> EvaluationError:
    return EvaluationError("[NULL_MAP_KEY] Cannot use null as map key.")


def duplicated_map_key(key: object) -> EvaluationError:
    return EvaluationError(
        f"[DUPLICATED_MAP_KEY] Duplicate map key {key} was found, please check the input data. If you want to remove "
        'the duplicated keys, you can set "spark.sql.mapKeyDedupPolicy" to "LAST_WIN" so that the key inserted at '
        "last takes precedence."
    )


def unequal_map_parts() -> EvaluationError:
    return EvaluationError("The key array and value array of MapData must have the same length.")


def element_outside(index: object, size: object) -> EvaluationError:
    return EvaluationError(
        f"[INVALID_ARRAY_INDEX_IN_ELEMENT_AT] The index {index} is out of bounds. The array has {size} elements. "
        "Use `try_element_at` to tolerate accessing element at invalid index and return NULL instead."
    )


def index_of_zero() -> EvaluationError:
    return EvaluationError(
        "[INVALID_INDEX_OF_ZERO] The index 0 is invalid. An index shall be either < 0 or > 0 (the first element has "
        "index 1)."
    )


def slice_start() -> EvaluationError:
    return EvaluationError(
        "[INVALID_PARAMETER_VALUE.START] The value of parameter(s) `start` in `slice` is invalid: "
        "Expects a positive or a negative value for `start`, but got 0."
    )


def slice_length(length: object) -> EvaluationError:
    return EvaluationError(
        "[INVALID_PARAMETER_VALUE.LENGTH] The value of parameter(s) `length` in `slice` is invalid: "
        f"Expects `length` greater than or equal to 0, but got {length}."
    )


def too_many_elements(count: object, function: str) -> EvaluationError:
    return EvaluationError(
        f"[COLLECTION_SIZE_LIMIT_EXCEEDED.FUNCTION] Can't create array with {count} elements which exceeding the array "
        f"size limit 2147483632, the function `{function}` would need that many."
    )


def sequence_boundaries(start: object, stop: object, step: object) -> EvaluationError:
    return EvaluationError(f"Illegal sequence boundaries: {start} to {stop} by {step}")


def sequence_of_parts_of_days() -> EvaluationError:
    return EvaluationError(
        "sequence step must be an interval day to second of day granularity if start and end values are dates"
    )


def no_comparison() -> EvaluationError:
    return EvaluationError(
        "[COMPARATOR_RETURNS_NULL] The comparator has returned a NULL for a comparison between two elements. "
        'It should return a positive integer for "greater than", 0 for "equal" and a negative integer for '
        '"less than".'
    )
