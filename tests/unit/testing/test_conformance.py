"""The kits for authors: what keeps its contract passes, what breaks it in the usual ways does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from penstock.connectors.base import Sink, SinkCommitter, SinkWriter, Source, SourceReader
from penstock.connectors.files.parquet.sink import ParquetFormat
from penstock.connectors.files.sink import FileSink
from penstock.connectors.files.source import FileSource
from penstock.model.commits import EpochCommit
from penstock.model.job_graph import OperatorSpec
from penstock.model.plain import Plain
from penstock.model.splits import Discovery, Split
from penstock.operators.base import Operator, OperatorState, RestoredState
from penstock.operators.watermark import WatermarkSpec
from penstock.state.stored_form import KEY_GROUP_COLUMN, BatchCapture
from penstock.testing.conformance import Input, Rows, check_operators, check_sink, check_source
from penstock.testing.failure import SimulationFailure

SCHEMA = pa.schema([("a", pa.int64())])
TIMES = pa.schema([("a", pa.int64()), ("at", pa.timestamp("us", tz="UTC"))])


def batch(values: Sequence[int]) -> pa.RecordBatch:
    return pa.record_batch([pa.array(values, pa.int64())], schema=SCHEMA)


# -- operators --------------------------------------------------------------------------------------------------------


class Held(Operator):
    """Keeps rows until the watermark has passed them. ``flaw``: what is wrong with it."""

    def __init__(self, flaw: str) -> None:
        self._flaw = flaw
        self._rows: list[int] = []

    def process(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        self._rows += rows.column(0).to_pylist()
        if self._flaw == "depends on slices":
            yield batch([rows.num_rows])

    def advance(self, watermark_us: int) -> Iterator[pa.RecordBatch]:
        due = [row for row in self._rows if row < watermark_us]
        if self._flaw == "removed before it is yielded":
            self._rows = [row for row in self._rows if row >= watermark_us]
        for row in due:
            if self._flaw == "removed after it was yielded":
                yield batch([row])
                self._rows.remove(row)
            else:
                if self._flaw != "removed before it is yielded":
                    self._rows.remove(row)
                yield batch([row])

    def snapshot(self) -> OperatorState:
        rows = self._rows if self._flaw != "forgets" else self._rows[1:]
        groups = pa.array([0] * len(rows), pa.int16())
        table = pa.record_batch([groups, pa.array(rows, pa.int64())], names=[KEY_GROUP_COLUMN, "a"])
        return OperatorState({"rows": BatchCapture(table)})

    def restore(self, state: RestoredState) -> None:
        self._rows = [row for table in state.rows("rows") for row in table.column(1).to_pylist()]


@dataclass(frozen=True, kw_only=True)
class HeldSpec(OperatorSpec):
    operator_id: str = "held"
    name: str = "held"
    output_schema: pa.Schema = SCHEMA
    flaw: str = ""

    def create(self) -> Operator:
        return Held(self.flaw)


INPUTS: list[Input] = [batch(range(10)), 4, batch(range(10, 25)), 20, batch(range(25, 30)), 100]


def test_an_operator_that_keeps_its_contract_passes() -> None:
    check_operators([HeldSpec()], INPUTS)
    check_operators([HeldSpec(), HeldSpec(operator_id="behind")], INPUTS)


def test_built_in_operators_keep_it() -> None:
    spec = WatermarkSpec(operator_id="w", name="w", output_schema=TIMES, column=1, delay_us=5)
    times = pa.array([i * 10 for i in range(40)], pa.int64()).cast(TIMES.field(1).type)
    check_operators([spec], [pa.record_batch([pa.array(range(40), pa.int64()), times], schema=TIMES)])


@pytest.mark.parametrize(
    "flaw",
    ["depends on slices", "removed before it is yielded", "removed after it was yielded", "forgets"],
)
def test_an_operator_that_breaks_it_is_found(flaw: str) -> None:
    with pytest.raises(SimulationFailure, match="seed"):
        check_operators([HeldSpec(flaw=flaw)], INPUTS)


def test_the_outcome_that_counts_is_the_authors() -> None:
    check_operators([HeldSpec(flaw="depends on slices")], INPUTS, outcome=lambda rows: rows[-1])


# -- sources ----------------------------------------------------------------------------------------------------------


class Reader(SourceReader):
    def __init__(self, flaw: str) -> None:
        self._flaw = flaw
        self._split: Split | None = None
        self._ahead = 0

    def add_split(self, split: Split) -> None:
        self._split = split

    def poll(self, max_rows: int, now_ms: int) -> pa.RecordBatch | None:
        assert self._split is not None
        at = self._split.position.get("at", 0)
        assert isinstance(at, int)
        stop = min(at + max_rows, 30)
        position = stop if self._flaw != "position too far" or stop == 30 else stop + 1
        self._split = None if stop == 30 else Split(self._split.split_id, self._split.spec, {"at": position})
        return batch(range(at, stop))

    def snapshot(self) -> Sequence[Split]:
        if self._split is None:
            return ()
        if self._flaw == "position forgotten":
            return (Split(self._split.split_id, self._split.spec, {}),)
        return (self._split,)


@dataclass(frozen=True)
class Numbers(Source):
    flaw: str = ""
    schema = SCHEMA

    def describe(self) -> str:
        return "Numbers"

    def discover(self, state: Plain, parallelism: int) -> Discovery:
        return Discovery([] if state else [Split("only", {})], 1)

    def create_reader(self) -> SourceReader:
        return Reader(self.flaw)


def test_a_source_that_keeps_its_contract_passes(tmp_path: Path) -> None:
    check_source(Numbers())
    for name, start in (("x", 0), ("y", 100)):
        pq.write_table(pa.table({"a": range(start, start + 23)}), tmp_path / f"{name}.parquet", row_group_size=7)
    check_source(FileSource("parquet", str(tmp_path), SCHEMA), schedules=10)


@pytest.mark.parametrize("flaw", ["position too far", "position forgotten"])
def test_a_source_that_breaks_it_is_found(flaw: str) -> None:
    with pytest.raises(SimulationFailure, match="seed"):
        check_source(Numbers(flaw))


# -- sinks ------------------------------------------------------------------------------------------------------------


@dataclass
class Target:
    """Target of a sink: the rows that a reader sees, and staged ones."""

    staged: dict[str, list[dict[str, int]]] = field(default_factory=dict)
    visible: dict[object, list[dict[str, int]]] = field(default_factory=dict)

    def rows(self) -> Rows:
        return [row for rows in self.visible.values() for row in rows]


class Writer(SinkWriter):
    def __init__(self, target: Target, flaw: str) -> None:
        self._target = target
        self._flaw = flaw
        self._rows: list[dict[str, int]] = []

    def open(self, context: object) -> None:
        self._name = f"{context.generation}-{context.subtask}"  # type: ignore[attr-defined]

    def write(self, rows: pa.RecordBatch) -> None:
        self._rows += rows.to_pylist()
        if self._flaw == "visible when written":
            self._target.visible[object()] = rows.to_pylist()

    def prepare(self, epoch: int) -> bytes | None:
        rows, self._rows = self._rows, []
        if not rows or self._flaw == "visible when written":
            return None
        self._target.staged[f"{self._name}-{epoch}"] = rows
        return f"{self._name}-{epoch}".encode()


class Committer(SinkCommitter):
    def __init__(self, target: Target, flaw: str) -> None:
        self._target = target
        self._flaw = flaw

    def commit(self, permit: EpochCommit) -> None:
        rows = [row for message in permit.messages.values() for row in self._target.staged.get(message.decode(), ())]
        place = object() if self._flaw == "committed again" else permit.epoch
        self._target.visible[place] = self._target.visible.get(place) or rows

    def abandon(self, generation: int, pending: object = ()) -> None:
        if self._flaw == "abandons too much":
            self._target.visible.popitem()


@dataclass(frozen=True)
class Staging(Sink):
    target: Target
    flaw: str = ""

    def describe(self) -> str:
        return "Staging"

    def create_writer(self) -> SinkWriter:
        return Writer(self.target, self.flaw)

    def create_committer(self) -> SinkCommitter:
        return Committer(self.target, self.flaw)


BATCHES = [batch(range(i * 10, i * 10 + 7)) for i in range(6)]


def staging(flaw: str) -> Callable[[int], tuple[Sink, Callable[[], Rows]]]:
    def make(number: int) -> tuple[Sink, Callable[[], Rows]]:
        target = Target({}, {0: []})
        return Staging(target, flaw), target.rows

    return make


def test_a_sink_that_keeps_its_contract_passes(tmp_path: Path) -> None:
    check_sink(staging(""), BATCHES)

    def parquet(number: int) -> tuple[Sink, Callable[[], Rows]]:
        path = tmp_path / str(number)

        def visible() -> Rows:
            rows: Rows = ds.dataset(path, format="parquet", schema=SCHEMA).to_table().to_pylist()
            return rows

        return FileSink(str(path), ParquetFormat(SCHEMA, "snappy")), visible

    check_sink(parquet, BATCHES, schedules=8)


@pytest.mark.parametrize("flaw", ["visible when written", "committed again", "abandons too much"])
def test_a_sink_that_breaks_it_is_found(flaw: str) -> None:
    with pytest.raises(SimulationFailure, match="seed"):
        check_sink(staging(flaw), BATCHES)
