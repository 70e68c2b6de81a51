"""Metrics of the driver, with checkpoints that complete in any order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from penstock.coordinator.machines.checkpoint_events import SnapshotRequested
from penstock.coordinator.metrics import QueryMetrics
from penstock.coordinator.view import (
    CheckpointState,
    CheckpointView,
    ExecutionState,
    SourceProgress,
    StateProgress,
)
from penstock.model.elements import Alignment
from penstock.model.job_graph import Edge, EdgeKind, JobGraph
from penstock.model.manifest import (
    CaptureMetrics,
    InflightEntry,
    SectionRef,
    SlotManifest,
    SnapshotMetadata,
    SourceManifest,
    SubtaskManifest,
)
from penstock.model.metrics import Backlog, SubtaskReport
from penstock.model.plain import Plain
from penstock.model.splits import Split
from penstock.network.messages import Register, SlotMetrics
from penstock.operators.watermark import WatermarkSpec
from penstock.queries.streaming_query import StreamingQuery
from tests.support.dataflow.tiny import ROWS, Numbers, tiny_graph


def snapshot(checkpoint: int, rows: int, requested: bool = False) -> SnapshotMetadata:
    """The source had read ``rows`` rows by then."""
    slots = [SlotManifest(0, [SubtaskManifest(0, 0, rows_in=rows)])]
    name = f"chk-{checkpoint}"
    return SnapshotMetadata(1, name, "q", 1, checkpoint, "auto", requested, "", 0, 1, 128, slots, [])


def report(index: int = 0, **changes: Any) -> SubtaskReport:
    """Metrics of a subtask of the source that has done nothing yet."""
    names = [field.name for field in fields(SubtaskReport) if field.default is MISSING]
    nothing = dict.fromkeys(names, 0) | {"watermark_us": None, "counters": {}}
    return SubtaskReport(**(nothing | {"index": index} | changes))


def test_a_snapshot_that_completes_after_a_newer_one_takes_no_rows_back(tmp_path: Path) -> None:
    figures = QueryMetrics(tiny_graph(tmp_path, 1, Numbers(1000)), "q", "run", None)
    for checkpoint in (1, 2, 3):
        figures.triggered(checkpoint, "auto")
    figures.complete(snapshot(2, 500))
    progress = figures.committed(2)
    assert progress is not None
    assert progress.rows == 500
    figures.complete(snapshot(1, 300, requested=True))
    figures.complete(snapshot(3, 900))
    progress = figures.committed(3)
    assert progress is not None
    assert progress.rows == 400
    assert [c.state for c in figures.view().checkpoints] == [CheckpointState.COMPLETE] * 3
    assert [c.requested for c in figures.view().checkpoints] == [True, False, False]


def test_a_query_is_idle_once_an_epoch_is_committed_that_has_every_row_and_nothing_in_flight(tmp_path: Path) -> None:
    figures = QueryMetrics(tiny_graph(tmp_path, 1, Numbers(1000)), "q", "run", None)
    figures.opened(1, None, 0, 0)
    figures.all_run()

    def commit(checkpoint: int, inflight: list[InflightEntry]) -> None:
        slots = [SlotManifest(0, [SubtaskManifest(0, 0, rows_in=500, inflight=inflight)])]
        figures.complete(msgspec.structs.replace(snapshot(checkpoint, 500), slots=slots))
        figures.committed(checkpoint)

    def idle_after(checkpoint: int, inflight: Sequence[InflightEntry] = ()) -> bool:
        figures.triggered(checkpoint, "auto")
        commit(checkpoint, [*inflight])
        return figures.view().idle

    waiting = InflightEntry(1, 0, 0, 0, "consumer", 0, 7, 0, 127, SectionRef("i", "data/1-3-0.arrows", 0, 8, "x"))

    assert not idle_after(1), "a source may have rows"
    figures.triggered(2, "auto")
    figures.turned(True)
    commit(2, [])
    assert not figures.view().idle, "rows may have come after the barrier"
    assert not idle_after(3, [waiting])
    assert idle_after(4)
    assert idle_after(5)
    figures.turned(False)
    assert not figures.view().idle
    figures.turned(True)
    assert not figures.view().idle
    assert idle_after(6)
    figures.failed(1, "killed")
    figures.opened(2, None, 6, 0)
    figures.all_run()
    assert not figures.view().idle, "rows are read again"
    assert not idle_after(7, [waiting]), "recovered rows wait"
    assert idle_after(8)
    figures.ended(failed=False, suspended=False)
    assert not figures.view().idle


def test_rows_that_were_recovered_and_not_read_are_in_flight_in_the_next_snapshot_too(tmp_path: Path) -> None:
    """A checkpoint only refers to them. After a rescale two subtasks refer to one section: its rows count once."""
    figures = QueryMetrics(tiny_graph(tmp_path, 2, Numbers(1000)), "q", "run", None)

    def taken(checkpoint: int, captured: int, *inflight: InflightEntry) -> SnapshotMetadata:
        metrics = [CaptureMetrics(1, 0, inflight_rows=captured)]
        slots = [SlotManifest(0, [SubtaskManifest(1, 0, inflight=[*inflight])], metrics)]
        return msgspec.structs.replace(snapshot(checkpoint, 500), slots=slots)

    def inflight_after(checkpoint: int, captured: int, *inflight: InflightEntry, read: Sequence[int] = ()) -> int:
        figures.triggered(checkpoint, "auto")
        for rows in read:
            figures.acknowledged(checkpoint, 0.0, rows)
        figures.complete(taken(checkpoint, captured, *inflight))
        progress = figures.committed(checkpoint)
        assert progress is not None
        assert progress.checkpoint is not None
        return progress.checkpoint.inflight_rows

    section = SectionRef("i", "data/1-3-0.arrows", 0, 8, "x")
    recovered = InflightEntry(1, 0, 0, 0, "consumer", 0, 700, 0, 127, section)
    own = InflightEntry(0, 0, 0, 0, "consumer", 0, 5, 0, 127, SectionRef("i", "data/2-4-0.arrows", 0, 8, "x"))
    assert inflight_after(1, 0) == 0
    assert inflight_after(2, 5, own) == 5
    figures.opened(2, taken(3, 0, recovered), 2, 700)
    assert inflight_after(4, 5, recovered, own) == 705
    figures.opened(3, restored := taken(4, 5, recovered, own), 2, 10**6)
    first, second = (
        msgspec.structs.replace(recovered, narrowed=True, row_start=start, rows=700 - start) for start in (0, 50)
    )
    assert inflight_after(5, 0, own, first, second) == 705, "what was captured before is recovered now"
    assert inflight_after(6, 0, own, first, second, read=(0, 30)) == 675, "one subtask has read 30 of its own rows"
    assert inflight_after(7, 0, own, first, read=(0, 400)) == 305, "and then all of its own"
    figures.opened(4, restored, 2, 10**6)
    figures.all_run()
    assert inflight_after(8, 0, read=(400, 305)) == 0


def test_durations_of_checkpoints_and_commits_are_counted_and_the_newest_epoch_is_kept(tmp_path: Path) -> None:
    clock = iter(range(100))
    figures = QueryMetrics(tiny_graph(tmp_path, 1, Numbers(1000)), "q", "run", None, clock=lambda: next(clock) / 2)
    assert figures.view().last_epoch is None
    figures.triggered(1, "auto")
    figures.complete(snapshot(1, 500))
    progress = figures.committed(1)
    view = figures.view()
    assert progress is not None
    assert view.last_epoch is progress
    assert progress.checkpoint is not None
    assert (progress.checkpoint.checkpoint, progress.checkpoint.state) == (1, CheckpointState.COMPLETE)
    assert (view.checkpoint_seconds.count, view.commit_seconds.count) == (1, 1)
    assert view.checkpoint_seconds.total == progress.checkpoint.duration_ms / 1000 > 0
    assert view.commit_seconds.total == progress.durations_ms["commit"] / 1000 > 0
    figures.committed(9)
    assert figures.view().commit_seconds.count == 1, "how long that took nobody knows"


def test_between_two_generations_of_a_rescale_nothing_runs(tmp_path: Path) -> None:
    figures = QueryMetrics(tiny_graph(tmp_path, 1, Numbers(1000)), "q", "run", None)
    figures.opened(1, None, 0, 0)
    figures.registered({0: Register(0, 1, "1.0", 42, "host", 1)})
    figures.slot_runs(0, 0)
    figures.all_run()
    assert (figures.view().state, figures.view().slots[0].running) == (ExecutionState.RUNNING, True)
    figures.left(tiny_graph(tmp_path, 3, Numbers(1000)))
    view = figures.view()
    assert (view.state, view.parallelism, view.slots, view.restarts) == (ExecutionState.STARTING, 3, (), ())


@pytest.mark.parametrize("suspended", [True, False])
def test_nothing_is_queued_without_slots(tmp_path: Path, suspended: bool) -> None:
    """Rows and times of the last Generation stay."""
    figures = QueryMetrics(tiny_graph(tmp_path, 1, Numbers(1000)), "q", "run", None)
    figures.metrics(
        SlotMetrics(
            0,
            [
                report(
                    rows_in=7,
                    rows_out=5,
                    busy_ms=1.0,
                    backpressured_ms=2.0,
                    idle_ms=3.0,
                    input_queued_bytes=400,
                    output_queued_bytes=30,
                    recovered_rows_left=6,
                )
            ],
        )
    )
    assert figures.view().inflight_bytes == 430
    figures.ended(failed=False, suspended=suspended)
    assert figures.view().inflight_bytes == 0
    (subtask,) = figures.view().subtasks
    assert subtask.metrics == report(rows_in=7, rows_out=5, busy_ms=1.0, backpressured_ms=2.0, idle_ms=3.0)


def test_slots_that_said_goodbye_do_not_run(tmp_path: Path) -> None:
    figures = QueryMetrics(tiny_graph(tmp_path, 2, Numbers(1000)), "q", "run", None)
    figures.registered({slot: Register(slot, 1, "1.0", 42, "host", 1) for slot in range(2)})
    for slot in range(2):
        figures.slot_runs(slot, 0)
    figures.slot_gone(1)
    assert [slot.running for slot in figures.view().slots] == [True, False]
    figures.ended(failed=False, suspended=False)
    figures.slot_gone(0)
    assert figures.view().slots == (), "a late goodbye brings none back"


def test_a_checkpoint_in_flight_says_who_asked_for_it(tmp_path: Path) -> None:
    figures = QueryMetrics(tiny_graph(tmp_path, 1, Numbers(1000)), "q", "run", None)
    figures.triggered(1, "auto")
    figures.triggered(2, "auto", SnapshotRequested(Alignment.AUTO, "mine", ticket=1))
    figures.triggered(3, "unaligned", SnapshotRequested(Alignment.UNALIGNED, kept=False, ticket=2))
    figures.aborted(2, "a slot declined", wrong=False)
    assert [(one.requested, one.label) for one in figures.view().checkpoints] == [
        (False, ""), (True, "mine"), (False, ""),
    ]  # fmt: skip


def test_an_acknowledgement_after_the_end_of_a_checkpoint_changes_nothing(tmp_path: Path) -> None:
    ended: list[CheckpointView] = []
    figures = QueryMetrics(tiny_graph(tmp_path, 2, Numbers(1000)), "q", "run", None, ended=ended.append)
    figures.triggered(1, "unaligned")
    figures.acknowledged(1)
    figures.aborted(1, "slot 1 declined", wrong=True)
    figures.acknowledged(1)
    assert [one.acknowledged for one in ended] == [1]
    assert figures.view().checkpoints == tuple(ended), "the history has what the driver shows"


@dataclass(frozen=True)
class OffsetNumbers(Numbers):
    """Numbers whose positions Spark would have a form for."""

    def offset_of(self, splits: Sequence[Split]) -> Plain:
        return {split.split_id: split.position["at"] for split in splits}


def test_a_source_tells_its_splits_offsets_and_how_far_behind_its_readers_are(tmp_path: Path) -> None:
    figures = QueryMetrics(tiny_graph(tmp_path, 1, OffsetNumbers(1000)), "q", "run", None)
    waits, reads = (Split(name, {}, {"at": at}) for name, at in (("a", 5), ("b", 7)))
    source = SourceManifest("numbers", 0, None, [waits])

    def commit(checkpoint: int, splits: list[Split], *behind: tuple[int, int, int, int]) -> SourceProgress:
        slot = SlotManifest(0, [SubtaskManifest(0, 0, splits=splits)])
        figures.triggered(checkpoint, "auto")
        figures.complete(msgspec.structs.replace(snapshot(checkpoint, 0), slots=[slot], sources=[source]))
        for index, said in enumerate(behind or [()]):
            backlog = Backlog(*said) if said else None
            figures.metrics(SlotMetrics(0, [report(index=index, backlog=backlog)]))
        progress = figures.committed(checkpoint)
        assert progress is not None
        return progress.sources[0]

    first = commit(1, [])
    assert (first.pending_splits, first.reading_splits, first.backlog) == (1, 0, None)
    assert (first.start_offset, first.end_offset) == (None, {"a": 5})
    second = commit(2, [reads], (9, 2, 7, 2), (8, 1, 4, 3))
    assert (second.pending_splits, second.reading_splits, second.backlog) == (1, 1, Backlog(17, 1, 7, 5))
    assert (second.start_offset, second.end_offset) == ({"a": 5}, {"a": 5, "b": 7})


def test_of_checkpoints_that_failed_those_are_errors_that_something_was_wrong_with(tmp_path: Path) -> None:
    figures = QueryMetrics(tiny_graph(tmp_path, 1, Numbers(1000)), "q", "run", None)
    for checkpoint, wrong in ((1, False), (2, True)):
        figures.triggered(checkpoint, "auto")
        figures.aborted(checkpoint, "why", wrong)
    view = figures.view()
    assert (view.checkpoints_failed, view.checkpoint_errors) == (2, 1)
    assert [one.reason for one in view.checkpoints] == ["why", "why"]


def test_what_a_checkpoint_wrote_of_state_is_told_with_the_operator(tmp_path: Path) -> None:
    figures = QueryMetrics(tiny_graph(tmp_path, 1, Numbers(1000)), "q", "run", None)
    captures = [CaptureMetrics(1, index, 0, 0, 2, 10, 0, 0, 0, 100, 900, {"count": 4}) for index in (0, 1)]
    counters = {"state_bytes": 70, "rows_dropped_late": 3, "rows_dropped_duplicate": 2}
    figures.metrics(SlotMetrics(0, [report(vertex=1, counters=counters)]))
    taken = snapshot(1, 0)
    figures.complete(msgspec.structs.replace(taken, slots=[SlotManifest(0, taken.slots[0].subtasks, captures)]))
    progress = figures.committed(1)
    assert progress is not None
    assert progress.states == (StateProgress("count", "RunningCount", 8, 3, 70, 1, 2, 200, 1_800, 24),)
    again = figures.committed(2)
    assert again is not None
    [state] = again.states
    assert (state.rows_dropped_late, state.rows_dropped_duplicate) == (0, 0), "told once"


class Clock:
    """Seconds, as the test says."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def moved(rows: int) -> SlotMetrics:
    return SlotMetrics(0, [report(rows_in=rows, rows_out=rows)])


def test_a_view_is_the_same_object_while_nothing_changes(tmp_path: Path) -> None:
    clock = Clock()
    figures = QueryMetrics(tiny_graph(tmp_path, 1, Numbers(1000)), "q", "run", None, clock=clock)
    first = figures.view()
    clock.now += 10
    figures.turned(False)  # as before
    assert figures.view() is first
    figures.metrics(moved(1))
    assert figures.view() is not first
    assert [subtask.metrics.rows_in for subtask in figures.view().subtasks] == [1]


def test_what_subtasks_say_and_checkpoints_under_way_may_be_told_later_but_not_what_became_of_them(
    tmp_path: Path,
) -> None:
    clock = Clock()
    figures = QueryMetrics(tiny_graph(tmp_path, 1, Numbers(1000)), "q", "run", None, clock=clock)
    before = figures.view(0.1)
    clock.now += 50
    figures.metrics(moved(1))
    figures.triggered(1, "auto")
    figures.turned(True)
    clock.now += 0.05
    figures.metrics(moved(2))
    clock.now += 0.04
    assert figures.view(0.1) is before, "however long it had been true"
    clock.now += 0.02
    pending = figures.view(0.1)
    assert ([c.state for c in pending.checkpoints], pending.sources_idle) == ([CheckpointState.PENDING], True)
    assert pending.checkpoints[0].duration_ms == pytest.approx(110)
    clock.now += 0.09
    assert figures.view(0.1) is pending
    clock.now += 0.02
    assert figures.view(0.1).checkpoints[0].duration_ms == pytest.approx(220), "it grows older without any news"
    figures.complete(snapshot(1, 500))
    assert figures.view(0.1).checkpoints[0].state is CheckpointState.COMPLETE
    figures.committed(1)
    assert figures.view(0.1).committed_epoch == 1
    figures.failed(1, "lost")
    assert figures.view(0.1).state is ExecutionState.RESTARTING
    assert figures.view() is figures.view(0.1)


@pytest.mark.parametrize(("channels", "right"), [({"0:0": 7, "0:1": 5}, 5), ({"0:1": 5}, None), ({}, None)])
def test_the_watermark_shown_is_the_one_that_windows_wait_for(
    tmp_path: Path, channels: dict[str, int], right: int | None
) -> None:
    """A channel without a watermark holds all others."""
    figures = QueryMetrics(tiny_graph(tmp_path, 2, Numbers(1000)), "q", "run", None)
    subtasks = [SubtaskManifest(1, 0, channel_watermarks={"0:0": 9, "0:1": 9}), SubtaskManifest(1, 1)]
    subtasks[1] = msgspec.structs.replace(subtasks[1], channel_watermarks=channels)
    slots = [SlotManifest(index, [subtask]) for index, subtask in enumerate(subtasks)]
    figures.triggered(1, "auto")
    figures.complete(msgspec.structs.replace(snapshot(1, 5), slots=slots, parallelism=2))
    progress = figures.committed(1)
    assert progress is not None
    assert progress.watermark_us == right


@pytest.mark.parametrize(
    ("kinds", "channels", "right"),
    [
        ((EdgeKind.FORWARD,), {"0:0": 5}, 5),  # subtask i has one channel, from subtask i
        ((EdgeKind.HASH, EdgeKind.HASH), {"0:0": 7, "0:1": 7, "1:0": 3, "1:1": 3}, 7),  # edge 1 has no event time
    ],
)
def test_the_watermark_shown_is_of_the_channels_with_event_time(
    tmp_path: Path, kinds: tuple[EdgeKind, ...], channels: dict[str, int], right: int
) -> None:
    graph = tiny_graph(tmp_path, 2, Numbers(1000))
    edges = tuple(Edge(number, 0, 1, kind, ROWS, (0,), timed=number == 0) for number, kind in enumerate(kinds))
    assert shown(replace(graph, edges=edges), channels) == right


@pytest.mark.parametrize(("reached", "right"), [((7, 5), 5), ((7, None), None)])
def test_without_such_channels_it_is_the_least_of_the_readers(
    tmp_path: Path, reached: tuple[int | None, ...], right: int | None
) -> None:
    graph = tiny_graph(tmp_path, 2, Numbers(1000))
    watermark = WatermarkSpec(operator_id="watermark-0", name="w", output_schema=ROWS, column=0, delay_us=0)
    vertices = (replace(graph.vertices[0], operators=(watermark,)), graph.vertices[1])
    edges = (replace(graph.edges[0], timed=False),)
    assert shown(replace(graph, vertices=vertices, edges=edges), {}, reached) == right


def shown(graph: JobGraph, channels: dict[str, int], reached: tuple[int | None, ...] = ()) -> int | None:
    """The watermark of an epoch whose subtasks of vertex 1 had processed these watermarks, by channel.

    Args:
        reached: watermarks of the readers, in order.
    """
    figures = QueryMetrics(graph, "q", "run", None)
    for index, us in enumerate(reached):
        figures.metrics(SlotMetrics(index, [report(index=index, rows_in=1, rows_out=1, watermark_us=us)]))
    slots = [SlotManifest(index, [SubtaskManifest(1, index, channel_watermarks=channels)]) for index in range(2)]
    figures.triggered(1, "auto")
    figures.complete(msgspec.structs.replace(snapshot(1, 5), slots=slots, parallelism=2))
    progress = figures.committed(1)
    assert progress is not None
    return progress.watermark_us


@pytest.mark.parametrize(("reached", "least"), [((7, 5), 5), ((7, None), None)])
@pytest.mark.parametrize("generates", [True, False])
def test_a_source_tells_how_far_its_slowest_reader_is_if_a_watermark_is_generated_behind_it(
    tmp_path: Path, reached: tuple[int | None, ...], least: int | None, generates: bool
) -> None:
    graph = tiny_graph(tmp_path, 2, Numbers(1000))
    watermark = WatermarkSpec(operator_id="watermark-0", name="w", output_schema=ROWS, column=0, delay_us=0)
    source = replace(graph.vertices[0], operators=(watermark,) if generates else ())
    figures = QueryMetrics(replace(graph, vertices=(source, graph.vertices[1])), "q", "run", None)
    for index, us in enumerate(reached):
        metrics = report(index=index, rows_in=1, rows_out=1, watermark_us=us if generates else None)
        figures.metrics(SlotMetrics(index, [metrics]))
    figures.triggered(1, "auto")
    figures.complete(msgspec.structs.replace(snapshot(1, 5), parallelism=2))
    progress = figures.committed(1)
    assert progress is not None
    [told] = progress.sources
    assert (told.has_event_time, told.watermark_us) == (generates, least if generates else None)


def test_a_view_names_the_snapshots_that_checkpoints_in_flight_need_until_the_query_ends(tmp_path: Path) -> None:
    figures = QueryMetrics(tiny_graph(tmp_path, 1, Numbers(1000)), "q", "run", None)
    figures.turned(False, (2, 3))
    assert figures.view(3600.0).pinned == (2, 3)
    figures.turned(False, (3,))
    assert figures.view(3600.0).pinned == (3,)
    figures.ended(failed=False, suspended=False)
    assert figures.view(3600.0).pinned == ()


def test_a_query_that_recovers_says_that_it_waits_for_slots(tmp_path: Path) -> None:
    figures = QueryMetrics(tiny_graph(tmp_path, 2, Numbers(1000)), "q", "run", None)
    query = SimpleNamespace(_execution=SimpleNamespace(error=None))

    def message() -> str:
        return str(StreamingQuery._status(query, figures.view())["message"])  # type: ignore[arg-type]

    figures.failed(1, "slot 0 was lost")
    figures.opened(2, None, 0, 0)
    assert message() == "Recovering as generation 2, waiting for slots (2 needed)"
    figures.registered({slot: Register(slot, 1, "1.0", 42, "host", 1) for slot in range(2)})
    assert message() == "Recovering as generation 2"
