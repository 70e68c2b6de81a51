"""A snapshot of one plan restored into another: what moves, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pyarrow as pa
import pytest

from penstock.errors import PlanChanged
from penstock.model.job_graph import Edge, EdgeKind, JobGraph, SinkSpec, SourceSpec, Vertex
from penstock.model.manifest import (
    InflightEntry,
    ScalarShare,
    SectionRef,
    SlotManifest,
    SnapshotMetadata,
    SourceManifest,
    StateEntry,
    SubtaskManifest,
)
from penstock.model.splits import Split
from penstock.snapshots.catalog import plan_restore
from penstock.snapshots.format.plan import differences, plan_of
from penstock.snapshots.rescaling.relocate import relocate
from penstock.snapshots.rescaling.rescale import rescale
from tests.support.snapshots.snapshot_kit import COUNT, ROWS, SINK, SOURCE, STATE, CountSpec, NoSink, NoSource, graph

SECTION = SectionRef("data/1-1-0.arrows", 0, 10, "g1/c1/x", "00")
EXCHANGE = "exchange-0"


def single() -> JobGraph:
    """source -> hash -> count and sink, the exchange with an id of its own."""
    base = graph()
    return replace(base, edges=(replace(base.edges[0], exchange_id=EXCHANGE),))


def with_output() -> JobGraph:
    """The same as a fork's second branch: source -> forward -> other sink; -> forward -> hash -> count and sink."""
    counted = single()
    vertices = (
        Vertex(0, "source", SourceSpec(SOURCE, "NoSource", NoSource()), (), None),
        Vertex(1, "other", None, (CountSpec("filter-1", "Filter", states={}),), SinkSpec("sink-2", "New", NoSink())),
        Vertex(2, "before", None, (), None),
        replace(counted.vertices[1], id=3),
    )
    edges = (
        Edge(0, 0, 1, EdgeKind.FORWARD, ROWS, exchange_id="forward-0"),
        Edge(1, 0, 2, EdgeKind.FORWARD, ROWS, exchange_id="forward-1"),
        Edge(2, 2, 3, EdgeKind.HASH, ROWS, (0,), exchange_id=EXCHANGE),
    )
    return JobGraph(vertices, edges, 2, 128)


def entry(
    edge: int, producer: int, consumer: int, side: str = "producer", layer: int = 1, rows: int = 5
) -> InflightEntry:
    return InflightEntry(layer, edge, producer, consumer, side, 0, rows, 0, 127, SECTION)


def taken(by: JobGraph, counts: int, *inflight: InflightEntry, of: str = COUNT) -> SnapshotMetadata:
    """A snapshot by a plan whose count is in vertex ``counts``: state, splits, messages, watermarks, rows in flight.
    ``of``: the operator that has scalars."""
    slots = []
    for index in range(2):
        state = StateEntry(COUNT, "counts", "base", 3 + index, 0, 127, SECTION)
        split = Split(f"s{index}", {"n": index}, {"at": 7})
        own = {
            0: SubtaskManifest(0, index, splits=[split], rows_in=40 + index),
            counts: SubtaskManifest(
                counts,
                index,
                states=[state],
                scalars={of: {"x": index}},
                channel_watermarks={f"{by.inputs(counts)[0].id}:{p}": 100 + p for p in range(2)},
                pending_messages={1: b"old", 2: b"new"},
                inflight=[one for one in inflight if one.producer == index],
            ),
        }
        subtasks = [own.get(vertex.id, SubtaskManifest(vertex.id, index)) for vertex in by.vertices]
        slots.append(SlotManifest(index, subtasks))
    sources = [SourceManifest(SOURCE, 0, {"seen": 3}, [])]
    return SnapshotMetadata(1, "chk-2", "q", 1, 2, "auto", False, "", 0, 2, 128, slots, sources, plan_of(by))


def test_the_same_plan_changes_nothing() -> None:
    metadata = taken(single(), 1)
    assert relocate(metadata, single(), 0) is metadata
    assert relocate(msgspec.structs.replace(metadata, plan=None), with_output(), 0).slots == metadata.slots


def test_everything_goes_where_its_operator_and_exchange_are_now() -> None:
    inflight = [entry(0, 0, 1), entry(0, 1, 1, "consumer"), entry(0, 1, 0, layer=0)]
    moved = relocate(taken(single(), 1, *inflight), with_output(), 1)
    plan = plan_restore(moved, with_output(), committed_epoch=1)
    for index, slot in enumerate(plan):
        source, other, before, counts = slot
        assert [manifest.vertex for manifest in slot] == [0, 1, 2, 3]
        assert [split.split_id for split in source.splits] == [f"s{index}"]
        assert source.rows_in == 40 + index
        assert other == SubtaskManifest(1, index)
        assert before == SubtaskManifest(2, index)
        assert [(s.operator_id, s.rows) for s in counts.states] == [(COUNT, 3 + index)]
        assert counts.scalars == {COUNT: {"x": index}}
        assert counts.channel_watermarks == {"2:0": 100, "2:1": 100}
        assert counts.pending_messages == {2: b"new"}
    assert [(e.edge, e.producer, e.side) for e in plan[1][3].inflight] == [(2, 1, "consumer"), (2, 0, "producer")]
    assert [(e.edge, e.producer, e.layer) for e in plan[0][3].inflight] == [(2, 1, 0)]
    assert moved.sources == [SourceManifest(SOURCE, 0, {"seen": 3}, [])]
    assert moved.plan == plan_of(with_output())


def test_an_output_goes_if_nothing_of_it_is_left() -> None:
    metadata = taken(with_output(), 3)
    back = relocate(metadata, single(), 2)
    assert [m.vertex for slot in back.slots for m in slot.subtasks] == [0, 1, 0, 1]
    assert back.slots[0].subtasks[1].channel_watermarks == {"0:0": 100, "0:1": 100}


def at_watermarks(by: JobGraph, vertex: int, *channels: dict[str, int]) -> SnapshotMetadata:
    """A snapshot that has nothing but these watermarks of the subtasks of a vertex."""
    stood = {index: SubtaskManifest(vertex, index, channel_watermarks=us) for index, us in enumerate(channels)}
    slots = [
        SlotManifest(i, [stood[i] if v.id == vertex else SubtaskManifest(v.id, i) for v in by.vertices])
        for i in range(2)
    ]
    return SnapshotMetadata(1, "chk-2", "q", 1, 2, "auto", False, "", 0, 2, 128, slots, [], plan_of(by))


def repartitioned() -> JobGraph:
    """The same as ``with_output``, but any row may come to any subtask of ``before``."""
    base = with_output()
    return replace(base, edges=(base.edges[0], replace(base.edges[1], kind=EdgeKind.REBALANCE), base.edges[2]))


def test_after_an_edit_an_exchange_stands_where_its_last_channel_stood() -> None:
    """A producer may get rows from now on that went to another one before."""
    keyed = relocate(at_watermarks(with_output(), 3, {"2:0": 7, "2:1": 9}, {"2:0": 8, "2:1": 6}), repartitioned(), 2)
    assert [slot.subtasks[3].channel_watermarks for slot in keyed.slots] == [{"2:0": 6, "2:1": 6}] * 2
    forward = at_watermarks(with_output(), 2, {"1:0": 5}, {"1:1": 9})
    anew = relocate(forward, repartitioned(), 2)
    assert [slot.subtasks[2].channel_watermarks for slot in anew.slots] == [{"1:0": 5, "1:1": 5}] * 2
    back = relocate(at_watermarks(repartitioned(), 2, {"1:0": 5, "1:1": 9}, {"1:0": 4, "1:1": 9}), with_output(), 2)
    assert [slot.subtasks[2].channel_watermarks for slot in back.slots] == [{"1:0": 4}, {"1:1": 4}]


def test_after_an_edit_an_exchange_stands_nowhere_if_one_of_its_channels_did() -> None:
    moved = relocate(at_watermarks(with_output(), 3, {"2:0": 7, "2:1": 9}, {"2:1": 6}), repartitioned(), 2)
    assert [slot.subtasks[3].channel_watermarks for slot in moved.slots] == [{}, {}]


def test_an_output_with_staged_rows_stays_until_they_are_committed() -> None:
    metadata = taken(with_output(), 3)
    staged = msgspec.structs.replace(metadata.slots[1].subtasks[1], pending_messages={2: b"rows"})
    slots = [
        metadata.slots[0],
        SlotManifest(1, [metadata.slots[1].subtasks[0], staged, *metadata.slots[1].subtasks[2:]]),
    ]
    metadata = msgspec.structs.replace(metadata, slots=slots)
    with pytest.raises(PlanChanged, match=r"output sink-2 \(New\) has rows that are staged and not committed"):
        relocate(metadata, single(), 1)
    assert relocate(metadata, single(), 2).slots, "committed by now"


def test_rows_in_flight_are_lost_with_nobody() -> None:
    with pytest.raises(
        PlanChanged, match=r"forward-1, which has 5 rows in flight: stored forward, now absent"
    ) as caught:
        relocate(taken(with_output(), 3, entry(1, 0, 0)), single(), 2)
    assert "startMode=drain" in str(caught.value)
    changed = single()
    changed = replace(changed, edges=(replace(changed.edges[0], kind=EdgeKind.BROADCAST, key_columns=()),))
    with pytest.raises(PlanChanged, match=r"exchange-0, which has 10 rows in flight, kind: stored hash, now broadcast"):
        relocate(taken(single(), 1, entry(0, 0, 0), entry(0, 1, 0)), changed, 2)
    assert relocate(taken(single(), 1), changed, 2).slots, "with nothing in flight an exchange may change"


def stateless(kind: EdgeKind, *keys: int) -> JobGraph:
    """source -> an exchange -> sink."""
    [edge] = single().edges
    sink = replace(single().vertices[1], operators=(CountSpec("filter-0", "Filter", states={}),))
    edges = (replace(edge, kind=kind, key_columns=keys),)
    return replace(single(), vertices=(single().vertices[0], sink), edges=edges)


def held_by(metadata: SnapshotMetadata) -> list[list[tuple[int, int, int, int, bool]]]:
    """Return, for each consumer, the start of its entries, their rows, the key groups, and if they are narrowed."""
    return [
        [(e.row_start, e.rows, e.key_group_first, e.key_group_last, e.narrowed) for e in slot.subtasks[1].inflight]
        for slot in metadata.slots
    ]


def test_rows_in_flight_find_the_owners_of_their_new_keys() -> None:
    rows = entry(0, 0, 1), entry(0, 1, 0, rows=3)
    before = taken(stateless(EdgeKind.HASH, 0), 1, *rows, of="filter-0")
    for old in (before, taken(stateless(EdgeKind.REBALANCE), 1, *rows, of="filter-0")):
        moved = rescale(relocate(old, stateless(EdgeKind.HASH, 1), 2), stateless(EdgeKind.HASH, 1))
        assert held_by(moved) == [
            [(0, 3, 0, 63, True), (0, 5, 0, 63, True)],
            [(0, 3, 64, 127, True), (0, 5, 64, 127, True)],
        ]
        assert [slot.subtasks[1].channel_watermarks for slot in moved.slots] == [{"0:0": 100, "0:1": 100}] * 2
        assert plan_restore(moved, stateless(EdgeKind.HASH, 1), committed_epoch=2)
        assert [slot.subtasks[1].shares for slot in moved.slots] == [
            [ScalarShare(index, 0, 127, {"filter-0": {"x": index}}) for index in range(2)]
        ] * 2
    stays = relocate(before, stateless(EdgeKind.REBALANCE), 2)
    assert rescale(stays, stateless(EdgeKind.REBALANCE)) is stays
    assert held_by(stays) == [[(0, 3, 0, 127, False)], [(0, 5, 0, 127, False)]]


def test_an_exchange_with_other_keys_between_other_operators_is_another_one() -> None:
    other = stateless(EdgeKind.HASH, 1)
    filters = (CountSpec("filter-1", "Filter", states={}), *other.vertices[1].operators)
    other = replace(other, vertices=(other.vertices[0], replace(other.vertices[1], operators=filters)))
    with pytest.raises(PlanChanged, match=r"exchange-0, which has 5 rows in flight, keys: stored \(key\), now"):
        relocate(taken(stateless(EdgeKind.HASH, 0), 1, entry(0, 0, 1)), other, 2)


def test_only_the_old_keys_tell_which_rows_of_a_narrowed_entry_are_meant() -> None:
    narrowed = msgspec.structs.replace(entry(0, 0, 1), narrowed=True)
    with pytest.raises(PlanChanged, match=r"exchange-0, which has 5 rows in flight, keys: stored \(key\), now"):
        relocate(taken(stateless(EdgeKind.HASH, 0), 1, narrowed), stateless(EdgeKind.HASH, 1), 2)
    fewer = stateless(EdgeKind.HASH, 0)
    fewer = replace(fewer, vertices=(fewer.vertices[0], replace(fewer.vertices[1], operators=())))
    moved = relocate(taken(stateless(EdgeKind.HASH, 0), 1, narrowed), fewer, 2)
    assert held_by(moved) == [[], [(0, 5, 0, 127, True)]]


def test_rows_in_flight_lose_columns_and_gain_none() -> None:
    """And they are found by name and type, wherever they are."""
    wide = pa.schema([*ROWS, ("more", pa.string())])
    turned = pa.schema(reversed(list(wide)))

    def over(schema: pa.Schema) -> JobGraph:
        [edge] = single().edges
        return replace(
            single(), edges=(replace(edge, schema=schema, key_columns=(schema.names.index(ROWS.names[0]),)),)
        )

    held = entry(0, 1, 0)
    for before, after in ((wide, ROWS), (wide, turned)):
        [moved] = relocate(taken(over(before), 1, held), over(after), 2).slots[0].subtasks[1].inflight
        assert moved.section == held.section
    other = pa.schema([*ROWS, ("more", pa.int64())])
    twice = pa.schema([*wide, ("more", pa.string())])
    for before, after in ((ROWS, wide), (wide, other), (twice, wide)):
        with pytest.raises(PlanChanged, match="exchange-0, which has 5 rows in flight, schema: stored"):
            relocate(taken(over(before), 1, held), over(after), 2)


def test_what_keeps_no_state_comes_and_goes() -> None:
    more = replace(single().vertices[1], operators=(CountSpec("filter-0", "Filter", states={}), CountSpec()))
    edited = replace(single(), vertices=(single().vertices[0], more))
    assert differences(plan_of(single()), plan_of(edited)) == []
    assert differences(plan_of(edited), plan_of(single())) == []


def test_a_new_state_begins_with_a_new_output_only() -> None:
    summed = CountSpec("sum-1", "Sum", states={"sums": STATE.append(pa.field("sum", pa.int64()))})
    old_output = replace(single().vertices[1], operators=(CountSpec(), summed))
    edited = replace(single(), vertices=(single().vertices[0], old_output))
    assert differences(plan_of(single()), plan_of(edited)) == [("operator sum-1", "absent", "Sum")]
    new_output = replace(with_output().vertices[1], operators=(summed,))
    edited = replace(with_output(), vertices=(with_output().vertices[0], new_output, *with_output().vertices[2:]))
    assert differences(plan_of(single()), plan_of(edited)) == []
    assert differences(plan_of(edited), plan_of(single())) == [("operator sum-1", "Sum", "absent")]


def test_a_source_is_state_and_a_sink_is_not_an_operator() -> None:
    other = replace(single().vertices[0], source=SourceSpec("other", "NoSource", NoSource()))
    edited = replace(single(), vertices=(other, single().vertices[1]))
    changed = differences(plan_of(single()), plan_of(edited))
    assert [line.what for line in changed] == [f"operator {SOURCE}", "operator other"]
    swapped = replace(single().vertices[1], operators=(CountSpec(SINK, states={}),), sink=None)
    edited = replace(single(), vertices=(single().vertices[0], swapped))
    assert (f"operator {SINK}", "sink", "operator") in differences(plan_of(single()), plan_of(edited))


def counting(**types: pa.DataType) -> JobGraph:
    """Its state has these columns; "key" is what its exchange spreads by."""
    schema = pa.schema([STATE.field(0), *types.items()])
    [edge] = single().edges
    rows = pa.schema([("key", types["key"]), ("value", pa.string())])
    job = replace(single(), edges=(replace(edge, schema=rows),))
    return replace(
        job, vertices=(job.vertices[0], replace(job.vertices[1], operators=(CountSpec(states={"c": schema}),)))
    )


LONG, INT, DOUBLE = pa.int64(), pa.int32(), pa.float64()


@pytest.mark.parametrize(
    ("stored", "new", "fits"),
    [
        (INT, LONG, True),
        (LONG, INT, False),
        (pa.int8(), pa.int16(), True),
        (pa.float32(), DOUBLE, True),
        (INT, DOUBLE, False),
        (pa.decimal128(10, 2), pa.decimal128(12, 2), True),
        (pa.decimal128(10, 2), pa.decimal128(12, 4), True),
        (pa.decimal128(10, 2), pa.decimal128(12, 5), False),
        (pa.decimal128(10, 2), pa.decimal128(10, 1), False),
        (pa.string(), pa.binary(), False),
        (INT, pa.string(), False),
    ],
)
def test_a_value_of_a_state_may_become_wider_and_nothing_else(
    stored: pa.DataType, new: pa.DataType, fits: bool
) -> None:
    changed = differences(plan_of(counting(key=LONG, n=stored)), plan_of(counting(key=LONG, n=new)))
    assert [line.what for line in changed] == ([] if fits else [f"state of {COUNT}, c"])


def test_a_key_may_not_become_wider_for_its_hash_would_be_another() -> None:
    changed = differences(plan_of(counting(key=INT, n=LONG)), plan_of(counting(key=LONG, n=LONG)))
    assert [line.what for line in changed] == [f"state of {COUNT}, c"]
    before, after = (counting(key=kind, n=LONG) for kind in (INT, LONG))
    after = replace(after, vertices=(after.vertices[0], before.vertices[1]))
    with pytest.raises(PlanChanged, match="exchange-0, which has 5 rows in flight, schema: stored"):
        relocate(taken(before, 1, entry(0, 1, 0)), after, 2)


def test_a_state_neither_gains_nor_loses_a_column() -> None:
    small, large = counting(key=LONG, n=LONG), counting(key=LONG, n=LONG, more=LONG)
    for before, after in ((small, large), (large, small)):
        assert [line.what for line in differences(plan_of(before), plan_of(after))] == [f"state of {COUNT}, c"]


def test_rows_in_flight_become_wider() -> None:
    def over(kind: pa.DataType) -> JobGraph:
        [edge] = single().edges
        return replace(single(), edges=(replace(edge, schema=pa.schema([*ROWS, ("n", kind)])),))

    held = entry(0, 1, 0)
    [moved] = relocate(taken(over(INT), 1, held), over(LONG), 2).slots[0].subtasks[1].inflight
    assert moved.section == held.section
    with pytest.raises(PlanChanged, match="which has 5 rows in flight, schema: stored"):
        relocate(taken(over(LONG), 1, held), over(INT), 2)


def test_the_state_of_an_operator_that_is_gone_is_given_up_only_if_that_is_allowed() -> None:
    stateless = replace(single().vertices[1], operators=(CountSpec("filter-0", "Filter", states={}),))
    without = replace(single(), vertices=(single().vertices[0], stateless))
    metadata = taken(single(), 1)
    with pytest.raises(PlanChanged, match=rf"operator {COUNT}: stored Count, now absent\n.*allowDroppedState=true"):
        relocate(metadata, without, 2)
    moved = relocate(metadata, without, 2, allow_dropped=True)
    assert all(not m.states and not m.scalars for slot in moved.slots for m in slot.subtasks)
    assert moved.slots[0].subtasks[0].splits == metadata.slots[0].subtasks[0].splits


def test_a_source_is_not_given_up_even_then() -> None:
    other = replace(single().vertices[0], source=SourceSpec("other", "NoSource", NoSource()))
    edited = replace(single(), vertices=(other, single().vertices[1]))
    with pytest.raises(PlanChanged, match=f"operator {SOURCE}: stored NoSource, now absent"):
        relocate(taken(single(), 1), edited, 2, allow_dropped=True)


def test_another_plan_at_another_parallelism_is_moved_and_then_rescaled() -> None:
    plan = plan_restore(relocate(taken(single(), 1), with_output(), 1), replace(with_output(), parallelism=3))
    assert [[m.vertex for m in slot] for slot in plan] == [[0, 1, 2, 3]] * 3
    states = [[(s.rows, s.key_group_first, s.key_group_last) for s in slot[3].states] for slot in plan]
    assert states == [[(3, 0, 42)], [(3, 43, 63), (4, 64, 85)], [(4, 86, 127)]]


class Keeper(NoSource):
    """Source that stages its input at the location, like sources that Spark reads."""

    keeps_files = True

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema


def reading(schema: pa.Schema) -> JobGraph:
    base = single()
    return replace(
        base, vertices=(Vertex(0, "source", SourceSpec(SOURCE, "K", Keeper(schema)), (), None), *base.vertices[1:])
    )


@pytest.mark.parametrize("place", ["a reader", "the driver", "nowhere"])
def test_staged_input_is_read_with_the_columns_that_it_was_staged_with(place: str) -> None:
    narrow, wide = reading(ROWS), reading(ROWS.append(pa.field("more", pa.int64())))
    metadata = msgspec.structs.replace(taken(narrow, 1), plan=plan_of(narrow))
    if place != "a reader":
        slots = [
            SlotManifest(slot.slot, [msgspec.structs.replace(one, splits=[]) for one in slot.subtasks])
            for slot in metadata.slots
        ]
        waiting = [Split("0/0", {"path": "lane/x"})] if place == "the driver" else []
        sources = [msgspec.structs.replace(one, pending=waiting) for one in metadata.sources]
        metadata = msgspec.structs.replace(metadata, slots=slots, sources=sources)
    if place == "nowhere":
        assert relocate(metadata, wide, 9).plan == plan_of(wide)
    else:
        with pytest.raises(PlanChanged, match=r"which has staged rows that are not read yet.*more int64"):
            relocate(metadata, wide, 9)
    assert relocate(msgspec.structs.replace(metadata, plan=plan_of(wide)), narrow, 9).plan == plan_of(narrow)
