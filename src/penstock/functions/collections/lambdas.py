"""Lambdas over the elements of arrays and maps.

The body is an expression over a batch of its own with one row per element. Its columns are the outer columns that the
body reads, repeated per element, and then the lambda's arguments. Therefore the body is evaluated once for all elements
of all rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import EvaluationError
from penstock.functions.collections import failures as errors
from penstock.functions.collections.maps import MapRules
from penstock.functions.core.base import Expression, Mask
from penstock.functions.core.ragged import Ragged, aligned, as_type, is_null, list_array, ragged, struct_array
from penstock.functions.core.ranks import ranks
from penstock.functions.core.vectors import Vector, from_vector, intersect_masks, select, to_vector, valid_rows


class Body(Expression):
    """Body of a lambda. ``evaluate`` takes the batch that ``over`` returns.

    Args:
        expression: the body, over the columns ``outer`` of the outer batch and then the arguments.
        outer: positions of the columns in the outer batch.
        arguments: the types of the lambda's arguments.
    """

    def __init__(self, expression: Expression, outer: Sequence[int], arguments: Sequence[pa.DataType]) -> None:
        self.expression = expression
        self.outer = tuple(outer)
        self.arguments = tuple(arguments)
        self.data_type = expression.data_type
        self.nullable = expression.nullable

    def over(self, batch: pa.RecordBatch, row_of: Vector, arguments: Sequence[pa.Array]) -> pa.RecordBatch:
        """Return one row per element: the columns of its outer row, then its arguments.

        A lambda that declares fewer arguments ignores the last ones.
        """
        outer_rows = pa.array(row_of)
        columns = [batch.column(ordinal).take(outer_rows) for ordinal in self.outer]
        columns += [as_type(array, kind) for array, kind in zip(arguments, self.arguments, strict=False)]
        if not columns:
            columns = [pa.nulls(len(row_of))]
        return pa.RecordBatch.from_arrays(columns, names=[f"{i}" for i in range(len(columns))])

    def evaluate(self, batch: pa.RecordBatch, mask: Mask | None = None) -> pa.Array:
        return as_type(self.expression.evaluate(batch, mask), self.data_type)

    def __call__(self, batch: pa.RecordBatch, row_of: Vector, *arguments: pa.Array) -> pa.Array:
        return self.evaluate(self.over(batch, row_of, arguments))


def _integers(values: Vector) -> pa.Array:
    return from_vector(values, pa.int32())


class OverElements(Expression):
    """Lambda over one array or map."""

    def __init__(self, argument: Expression, body: Body, data_type: pa.DataType, nullable: bool = True) -> None:
        self.argument = argument
        self.body = body
        self.data_type = data_type
        self.nullable = nullable

    def lists(self, batch: pa.RecordBatch, mask: Mask | None) -> tuple[Ragged, Mask | None]:
        """Return the argument's lists and a mask of the rows that have one."""
        array = self.argument.evaluate(batch, mask)
        rows = intersect_masks(mask, valid_rows(array))
        return ragged(array, rows), rows


class Transform(OverElements):
    """``transform(array, x -> ...)`` and ``transform(array, (x, index) -> ...)``."""

    def evaluate(self, batch: pa.RecordBatch, mask: Mask | None = None) -> pa.Array:
        lists, rows = self.lists(batch, mask)
        made = self.body(batch, lists.row_of, lists.values, _integers(lists.position))
        return list_array(lists.sizes, made, self.data_type, rows)


class Filter(OverElements):
    """``filter(array, x -> ...)``, also with the index. It keeps the elements for which the body is true."""

    def evaluate(self, batch: pa.RecordBatch, mask: Mask | None = None) -> pa.Array:
        lists, rows = self.lists(batch, mask)
        found = self.body(batch, lists.row_of, lists.values, _integers(lists.position))
        return lists.keep(to_vector(found)).array(self.data_type, rows)


class FilterMap(OverElements):
    """``map_filter(map, (key, value) -> ...)``."""

    def evaluate(self, batch: pa.RecordBatch, mask: Mask | None = None) -> pa.Array:
        lists, rows = self.lists(batch, mask)
        found = self.body(batch, lists.row_of, lists.values.field(0), lists.values.field(1))
        return lists.keep(to_vector(found)).array(self.data_type, rows)


class ExistsOrForall(OverElements):
    """``exists`` (``deciding_value`` is True) and ``forall`` (``deciding_value`` is False).

    The first element for which the body equals ``deciding_value`` decides the result. An error of a later element is
    not raised. If no element decides and the body is null for an element, the result is null.
    """

    def __init__(self, deciding_value: bool, argument: Expression, body: Body, nullable: bool = True) -> None:
        super().__init__(argument, body, pa.bool_(), nullable)
        self.deciding_value = deciding_value

    def evaluate(self, batch: pa.RecordBatch, mask: Mask | None = None) -> pa.Array:
        lists, rows = self.lists(batch, mask)
        inner = self.body.over(batch, lists.row_of, (lists.values,))
        try:
            decided, unknown = self._decided(lists, self.body.evaluate(inner))
        except EvaluationError:
            decided, unknown = self._in_order(lists, inner)
        result = decided if self.deciding_value else ~decided
        return from_vector(result, pa.bool_(), select(rows, decided | ~unknown))

    def _decided(self, lists: Ragged, found: pa.Array) -> tuple[Mask, Mask]:
        decides = to_vector(pc.fill_null(pc.equal(found, self.deciding_value), False))
        return lists.any(decides), lists.any(is_null(found))

    def _in_order(self, lists: Ragged, inner: pa.RecordBatch) -> tuple[Mask, Mask]:
        """Evaluate one position after the other: an element raises only if no earlier element has decided."""
        decided, unknown = np.zeros((2, len(lists.sizes)), np.bool_)
        for position in range(int(lists.sizes.max(initial=0))):
            rows = np.flatnonzero((lists.sizes > position) & ~decided)
            found = self.body.evaluate(inner.take(pa.array(lists.starts[rows] + position)))
            decided[rows] = to_vector(pc.fill_null(pc.equal(found, self.deciding_value), False))
            unknown[rows] |= is_null(found)
        return decided, unknown


class Aggregate(Expression):
    """``aggregate(array, zero, (state, x) -> ..., state -> ...)``.

    One step merges the first elements of all rows, the next step the second elements, and so on.
    """

    def __init__(
        self, argument: Expression, zero: Expression, merge: Body, finish: Body, data_type: pa.DataType
    ) -> None:
        self.argument = argument
        self.zero = zero
        self.merge = merge
        self.finish = finish
        self.data_type = data_type
        self.nullable = argument.nullable or finish.nullable

    def evaluate(self, batch: pa.RecordBatch, mask: Mask | None = None) -> pa.Array:
        array = self.argument.evaluate(batch, mask)
        rows = intersect_masks(mask, valid_rows(array))
        lists = ragged(array, rows)
        selected = np.arange(batch.num_rows) if rows is None else np.flatnonzero(rows)
        zero = as_type(self.zero.evaluate(batch, rows), self.merge.arguments[0]).take(pa.array(selected))
        merged = self._merged(batch, lists, selected, zero)
        made = as_type(self.finish(batch, selected, merged), self.data_type)
        indices = np.zeros(batch.num_rows, np.int64)
        indices[selected] = np.arange(len(selected))
        return made.take(pa.array(indices, mask=None if rows is None else ~rows))

    def _merged(self, batch: pa.RecordBatch, lists: Ragged, selected: Vector, states: pa.Array) -> pa.Array:
        order = np.argsort(-lists.sizes[selected], kind="stable")
        longest_first = selected[order]
        sizes = lists.sizes[longest_first]
        states = states.take(pa.array(order))
        done = []
        for position in range(int(sizes.max(initial=0))):
            active = int(np.searchsorted(-sizes, -position))  # number of lists that have an element at this position
            done.append(states.slice(active))
            rows = longest_first[:active]
            elements = lists.values.take(pa.array(lists.starts[rows] + position))
            states = as_type(self.merge(batch, rows, states.slice(0, active), elements), states.type)
        merged = pa.concat_arrays([states, *done[::-1]])
        return merged.take(pa.array(np.argsort(order, kind="stable")))


class TransformMap(OverElements):
    """``transform_keys`` and ``transform_values``."""

    def __init__(
        self, keys: bool, rules: MapRules, argument: Expression, body: Body, data_type: pa.DataType, nullable: bool
    ) -> None:
        super().__init__(argument, body, data_type, nullable)
        self.keys = keys
        self.rules = rules

    def evaluate(self, batch: pa.RecordBatch, mask: Mask | None = None) -> pa.Array:
        lists, rows = self.lists(batch, mask)
        keys, values = lists.values.field(0), lists.values.field(1)
        made = self.body(batch, lists.row_of, keys, values)
        if self.keys:
            return self.rules.build(lists.sizes, made, values, self.data_type, rows)
        children = [keys, as_type(made, self.data_type.item_type)]
        entries = struct_array(children, self.data_type.field(0).type, None, len(keys))
        return list_array(lists.sizes, entries, self.data_type, rows)


class OverTwo(Expression):
    """Lambda over two arrays or two maps; null if either is null."""

    def __init__(
        self, left: Expression, right: Expression, body: Body, data_type: pa.DataType, nullable: bool = True
    ) -> None:
        self.left = left
        self.right = right
        self.body = body
        self.data_type = data_type
        self.nullable = nullable

    def both_lists(self, batch: pa.RecordBatch, mask: Mask | None) -> tuple[Ragged, Ragged, Mask | None]:
        left = self.left.evaluate(batch, mask)
        rows = intersect_masks(mask, valid_rows(left))
        right = self.right.evaluate(batch, rows)
        rows = intersect_masks(rows, valid_rows(right))
        return ragged(left, rows), ragged(right, rows), rows


class ZipWith(OverTwo):
    """``zip_with``. The shorter array is extended with nulls."""

    def evaluate(self, batch: pa.RecordBatch, mask: Mask | None = None) -> pa.Array:
        left, right, rows = self.both_lists(batch, mask)
        sizes = np.maximum(left.sizes, right.sizes)
        row_of = np.repeat(np.arange(len(sizes)), sizes)
        made = self.body(batch, row_of, aligned(left, sizes), aligned(right, sizes))
        return list_array(sizes, made, self.data_type, rows)


class ZipMaps(OverTwo):
    """``map_zip_with``. The result has the keys of the left map, then those that only the right map has."""

    def evaluate(self, batch: pa.RecordBatch, mask: Mask | None = None) -> pa.Array:
        left, right, rows = self.both_lists(batch, mask)
        key_type = self.data_type.key_type
        keys = pa.concat_arrays([as_type(part.values.field(0), key_type) for part in (left, right)])
        row_of = np.concatenate([left.row_of, right.row_of])
        order = ranks(keys)
        _, begin, back = np.unique(row_of * (order.max(initial=0) + 1) + order, return_index=True, return_inverse=True)
        back, count = back.reshape(-1), len(left.values)
        left_positions, right_positions = np.full((2, len(begin)), -1)
        left_positions[back[:count]] = np.arange(count)
        right_positions[back[count:]] = np.arange(len(right.values))
        key_order = np.lexsort((begin, row_of[begin]))
        columns = [
            part.values.field(1).take(pa.array(np.maximum(positions, 0)[key_order], mask=(positions < 0)[key_order]))
            for part, positions in ((left, left_positions), (right, right_positions))
        ]
        keys = keys.take(pa.array(begin[key_order]))
        rows_of_keys = row_of[begin[key_order]]
        made = as_type(self.body(batch, rows_of_keys, keys, *columns), self.data_type.item_type)
        sizes = np.bincount(rows_of_keys, minlength=batch.num_rows)
        return list_array(sizes, struct_array([keys, made], self.data_type.field(0).type, None, len(keys)),
                          self.data_type, rows)  # fmt: skip


class SortBy(OverElements):
    """``array_sort`` with a comparator.

    This is a merge sort. Each merge finds the positions of all elements in the other half at once, by bisection.
    """

    def evaluate(self, batch: pa.RecordBatch, mask: Mask | None = None) -> pa.Array:
        lists, rows = self.lists(batch, mask)
        order = np.arange(len(lists.values))
        run = 1
        while run < lists.sizes.max(initial=0):
            order = self._merged(batch, lists, order, run)
            run *= 2
        return lists.reordered(order).array(self.data_type, rows)

    def _merged(self, batch: pa.RecordBatch, lists: Ragged, order: Vector, run: int) -> Vector:
        """Merge pairs of sorted runs of length ``run`` and return the new order."""
        position, row_of = lists.position, lists.row_of
        base = lists.starts[row_of]
        is_left = position // run % 2 == 0
        pair = position // (2 * run) * (2 * run)
        size = lists.sizes[row_of]
        other = np.where(is_left, pair + run, pair)
        low, high = np.minimum(other, size), np.minimum(other + run, size)
        other = low.copy()
        while True:
            unfinished = np.flatnonzero(low < high)
            if not len(unfinished):
                break
            middle = (low[unfinished] + high[unfinished]) // 2
            opposite = order[base[unfinished] + middle]
            # Elements of the right run come after equal elements of the left run.
            compared = self._compared(batch, row_of[unfinished], lists.values, opposite, order[unfinished])
            in_front = np.where(is_left[unfinished], compared < 0, compared <= 0)
            low[unfinished] = np.where(in_front, middle + 1, low[unfinished])
            high[unfinished] = np.where(in_front, high[unfinished], middle)
        target = base + pair + (position - pair) % run + (low - other)
        merged = np.empty_like(order)
        merged[target] = order
        return merged

    def _compared(self, batch: pa.RecordBatch, rows: Vector, values: pa.Array, left: Vector, right: Vector) -> Vector:
        compared = self.body(batch, rows, values.take(pa.array(left)), values.take(pa.array(right)))
        if compared.null_count:
            raise errors.no_comparison()
        return to_vector(compared)
