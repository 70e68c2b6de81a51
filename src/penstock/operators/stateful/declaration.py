"""Declaration of a transformWithState operator; ``variables`` has its tables."""

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
    """``applyInPandasWithState``: frames have their columns' own types."""
    ARROW = "arrow"
    """``penstock.transformWithStateInArrow``: record batches of many keys."""


@dataclass(frozen=True, kw_only=True)
class InitialState:
    """Rows that ``handleInitialState`` gets before any input, when a query starts without a snapshot.

    Attributes:
        rows: all of them, in every slot.
        keys: positions of the grouping key in them.
        data: positions of what the user sees.
    """

    rows: StaticRows
    keys: tuple[int, ...]
    data: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class StatefulDeclaration(OperatorSpec):
    """Recipe of a transformWithState operator, without ``create``: the operators themselves refer to it.

    Attributes:
        input_schema: what comes over the hash exchange on ``keys``.
        keys: positions of the grouping key.
        data: positions of the columns that the user sees.
        pickled: Spark's own pickle of the user's StatefulProcessor; every subtask makes its own of it.
        form: of the rows that it gets and yields.
        variables: what its ``init`` declares.
        deleted: names that its ``init`` gives to ``deleteIfExists``; none of ``variables``.
        event_time: position of the column that has the watermark, in event-time mode: rows at or below the watermark
            are dropped, Spark's rule.
        initial: see ``InitialState``.
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
        """The grouping key's columns."""
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
        return f"by key, until the processor deletes it: {', '.join([*described, *timers]) or 'null_value'}"
