"""Declaration of a transformWithState operator. Module ``variables`` describes its tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

import pyarrow as pa

from penstock.model.job_graph import Evolution, OperatorSpec
from penstock.operators.join.static_rows import StaticRows
from penstock.operators.python.user_code import PythonSettings
from penstock.operators.stateful.variables import (
    TIMERS,
    UNPROCESSED,
    StateVariable,
    TimeMode,
    timers_schema,
    unprocessed_schema,
)
from penstock.state.stored_form import stored_schema


class RowForm(Enum):
    """Form in which the user's code gets and returns rows."""

    ROWS = "rows"
    """``transformWithState``."""
    FRAMES = "frames"
    """``transformWithStateInPandas``."""
    NARROW_FRAMES = "narrow frames"
    """``applyInPandasWithState``: pandas frames that keep the integer and float widths of their columns."""
    ARROW = "arrow"
    """``penstock.transformWithStateInArrow``: record batches of many keys."""


@dataclass(frozen=True, kw_only=True)
class InitialState:
    """Rows that ``handleInitialState`` gets before any input, when a query starts without a snapshot.

    Attributes:
        rows: the rows of all keys; every slot has all of them.
        keys: positions of the grouping-key columns.
        data: positions of the columns that the user sees.
    """

    rows: StaticRows
    keys: tuple[int, ...]
    data: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class StatefulDeclaration(OperatorSpec):
    """Specification of a transformWithState operator, without ``create``, because the operators refer to this class.

    Attributes:
        input_schema: schema of the input, which is hash-partitioned by ``keys``.
        keys: positions of the grouping-key columns.
        data: positions of the columns that the user sees.
        pickled: Spark's pickle of the user's StatefulProcessor. Every subtask unpickles its own copy.
        form: form of the rows that the processor gets and yields.
        variables: state variables that its ``init`` declares.
        deleted: names that its ``init`` passes to ``deleteIfExists``; disjoint from ``variables``.
        event_time: position of the column with the watermark, in event-time mode. Rows at or below the watermark are
            dropped, as in Spark.
        initial: the initial state; None if there is none.
    """

    operator_id: str
    name: str
    output_schema: pa.Schema
    input_schema: pa.Schema
    keys: tuple[int, ...]
    data: tuple[int, ...]
    pickled: bytes
    form: RowForm
    time_mode: TimeMode
    variables: tuple[StateVariable, ...]
    deleted: tuple[str, ...] = ()
    event_time: int | None = None
    initial: InitialState | None = None
    settings: PythonSettings = field(default_factory=PythonSettings)
    parameters: Mapping[str, str] = field(default_factory=dict)

    @property
    def grouping(self) -> pa.Schema:
        """Schema of the grouping key."""
        return pa.schema([self.input_schema.field(position) for position in self.keys])

    @property
    def state_schemas(self) -> dict[str, pa.Schema]:
        schemas = {variable.name: stored_schema(variable.table_schema(self.grouping)) for variable in self.variables}
        schemas[UNPROCESSED] = stored_schema(unprocessed_schema(self.grouping, self.input_schema))
        if self.time_mode is not TimeMode.NONE:
            schemas[TIMERS] = stored_schema(timers_schema(self.grouping))
        return schemas

    @property
    def state_keys(self) -> dict[str, int]:
        counts = {variable.name: variable.key_count(self.grouping) for variable in self.variables}
        counts[UNPROCESSED] = len(self.keys) + 1
        if self.time_mode is not TimeMode.NONE:
            counts[TIMERS] = len(self.keys) + 1
        return counts

    @property
    def evolution(self) -> Evolution:
        renamed = {variable.name: variable.renamed(self.grouping) for variable in self.variables}
        return Evolution(
            deleted=self.deleted,
            essential=(TIMERS,),
            passing=(UNPROCESSED,),
            fixed={} if self.time_mode is TimeMode.NONE else {"time mode": str(self.time_mode)},
            renamed={name: columns for name, columns in renamed.items() if columns},
        )

    @property
    def keeps(self) -> str:
        described = [
            f"{one.name} ({one.kind.value})" + ("" if one.ttl_ms is None else f" for {one.ttl_ms / 1000:g} s")
            for one in self.variables
        ]
        timers = [] if self.time_mode is TimeMode.NONE else ["timers until they are due"]
        return f"by key, until the processor deletes it: {', '.join([*described, *timers]) or 'nothing'}"
