"""A pending epoch belongs to the plan that staged it.

After an edit its rows are delivered once with their original columns, or the start is refused before anything runs.

In full every combination runs. Otherwise each pair of values of two dimensions is in one combination, but for the
other file formats.
"""

from __future__ import annotations

import itertools
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.errors import LocationError, PlanChanged, SinkError
from penstock.queries.streaming_query import StreamingQuery
from penstock.snapshots import catalog
from tests.support.effort import FULL
from tests.support.newest_snapshot import newest_snapshot
from tests.support.places import GOLDEN
from tests.support.queries.pending_epochs_kit import (
    BASE,
    EDITS,
    ENDS,
    OPTIONS,
    OTHER_FILE_SINKS,
    SINKS,
    STAGED,
    Case,
    Input,
    Interrupted,
    Target,
    check_row,
    leave_waiting,
    names,
)

pytestmark = pytest.mark.spark

REFUSED_BY_MEMORY = ("drop", "insert", "rename")
"""One table has one list of columns."""


def cases() -> list[Case]:
    every = [Case(*values) for values in itertools.product(SINKS, EDITS, STAGED, ENDS)]
    return every if FULL else pairwise(every)


def with_each(sinks: Sequence[str], values: Sequence[str]) -> list[tuple[str, str]]:
    """Return each sink with each value. Other file sinks share the commit of Parquet's: each has one value, in turn."""
    others = [] if FULL else [sink for sink in sinks if sink in OTHER_FILE_SINKS]
    every = itertools.product([sink for sink in sinks if sink not in others], values)
    return [*every, *zip(others, itertools.cycle(values), strict=False)]


def pairwise(every: Sequence[Case]) -> list[Case]:
    """Choose few combinations, greedily, so that each pair of values of different dimensions is in one of them.

    File sinks share their commit: only Parquet is combined with every value, each other kind is in one combination.
    """

    def pairs(case: Case) -> set[tuple[tuple[str, str], ...]]:
        found = set(itertools.combinations(vars(case).items(), 2))
        if case.sink not in OTHER_FILE_SINKS:
            return found
        return {pair for pair in found if ("sink", case.sink) not in pair} | {(("sink", case.sink),)}

    left = set().union(*map(pairs, every))
    chosen: list[Case] = []
    while left:
        best = max(every, key=lambda case: len(pairs(case) & left))
        chosen.append(best)
        left -= pairs(best)
    return chosen


@pytest.fixture
def queries() -> Iterator[list[StreamingQuery]]:
    started: list[StreamingQuery] = []
    yield started
    for query in started:
        query.stop()


@pytest.mark.one_in(3)
@pytest.mark.parametrize("case", cases(), ids=str)
def test_rows_come_as_they_were_produced(
    case: Case,
    spark: SparkSession,
    tmp_path: Path,
    checkpoint: Path,
    queries: list[StreamingQuery],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source = Input(tmp_path / "in")
    target = Target(case.sink, spark, tmp_path / "out", lambda: capsys.readouterr().out)
    produced: list[Sequence[str]] = []
    options = {**OPTIONS, "checkpointLocation": str(checkpoint)}

    def start(columns: Sequence[str]) -> StreamingQuery:
        query = target.start(source.read(spark, columns), **options)
        queries.append(query)
        source.add(len(produced))
        produced.append(columns)
        return query

    def interrupted(columns: Sequence[str]) -> None:
        with monkeypatch.context() as patch, Interrupted(case.end, target, patch) as end:
            query = start(columns)
            if target.at_least_once:
                query.processAllAvailable()
                query.stop()
            else:
                leave_waiting(query, case, end, checkpoint, len(produced))

    interrupted(BASE)
    edited = EDITS[case.edit]
    if case.sink == "memory" and case.edit in REFUSED_BY_MEMORY:
        with pytest.raises(
            PlanChanged, match=r"(?s)output sink-0 \(MemorySink\) cannot deliver epoch \d+, .*as it was"
        ):
            start(edited)
        edited = BASE
    if case.staged == "several":
        interrupted(edited)
        if not (case.sink == "memory" and case.edit == "widen"):  # back again would be narrower
            edited = BASE
    query = start(edited)
    query.processAllAvailable()
    query.stop()
    rows = target.rows()
    counts = Counter(int(row["a"]) for row in rows)
    assert set(counts) == {10 * number + row for number in range(len(produced)) for row in range(3)}
    assert target.at_least_once or set(counts.values()) == {1}
    for row in rows:
        check_row(row)
        wanted = names(produced[int(row["a"]) // 10])
        if case.sink == "partitioned":
            wanted = [*(name for name in wanted if name != "c"), "c"]
        assert list(row) == wanted if target.ordered else sorted(row) == sorted(wanted)


@pytest.fixture
def waiting(
    spark: SparkSession,
    tmp_path: Path,
    checkpoint: Path,
    queries: list[StreamingQuery],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Waiting:
    return Waiting(spark, tmp_path, checkpoint, queries, monkeypatch, lambda: capsys.readouterr().out)


class Waiting:
    """A query with committed rows and a pending epoch."""

    def __init__(
        self,
        spark: SparkSession,
        folder: Path,
        checkpoint: Path,
        queries: list[StreamingQuery],
        patch: pytest.MonkeyPatch,
        output: Any,
    ) -> None:
        self.spark, self.folder, self.checkpoint = spark, folder, checkpoint
        self.input = Input(folder / "in")
        self._queries, self._patch, self._output = queries, patch, output

    def target(self, kind: str, name: str = "out") -> Target:
        return Target(kind, self.spark, self.folder / name, self._output)

    def start(self, target: Target, columns: Sequence[str] = BASE, **options: Any) -> StreamingQuery:
        settings = {**OPTIONS, "checkpointLocation": str(self.checkpoint)}
        query = target.start(self.input.read(self.spark, columns), **(settings | options))
        self._queries.append(query)
        return query

    def make(self, target: Target, end: str = "failing") -> None:
        """Commit rows 0 to 2, in the snapshot ``good``, and leave rows 10 to 12 pending."""
        self.input.add(0)
        query = self.start(target)
        query.processAllAvailable()
        query.snapshot(label="good")
        query.stop()
        with self._patch.context() as patch, Interrupted(end, target, patch) as interrupted:
            query = self.start(target)
            self.input.add(1)
            case = Case(target.kind, "", "one", end)
            leave_waiting(query, case, interrupted, self.checkpoint, 1)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ("foreachBatch", "foreach", "foreach stages nothing"),
        ("foreachBatch", "python", "is none that Penstock wrote"),
        ("foreachBatch", "memory", "holds no rows of this sink"),
        ("foreachBatch", "console", "holds no rows of this sink"),
        ("foreachBatch", "parquet", "none that a writer of a file sink wrote"),
        ("memory", "foreachBatch", "none of staged rows"),
        ("python", "table", "none that a writer of staged rows wrote"),
        ("parquet", "foreachBatch", "none that a writer of staged rows wrote"),
    ],
)
def test_a_sink_that_cannot_take_what_another_one_staged_refuses_the_start(
    waiting: Waiting, before: str, after: str, why: str
) -> None:
    target = waiting.target(before)
    waiting.make(target)
    other = waiting.target(after, "other")
    with pytest.raises(PlanChanged, match=rf"(?s)output sink-0 \(.*\) cannot deliver epoch \d+, .*{why}.*as it was"):
        waiting.start(other)
    waiting.start(target).processAllAvailable()
    assert {row["a"] for row in target.rows()} >= {10, 11, 12}
    assert list((waiting.folder / "other").iterdir()) == []


def test_another_output_directory_is_refused_while_the_old_one_has_pending_files(waiting: Waiting) -> None:
    target = waiting.target("parquet")
    waiting.make(target)
    with pytest.raises(PlanChanged, match="3 rows were staged for another output directory"):
        waiting.start(waiting.target("parquet", "other"))
    assert list((waiting.folder / "other").iterdir()) == []
    waiting.start(target).processAllAvailable()
    assert sorted(row["a"] for row in target.rows()) == [0, 1, 2, 10, 11, 12]


def test_a_table_that_does_not_fit_pending_rows_refuses_the_start_with_the_ways_out(waiting: Waiting) -> None:
    target = waiting.target("table")
    waiting.make(target)
    waiting.spark.sql(f"DROP TABLE {target.name}")
    with pytest.raises(
        PlanChanged, match=r"(?s)sink-0 \(Table.*table .* no longer exists, and the query would create it with other"
    ):
        waiting.start(target, ("a", "c"))
    assert not waiting.spark.catalog.tableExists(target.name), "nothing has run"
    waiting.spark.sql(f"CREATE TABLE {target.name} (a INT, c INT) USING parquet")
    refused = r"(?s)output sink-0 \(Table.*cannot deliver epoch \d+.*do not fit.*as it was.*rollback LOCATION chk-\d+ "
    with pytest.raises(PlanChanged, match=refused) as raised:
        waiting.start(target, ("a", "c"))
    (snapshot,) = re.findall(r"chk-\d+", str(raised.value))
    rolled_back(waiting.checkpoint, snapshot)
    waiting.start(target, ("a", "c")).processAllAvailable()
    assert [row["a"] for row in sorted(target.rows(), key=str)] == [10, 11, 12], "once, and the edited query's"
    assert all(set(row) == {"a", "c"} for row in target.rows())


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("kind", "end"), with_each(["foreachBatch", "table", "memory", "parquet", "partitioned", "rolled"], ENDS)
)
def test_pending_output_is_taken_back_by_a_rollback_and_produced_again(waiting: Waiting, kind: str, end: str) -> None:
    target = waiting.target(kind)
    waiting.make(target, end)
    rolled_back(waiting.checkpoint, "good")
    edited = EDITS["insert"]
    if kind == "foreachBatch" and end == "killed":
        with pytest.raises(SinkError, match=r"its function was called with rows up to epoch \d+, and Penstock cannot"):
            waiting.start(target, edited)
        return
    query = waiting.start(target, edited)
    query.processAllAvailable()
    query.stop()
    rows = [row for row in target.rows() if row["a"] >= 10]
    assert sorted(row["a"] for row in rows) == [10, 11, 12]
    for row in rows:
        check_row(row)
        assert sorted(row) == sorted(names(edited)), "by the query as it is"
    if kind != "memory":  # a new driver's table begins empty
        assert sorted(row["a"] for row in target.rows()) == [0, 1, 2, 10, 11, 12]


def rolled_back(checkpoint: Path, snapshot: str, output: str = "retract") -> None:
    words = ["snapshot", "rollback", str(checkpoint), snapshot, "--output", output]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output


SEVERAL = ["foreachBatch", "table", "python", "parquet", "rolled", "partitioned"]
RESCALED = {"parallelism": 3}
"""Than the query had that left an epoch waiting."""


def read_on(waiting: Waiting, query: StreamingQuery, *numbers: int) -> None:
    """Read one more file each, under another parallelism."""
    for number in numbers:
        waiting.input.add(number)
        query.processAllAvailable()
        query.rescale(1 + number % 3)
    query.processAllAvailable()
    query.stop()


def check_rows(target: Target, produced: dict[int, Sequence[str]]) -> None:
    """Every row is there once, with the columns of the query that produced it: file -> columns."""
    rows = target.rows()
    assert sorted(int(row["a"]) for row in rows) == [10 * file + row for file in sorted(produced) for row in range(3)]
    for row in rows:
        check_row(row)
        assert sorted(row) == sorted(names(produced[int(row["a"]) // 10]))


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("kind", "to"), with_each(SEVERAL, ["good", "waiting"]))
def test_output_that_waits_is_delivered_once_after_a_rollback_that_keeps_and_a_rescale(
    waiting: Waiting, kind: str, to: str
) -> None:
    """The snapshot before the output produces it anew; its own snapshot delivers it as it was."""
    target, edited = waiting.target(kind), EDITS["swap"]
    waiting.make(target)
    newest = newest_snapshot(waiting.checkpoint)
    rolled_back(waiting.checkpoint, "good" if to == "good" else newest.id, "keep")
    query = waiting.start(target, edited, **RESCALED)
    read_on(waiting, query, 2, 3)
    check_rows(target, {0: BASE, 1: edited if to == "good" else BASE, 2: edited, 3: edited})


@pytest.mark.one_in(3)
@pytest.mark.parametrize("kind", SEVERAL)
def test_output_that_waits_is_its_origins_and_none_of_a_fork_that_is_rescaled(waiting: Waiting, kind: str) -> None:
    target, fork, edited = waiting.target(kind), waiting.target(kind, "fork"), EDITS["insert"]
    waiting.make(target)
    said = {"checkpointLocation": str(waiting.folder / "forked"), "startFrom": str(waiting.checkpoint)}
    if kind in ("foreachBatch", "python"):
        said["sinkTarget"] = "own"
    query = waiting.start(fork, edited, **said, startMode="fork", **RESCALED)
    read_on(waiting, query, 2, 3)
    check_rows(fork, {2: edited, 3: edited})
    read_on(waiting, waiting.start(target, edited, **RESCALED))
    check_rows(target, {0: BASE, 1: BASE, 2: edited, 3: edited})


def test_a_memory_table_gives_rows_back_while_its_query_is_suspended(waiting: Waiting) -> None:
    target = waiting.target("memory")
    waiting.input.add(0)
    query = waiting.start(target)
    query.processAllAvailable()
    query.snapshot(label="good")
    waiting.input.add(1)
    query.processAllAvailable()
    assert len(target.rows()) == 6
    query.suspend()
    query.resume("good", output="retract")
    query.processAllAvailable()
    assert sorted(row["a"] for row in target.rows()) == [0, 1, 2, 10, 11, 12]


def test_earlier_releases_refuse_a_snapshot_with_pending_rows(
    waiting: Waiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = waiting.target("foreachBatch")
    waiting.make(target)
    with monkeypatch.context() as earlier:
        earlier.setattr(catalog, "READ_VERSIONS", (1,))
        with pytest.raises(
            LocationError, match=r"chk-\d+/metadata.json has format version 2; this release reads up to"
        ):
            waiting.start(target)


GOLDEN_STAGED = GOLDEN / "staged"


@pytest.mark.parametrize("version", ["1", "2"])
@pytest.mark.parametrize("columns", [BASE, EDITS["swap"]], ids=["as it was", "edited"])
def test_rows_staged_by_earlier_releases_keep_their_columns(
    waiting: Waiting, version: str, columns: Sequence[str]
) -> None:
    shutil.copytree(GOLDEN_STAGED / version, waiting.checkpoint)
    target = waiting.target("foreachBatch")
    if version == "1" and columns != BASE:
        refused = r"ForeachBatchSink.*cannot deliver epoch 2, .*an earlier release staged its rows and did not store"
        with pytest.raises(PlanChanged, match=refused):
            waiting.start(target, columns)
        return
    waiting.start(target, columns).processAllAvailable()
    assert target.rows() == [{"a": a, "b": a + 100, "c": a + 200} for a in range(3)]
    assert all(list(row) == list(BASE) for row in target.rows())
