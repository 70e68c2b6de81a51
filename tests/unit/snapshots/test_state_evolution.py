"""A processor that declares other state than a snapshot has: what goes on, what is refused, what readers make of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.api.start_from import restored_operators
from penstock.errors import NotSupported, PlanChanged
from penstock.model.manifest import SlotManifest, SnapshotMetadata
from penstock.operators.base import OperatorContext, RestoredState, ScalarPart
from penstock.operators.stateful.variables import TimeMode
from penstock.snapshots.commands.comparing import compare_snapshots
from penstock.snapshots.commands.opened_location import open_location_to_read
from penstock.snapshots.commands.rolling_back import Output, roll_back
from penstock.snapshots.commands.showing import show_snapshot
from penstock.snapshots.commands.verifying import verify_location
from penstock.snapshots.fork import Origin
from penstock.snapshots.format.plan import differences, plan_of
from penstock.snapshots.format.sections import read_section
from penstock.snapshots.portable.convert import convert_snapshot
from penstock.snapshots.portable.export import export_snapshot
from penstock.snapshots.rescaling.relocate import relocate
from penstock.snapshots.restoring.restore import read_schemas
from penstock.snapshots.store.store_access import parse_access
from penstock.snapshots.writing.state_index import DELTA
from penstock.state.memory_table import MemoryBackend
from tests.support.snapshots.evolution_kit import GROUPS, STATEFUL, Keeper, Run, job_of, spec_of
from tests.support.snapshots.snapshot_kit import ROWS

KEYS = range(300)
SOME = range(0, 300, 7)
FIRST = {"total": "value n int", "seen": "list n long", "by": "map k text -> n long"}
SECOND = {
    "total": "value s text, n long",
    "seen": "list n long, s text",
    "by": "map k text -> s text, n long",
    "late": "value n long",
}

Begin = Callable[..., Run]


@pytest.fixture
def begin(tmp_path: Path) -> Any:
    """Start at the location; what ran before is cut off."""
    runs: list[Run] = []

    def started(*arguments: Any, location: str = "location", **options: Any) -> Run:
        for run in runs:
            run.close()
        runs.clear()
        runs.append(Run(tmp_path / location, *arguments, **options))
        return runs[0]

    yield started
    for run in runs:
        run.close()


def first_run(begin: Begin, **options: Any) -> tuple[Run, SnapshotMetadata]:
    """All keys have state, some of it in a delta."""
    run = begin(FIRST, **options)
    run.do(["update", "total", 1], ["append", "seen", 1], ["put", "by", "a", 1], keys=KEYS)
    run.snapshot()
    run.do(["update", "total", 2], ["append", "seen", 2], ["put", "by", "a", 2], keys=SOME)
    return run, run.snapshot()


def written(run: Run, metadata: SnapshotMetadata, table: str) -> set[tuple[str, ...]]:
    """The columns of the value in the sections of a table."""
    own = {entry.section: None for entry in run.entries(metadata, table)}
    names = (batch.schema.names for section in own for batch in read_section(run.store, section))
    return {tuple(name for name in some if name in ("n", "s", "r")) for some in names}


@pytest.mark.parametrize(("one", "other"), [("memory", "rocksdb"), ("rocksdb", "memory")])
def test_what_is_new_is_null_in_what_there_is(begin: Begin, tmp_path: Path, one: str, other: str) -> None:
    _, before = first_run(begin, backend=one)
    begin(SECOND, backend=other)  # killed at once
    run = begin(SECOND, backend=other, parallelism=2)
    get = [["get", name] for name in SECOND]
    old, changed = range(0, 300, 5), range(0, 300, 11)
    said = run.do(*get, keys=old)
    for key in old:
        n = [1, 2] if key in SOME else [1]
        assert said[key] == [[None, n[-1]], [[i, None] for i in n], [[["a"], [None, n[-1]]]], None]
    run.do(["update", "total", "x", 1 << 40], ["append", "seen", 3, "y"], ["update", "late", 5], keys=changed)
    chain = run.snapshot()
    assert written(run, chain, "total") == {("n",), ("s", "n")}
    assert any(entry.kind == DELTA for entry in run.entries(chain, "total"))
    check_readers(run, chain, before, changed, tmp_path)

    again = begin(SECOND, backend=one)
    said = again.do(*get, keys=KEYS)
    for key in KEYS:
        n = [1, 2] if key in SOME else [1]
        total = ["x", 1 << 40] if key in changed else [None, n[-1]]
        seen = [[i, None] for i in n] + ([[3, "y"]] if key in changed else [])
        assert said[key] == [total, seen, [[["a"], [None, n[-1]]]], [5] if key in changed else None]
    again.do(["update", "total", "z", 0], keys=range(3))
    assert [row["n"] for row in again.stored(again.snapshot(), "total")][:4] == [0, 0, 0, 1]


def check_readers(run: Run, chain: SnapshotMetadata, before: SnapshotMetadata, changed: range, tmp_path: Path) -> None:
    """Everything that reads a snapshot without a query sees one table."""
    expected = [
        {"key": key, "s": "x" if key in changed else None, "n": 1 << 40 if key in changed else 2 if key in SOME else 1}
        for key in KEYS
    ]
    assert run.stored(chain, "total") == expected
    assert [row["s"] for row in run.stored(chain, "by")] == [None] * len(KEYS), "none of its sections has the column"
    export_snapshot(str(tmp_path / "location"), chain.id, tmp_path / "portable")
    parts = pq.read_table(tmp_path / "portable" / "state" / STATEFUL / "total")
    assert sorted(parts.drop_columns(["__key_group"]).to_pylist(), key=lambda row: row["key"]) == expected
    opened = open_location_to_read(str(tmp_path / "location"))
    records = [opened.record(metadata.id) for metadata in (before, chain)]
    found = {one.table: one for one in compare_snapshots(opened, records[0], records[1]).tables}
    assert [one.problem for one in found.values()] == [""] * len(found)
    new = len(changed)
    told = {name: (one.added, one.changed, one.removed) for name, one in found.items()}
    assert told == {
        "total": (0, new, 0),
        "seen": (new, 0, 0),
        "by": (0, 0, 0),
        "late": (new, 0, 0),
        "__waiting": (0, 0, 0),
    }
    shown = show_snapshot(opened, records[1], 0, count_rows=True)
    rows = {table.name: table.rows for operator in shown.operators for table in operator.tables}
    assert (rows["total"], rows["late"]) == (len(KEYS), new)
    assert not verify_location(str(tmp_path / "location")).damage
    assert run.entries(before, "total") != run.entries(chain, "total")


def test_a_struct_in_a_value_gets_a_field(begin: Begin, tmp_path: Path) -> None:
    run = begin({"of": "value p pair"})
    run.do(["update", "of", {"a": 1}], keys=range(40))
    before = run.snapshot()
    run = begin({"of": "value p triple"})
    run.do(["update", "of", {"b": "x", "a": 1 << 40}], keys=range(2))
    chain = run.snapshot()
    expected = [{"b": "x", "a": 1 << 40}] * 2 + [{"b": None, "a": 1}] * 38
    assert [row["p"] for row in run.stored(chain, "of")] == expected
    opened = open_location_to_read(str(tmp_path / "location"))
    tables = compare_snapshots(opened, opened.record(before.id), opened.record(chain.id)).tables
    assert [(one.problem, one.added, one.changed) for one in tables if one.table == "of"] == [("", 0, 2)]
    export_snapshot(str(tmp_path / "location"), chain.id, tmp_path / "portable")
    parts = pq.read_table(tmp_path / "portable" / "state" / STATEFUL / "of").to_pylist()
    assert [row["p"] for row in sorted(parts, key=lambda row: row["key"])] == expected
    run = begin({"of": "value p triple"}, backend="rocksdb")
    assert run.do(["get", "of"], keys=range(1, 3)) == {1: [[["x", 1 << 40]]], 2: [[[None, 1]]]}
    with pytest.raises(PlanChanged, match=r"of, field p: stored .*now p struct<a: int32>"):
        begin({"of": "value p pair"})


def test_a_portable_copy_goes_on_in_a_third_form(begin: Begin, tmp_path: Path) -> None:
    first_run(begin)
    run = begin(SECOND)
    run.do(["update", "total", "x", 7], keys=range(10))
    export_snapshot(str(tmp_path / "location"), run.snapshot().id, tmp_path / "portable")
    convert_snapshot(tmp_path / "portable", tmp_path / "copy")
    copy = begin({**SECOND, "total": "value r long, n long, s text"}, location="copy")
    assert copy.do(["get", "total"], keys=range(12))[9] == [[None, 7, "x"]]
    assert copy.do(["get", "total"], keys=range(12))[11] == [[None, 1, None]]


def test_a_variable_goes_when_it_is_deleted_and_not_by_itself(begin: Begin) -> None:
    first_run(begin)
    rest = {"total": FIRST["total"], "by": FIRST["by"]}
    with pytest.raises(PlanChanged, match=r"(?s)state of transform-with-state-0, seen: .*now absent.*deleteIfExists"):
        begin(rest)
    run = begin(rest, ("seen", "never there", "__timers"))
    assert run.do(["get", "total"]) == {0: [[2]]}
    with pytest.raises(PlanChanged, match="seen"):
        begin(rest)  # there is no snapshot without it yet
    run = begin(rest, ("seen",))
    metadata = run.snapshot()
    assert {entry.table for slot in metadata.slots for one in slot.subtasks for entry in one.states} == {
        *rest,
        "__waiting",
    }
    assert begin(rest).do(["get", "total"]) == {0: [[2]]}, "it is not asked for any more, whatever the first plan was"
    assert begin(FIRST).do(["get", "seen"]) == {0: [[]]}, "a new one of its name"


def test_what_is_deleted_in_the_same_init_is_not_used(begin: Begin) -> None:
    run = begin({"total": "value n long", "other": "list n long"}, ("other",))
    assert run.do(["update", "total", 1]) == {0: [None]}
    with pytest.raises(Exception, match=r"operation=append not supported on missing column family=other"):
        run.do(["append", "other", 1])


REFUSED = {
    "a field is gone": ({"total": "value s text"}, "total, field n: stored n int32, now absent"),
    "a field is another type": ({"total": "value n text"}, "total, field n: stored n int32, now n string"),
    "another kind of state": (
        {"total": "list n int"},
        r"total: stored by \(key int64\), now by \(key int64, __position",
    ),
    "another key of the map": ({"by": "map j text -> n long"}, r"by: stored by \(key int64, k string\), now by"),
    "a narrower field": ({"by": "map k text -> n int"}, "by, field n: stored n int64, now n int32"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_be_lost_is_refused_and_can_be_given_up(begin: Begin, name: str) -> None:
    changed, told = REFUSED[name]
    first_run(begin)
    with pytest.raises(PlanChanged, match=rf"(?s)state of transform-with-state-0, {told}.*allowDroppedState") as caught:
        begin({**FIRST, **changed})
    assert "empty checkpointLocation to start anew" not in str(caught.value)
    run = begin({**FIRST, **changed}, allow_dropped=True)
    [variable] = changed
    empty = {"value n text": [None], "value s text": [None], "map k text -> n int": [[["a"], [None]]]}
    assert run.do(["get", variable], ["get", "seen"]) == {0: [empty.get(changed[variable], []), [[1], [2]]]}


def test_values_of_a_field_that_was_given_up_do_not_come_back(begin: Begin) -> None:
    first_run(begin)
    run = begin({**FIRST, "total": "value s text"}, allow_dropped=True)
    run.do(["update", "total", "x"], keys=range(3))
    metadata = run.snapshot()
    assert written(run, metadata, "total") == {("s",)}, "the whole table was written anew"
    assert not any(entry.without for entry in run.entries(metadata, "total"))
    assert any(entry.kind == DELTA for entry in run.entries(metadata, "seen")), "others were not"
    run = begin({**FIRST, "total": "value n int, s text"})
    assert run.do(["get", "total"], keys=range(5)) == {k: [[None, "x" if k < 3 else None]] for k in range(5)}


def test_a_rollback_to_before_the_change_goes_on_either_way(begin: Begin) -> None:
    run, before = first_run(begin)
    run = begin(SECOND)
    run.do(["update", "total", "x", 9], ["update", "late", 1], keys=KEYS)
    run.snapshot()
    for variables, expected in ((SECOND, [[None, 2], None]), (FIRST, [[2], [[1], [2]]])):
        run.end()
        roll_back(run.store, before.id, output=Output.KEEP)
        run = begin(variables)
        assert run.do(["get", "total"], ["get", [*variables][-1] if len(variables) > 3 else "seen"])[0] == expected


def test_a_fork_may_declare_other_state_than_its_origin(begin: Begin, tmp_path: Path) -> None:
    first_run(begin)
    origin = Origin(str(tmp_path / "location"))
    with pytest.raises(PlanChanged, match="seen: stored"):
        begin({"total": SECOND["total"]}, location="refused", origin=origin)
    fork = begin(SECOND, location="fork", origin=origin)
    assert fork.do(["get", "total"], ["update", "late", 3]) == {0: [[None, 2], None]}
    fork.snapshot()
    fork = begin(SECOND, location="fork", origin=origin)
    assert fork.do(["get", "total"], ["get", "late"]) == {0: [[None, 2], [3]]}
    assert begin(FIRST).do(["get", "total"]) == {0: [[2]]}, "the origin goes on as it was"


def test_timers_may_come_and_not_go(begin: Begin) -> None:
    first_run(begin)
    timed = begin(FIRST, time_mode=TimeMode.PROCESSING_TIME)
    timed.do(["timer", 5])
    assert timed.stored(timed.snapshot(), "__timers") == [{"key": 0, "__expires_ms": 5}]
    for allowed in (False, True):
        with pytest.raises(PlanChanged, match=r"__timers: stored .*now absent"):
            begin(FIRST, allow_dropped=allowed)
        with pytest.raises(
            PlanChanged, match=rf"state of {STATEFUL}, time mode: stored ProcessingTime, now EventTime\n.*empty check"
        ):
            begin(FIRST, time_mode=TimeMode.EVENT_TIME, allow_dropped=allowed)
    assert begin(FIRST, time_mode=TimeMode.PROCESSING_TIME).do(["get", "total"]) == {0: [[2]]}


def test_a_slot_refuses_another_time_mode_where_the_plan_does_not_tell_it(begin: Begin) -> None:
    """Plans of earlier releases did not."""
    _, metadata = first_run(begin, time_mode=TimeMode.PROCESSING_TIME)
    assert metadata.plan is not None
    [entry] = [one for one in metadata.plan.operators.values() if one["states"]]
    said: Any = entry["evolves"]
    assert said.pop("fixed") == {"time mode": "ProcessingTime"}
    graph = job_of(FIRST, time_mode=TimeMode.EVENT_TIME)
    assert relocate(metadata, graph, 0).plan == plan_of(graph)
    [spec] = graph.vertex(1).operators
    operator = spec.create()
    operator.open(OperatorContext(STATEFUL, 0, 1, GROUPS, MemoryBackend()))
    try:
        with pytest.raises(PlanChanged, match="kept with timeMode ProcessingTime, and the query has EventTime"):
            operator.restore(RestoredState(parts=[ScalarPart(0, 0, GROUPS - 1, {"time_mode": "ProcessingTime"})]))
    finally:
        operator.close()


def test_a_time_to_live_may_come_and_not_go(begin: Begin) -> None:
    first_run(begin, time_mode=TimeMode.PROCESSING_TIME)
    limited = {**FIRST, "total": "ttl value n int"}
    run = begin(limited, time_mode=TimeMode.PROCESSING_TIME)
    assert run.do(["get", "total"], ["update", "total", 3]) == {0: [[2], None]}
    expires = [row["__expires_ms"] for row in run.stored(run.snapshot(), "total")]
    assert (expires[0], expires[1:]) == (10**12, [None] * 299), "what there was stays for ever"
    with pytest.raises(PlanChanged, match="total, field __expires_ms: stored __expires_ms int64, now absent"):
        begin(FIRST, time_mode=TimeMode.PROCESSING_TIME)


def test_columns_that_are_called_otherwise_than_their_fields_are_not_mixed_up() -> None:
    """The grouping key is called ``key``, so that a field of this name is ``key_1``."""
    before, after = (plan_of(job_of({"total": f"value {text}"})) for text in ("key text", "key_1 text, key text"))
    assert [tuple(line) for line in differences(before, after)] == [
        (f"state of {STATEFUL}, total, field key_1", "field 'key'", "field 'key_1'")
    ]
    same = plan_of(job_of({"total": "value n long, key text"}))
    assert differences(before, same) == []


def test_input_rows_that_wait_keep_their_columns(begin: Begin) -> None:
    """Without such rows, columns may change."""
    _, metadata = first_run(begin)
    wider = pa.schema([*ROWS, ("more", pa.int64())])
    fewer, more = (job_of(FIRST, rows=schema) for schema in (ROWS, wider))
    assert relocate(metadata, more, 0).plan == plan_of(more)

    def waiting(slot: SlotManifest) -> SlotManifest:
        source, own = slot.subtasks
        states = [msgspec.structs.replace(one, rows=3) if one.table == "__waiting" else one for one in own.states]
        return msgspec.structs.replace(slot, subtasks=[source, msgspec.structs.replace(own, states=states)])

    busy = msgspec.structs.replace(metadata, slots=[waiting(slot) for slot in metadata.slots])
    with pytest.raises(PlanChanged, match=r"(?s)__waiting, where 3 rows wait: stored .*more int64.*startMode=drain"):
        relocate(busy, more, 0)
    assert relocate(msgspec.structs.replace(busy, plan=plan_of(more)), fewer, 0).plan == plan_of(fewer), "left out"


def test_only_state_that_evolves_may_lack_columns() -> None:
    [spec] = job_of(FIRST).vertex(1).operators
    marked = {table: [bool(field.metadata) for field in schema] for table, schema in read_schemas(spec).items()}
    assert marked["total"] == [False, False, True]
    assert marked["by"] == [False, False, False, True]
    assert not any(marked["__waiting"])


def test_declaring_what_was_deleted_before_is_refused_by_name() -> None:
    class Again(Keeper):
        def init(self, handle: Any) -> None:
            handle.deleteIfExists("total")
            super().init(handle)

    with pytest.raises(NotSupported, match=r"state total: init deletes it .*another name"):
        spec_of(Again({"total": "value n long"}))


def test_operators_that_go_on_need_no_initial_state(begin: Begin, tmp_path: Path) -> None:
    location, access = str(tmp_path / "location"), parse_access({})
    here, elsewhere = Origin(location), str(tmp_path / "elsewhere")
    assert not restored_operators(None, location, access)
    assert not restored_operators(here, elsewhere, access)
    run = begin(FIRST)
    assert not restored_operators(None, location, access), "nothing is stored yet"
    first = run.snapshot()
    assert set(restored_operators(None, location, access)) == {STATEFUL}
    assert set(restored_operators(here, elsewhere, access)) == {STATEFUL}
    assert set(restored_operators(Origin(location, first.id), elsewhere, access)) == {STATEFUL}
    assert not restored_operators(Origin(location, "chk-9"), elsewhere, access), "who opens it refuses"
    (tmp_path / "location" / "snapshots" / first.id / "metadata.json").write_bytes(b"{")
    assert not restored_operators(None, location, access)
