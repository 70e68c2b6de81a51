"""Random plans over input with late rows, of which Structured Streaming and Penstock have to say the same.

The engines may differ in when the watermark moves: Spark's once per micro-batch, and late rows are judged by the one
that the batch before ended with; Penstock's as rows pass. ``LateData`` is made so that it makes no difference. In
every file all rows but the last one have event times up to the largest that was there before, so the watermark stands
still while they pass, on either engine; only the last row, the *pacer*, lifts it. Files come one by one, each when the
one before is through, and Spark has by then had its batch without data. So every row meets the watermark that the files
before have made, whoever counts, and the results are equal row by row: with nothing left open to choice, for at
parallelism 1 rows stay in order, too.

No step may drop a pacer, which is why conditions let all rows with its key pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa

from tests.oracle.oracle_plans import START, Data, Plan, beginnings, endings

PACER = "pacer"
KEPT = f"k = '{PACER}'"
ADVANCES_S = (0, 5, 31, 200, 5_400)
"""By how much a pacer may be ahead of the one before."""
AGES_S = (12.0, 75.0, 900.0, 9_000.0)
"""How far behind the newest event time rows may be, some of them: the delay of the watermark is 30 seconds."""
KINDS = ("tumbling", "sliding", "session", "times", "chained", "deduplicate", "within", "join")


@dataclass(frozen=True)
class LateData(Data):
    """Rows as ``Data`` has them, with other times: see above. The first file is a pacer alone."""

    def tables(self) -> list[pa.Table]:
        random = np.random.default_rng(self.seed)
        reached, files = START, []
        for number, table in enumerate(super().tables()):
            body = table.slice(0, 0 if number == 0 else max(table.num_rows - 1, 0))
            times = _behind(random, reached, body.num_rows)
            reached += timedelta(seconds=int(random.choice(ADVANCES_S)))
            pacer = table.slice(table.num_rows - 1)
            whole = pa.concat_tables([body, pacer])
            keys = [*body["k"].to_pylist(), PACER]
            files.append(_with(_with(whole, "ts", [*times, reached]), "k", keys))
        return files


def _behind(random: np.random.Generator, reached: datetime, rows: int) -> list[datetime]:
    """Some in whole seconds, so that they meet watermarks and bounds of windows exactly."""
    ages = random.random(rows) * random.choice(AGES_S, rows)
    ages = np.where(random.random(rows) < 0.3, np.floor(ages), ages)
    return [reached - timedelta(microseconds=int(age * 1e6)) for age in ages]


def _with(table: pa.Table, name: str, values: Sequence[object]) -> pa.Table:
    at = table.schema.get_field_index(name)
    return table.set_column(at, table.schema.field(at), pa.array(values, table.schema.field(at).type))


@st.composite
def late_plans(draw: st.DrawFn, kinds: Sequence[str] = KINDS) -> Plan:
    """Steps of which Structured Streaming runs all: without DISTINCT. Which row is the first one, within the watermark,
    says the order of rows: only steps that keep it come before. Joins get no null keys, of which Spark waits for
    partners that cannot come."""
    kind = draw(st.sampled_from(kinds))
    data = LateData(
        rows=draw(st.sampled_from((30, 200))),
        files=draw(st.sampled_from((3, 5))),
        keys=draw(st.sampled_from((1, 3, 40))),
        skew=draw(st.sampled_from((0.0, 0.8))),
        holes=0.0 if kind == "join" else draw(st.sampled_from((0.0, 0.15))),
        seed=draw(st.integers(0, 1 << 16)),
    )
    steps, columns = draw(beginnings(KEPT))
    if kind == "within":
        steps = tuple(step for step in steps if step.kind == "where")
        columns = {name: data_type for name, data_type in columns.items() if name in ("ts", "k", "n", "s", "b")}
    ending = draw(endings(columns, (kind,), distinct=False))
    if kind == "join":
        ending = tuple(replace(step, keys=("k",)) for step in ending)
    return Plan(
        data,
        (*steps, *ending),
        parallelisms=(1,) * draw(st.integers(1, 2)),
        alignment=draw(st.sampled_from(("auto", "aligned", "unaligned"))),
        kills=draw(st.booleans()),
        backend=draw(st.sampled_from(("memory", "rocksdb"))),
    )
