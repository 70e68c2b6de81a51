"""A reader written from docs/snapshot-format.md alone: nothing here imports Penstock's own code to read a location."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import xxhash

from penstock.coordinator.machines.checkpoint_events import SnapshotRequested, Tick
from penstock.model.elements import Alignment, Side
from penstock.model.ids import ChannelId
from penstock.model.messages import AcknowledgeCheckpoint, FromSlot, TriggerCheckpoint
from penstock.operators.base import OperatorState
from penstock.snapshots.commands.copying import copy_snapshots
from penstock.snapshots.commands.moving import move_query
from penstock.snapshots.commands.rolling_back import Output, roll_back
from penstock.snapshots.fork import Origin, start_fork
from penstock.snapshots.location import claim_identity, identity_of, open_location
from penstock.snapshots.writing.slot_writer import SlotWriter
from penstock.state.hashing import key_groups
from simulator.jobs.count_table import CountTable
from tests.support.snapshots.snapshot_kit import COUNT, SINK, STATE, Driver, NoSource, Target, capture, captured, rows


class ForeignReader:
    """Everything a stranger needs."""

    def __init__(self, location: Path) -> None:
        self.location = location
        self.query = self.envelope("query.json")
        assert self.query["format_version"] in (1, 2)
        self.owner, self.committed, self.snapshots = 0, 0, {}
        bodies = [self.envelope(f"log/{path.name}") for path in sorted((location / "log").glob("*.json"))]
        summaries = [body["entry"] for body in bodies if body["entry"]["type"] == "summary (format version 3)"]
        head, kept_from = (summaries[-1]["head"], summaries[-1]["kept_from"]) if summaries else (0, 0)
        kept = [body for body in bodies if not head < body["seq"] < kept_from]
        count = bodies[-1]["seq"]
        assert [body["seq"] for body in kept] == [n for n in range(1, count + 1) if not head < n < kept_from]
        for body in kept:
            if body["seq"] == kept_from > head + 1:  # what it says is not in entries that are here
                entry = body["entry"]
                self.owner, self.committed = entry["generation"], entry["committed_epoch"]
                self.snapshots = {snapshot["checkpoint"]: dict(snapshot) for snapshot in entry["snapshots"]}
            self.fold(body["entry"])

    def envelope(self, path: str) -> Any:
        envelope = json.loads((self.location / path).read_bytes())
        body = envelope["body"]
        canonical = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
        assert xxhash.xxh3_128(canonical).hexdigest() == envelope["checksum"], path
        return body

    def fold(self, entry: dict[str, Any]) -> None:
        kind = entry["type"]
        if kind == "forked":
            snapshot = entry["snapshot"]
            self.owner, self.committed = snapshot["generation"], snapshot["checkpoint"]
            self.snapshots = {snapshot["checkpoint"]: dict(snapshot)}
            return
        self.committed = max(self.committed, entry.get("committed_epoch", 0), entry.get("epoch", 0))
        if kind == "generation-opened":
            self.owner = entry["generation"]
            for checkpoint, snapshot in self.snapshots.items():
                snapshot["in_lineage"] &= checkpoint <= entry["restored"]
        assert entry["generation"] == self.owner
        if kind == "snapshot-complete":
            self.snapshots[entry["checkpoint"]] = {**entry, "in_lineage": True}
        elif kind == "snapshot-deleted":
            del self.snapshots[entry["checkpoint"]]
        elif kind == "snapshot-labelled":
            snapshot = self.snapshots[entry["checkpoint"]]
            for what in ("label", "note"):
                if entry[what] is not None:
                    snapshot[what] = entry[what]
        elif kind == "snapshot-copied":
            copy = entry["snapshot"]
            assert self.query["archive"]
            assert copy["generation"] < self.owner
            self.snapshots[copy["checkpoint"]] = dict(copy)
        elif kind == "moved":
            self.snapshots = {}
        elif kind.startswith("summary"):
            assert {s["checkpoint"] for s in entry["snapshots"]} == set(self.snapshots)

    def newest(self) -> dict[str, Any]:
        checkpoint = max(c for c, snapshot in self.snapshots.items() if snapshot["in_lineage"])
        return self.metadata(checkpoint)

    def metadata(self, checkpoint: int) -> dict[str, Any]:
        ref = self.snapshots[checkpoint]["metadata"]
        data = (self.location / ref["path"]).read_bytes()
        assert (len(data), xxhash.xxh3_128(data).hexdigest()) == (ref["length"], ref["checksum"])
        metadata: dict[str, Any] = json.loads(data)
        assert metadata["id"] == f"chk-{checkpoint}"
        return metadata

    def section(self, ref: dict[str, Any]) -> list[tuple[pa.RecordBatch, dict[str, str]]]:
        assert not ref["path"].startswith("/")
        assert ".." not in ref["path"].split("/")
        with (self.location / ref["path"]).open("rb") as file:
            file.seek(ref["offset"])
            data = file.read(ref["length"])
        assert xxhash.xxh3_128(ref["identity"].encode() + b"\0" + data).hexdigest() == ref["checksum"]
        reader = pa.ipc.open_stream(data)
        found = []
        while True:
            try:
                batch, custom = reader.read_next_batch_with_custom_metadata()
            except StopIteration:
                return found
            found.append((batch, {k.decode(): v.decode() for k, v in (custom or {}).items()}))

    def table(
        self, metadata: dict[str, Any], operator: str, table: str, vertex: int, index: int
    ) -> list[dict[str, Any]]:
        """The rows of one subtask's table, by what the query says is its key: here the column ``key``."""
        subtasks = [s for slot in metadata["slots"] for s in slot["subtasks"]]
        (subtask,) = [s for s in subtasks if (s["vertex"], s["index"]) == (vertex, index)]
        rows: dict[int, dict[str, Any]] = {}
        for entry in subtask["states"]:
            if (entry["operator_id"], entry["table"]) != (operator, table):
                continue
            content = [row for batch, _ in self.section(entry["section"]) for row in batch.to_pylist()]
            assert len(content) == entry["rows"]
            groups = [row["__key_group"] for row in content]
            assert groups == sorted(groups)
            for row in content:
                if not entry["key_group_first"] <= row["__key_group"] <= entry["key_group_last"]:
                    continue
                gone = row.pop("__deleted") if entry["kind"] == "delta" else False
                assert entry["kind"] in ("base", "delta")
                assert not (entry["kind"] == "base" and row["key"] in rows)
                if gone:
                    rows.pop(row["key"], None)
                else:
                    rows[row["key"]] = row
        return list(rows.values())

    def in_flight(self, metadata: dict[str, Any], edge: int, consumer: int) -> list[dict[str, Any]]:
        """The rows that one consumer replays, in order."""
        subtasks = [s for slot in sorted(metadata["slots"], key=lambda s: s["slot"]) for s in slot["subtasks"]]
        found = [
            entry
            for subtask in subtasks
            for entry in subtask.get("inflight", [])
            if (entry["edge"], entry["consumer"]) == (edge, consumer)
        ]
        found.sort(key=lambda entry: (entry["layer"], entry["side"] != "consumer"))
        replayed: list[dict[str, Any]] = []
        for entry in found:
            all_rows = [row for batch, _ in self.section(entry["section"]) for row in batch.to_pylist()]
            replayed += all_rows[entry["row_start"] : entry["row_start"] + entry["rows"]]
        return replayed


def test_a_stranger_can_read_a_location(tmp_path: Path) -> None:
    store = open_location(str(tmp_path))
    target, source = Target(), NoSource(limit=1)
    player = Driver(store, target, "A", retained=2, source=source, parallelism=2)
    claim_identity(store, identity_of(player.graph, "query-1"))
    player.start()
    player.now = 200
    player.feed(Tick())
    player.work()
    zero = ChannelId(0, 0, 0)
    first = player.trigger()
    player.acknowledge(first, inflight=[captured(zero, Side.CONSUMER, 2, rows(1, 2, 3), offset=1)])
    player.work()
    player.checkpoint()
    player.feed(SnapshotRequested(Alignment.UNALIGNED, "mine, für später", ticket=1))
    requested = player.core.coordinator.in_flight[0]
    player.acknowledge(requested, inflight=[captured(zero, Side.CONSUMER, 7, rows(8, 9))])
    for _ in range(3):  # metadata written, logged, and not yet committed
        event = player.effects.execute(player.works.pop(0))
        if event is not None:
            player.feed(event)

    reader = ForeignReader(tmp_path)
    assert (reader.query["query_id"], reader.query["parallelism"]) == ("query-1", 2)
    assert reader.owner == 1
    assert sorted(reader.snapshots) == [1, 2, requested]
    assert reader.snapshots[requested]["label"] == "mine, für später"
    newest = reader.newest()
    assert newest["checkpoint"] == requested
    assert [split["split_id"] for split in newest["sources"][0]["pending"]] == ["s0"]
    (table_zero, table_one) = [
        state for slot in newest["slots"] for subtask in slot["subtasks"] for state in subtask["states"]
    ]
    columns = reader.query["operators"][table_zero["operator_id"]]["states"][table_zero["table"]]
    ((batch, _),) = reader.section(table_one["section"])
    assert [f"{field.name} {field.type}" for field in batch.schema] == columns
    assert batch.to_pydict() == {"__key_group": [1, 2], "key": [10, 20], "count": [100, 200]}
    assert (table_one["key_group_first"], table_one["key_group_last"], table_one["rows"]) == (1, 2, 2)
    assert (
        reader.in_flight(reader.metadata(1), 0, 0)
        == [
            {"key": 2, "value": "v2"},
            {"key": 3, "value": "v3"},
        ]
        * 2
    ), "each of the two slots had captured the same rows in this test"
    entry = newest["slots"][0]["subtasks"][1]["inflight"][0]
    ((_, custom),) = reader.section(entry["section"])
    assert custom == {"buffer": "g1/e0:0->0#7", "offset": "0"}
    groups = key_groups(rows(8, 9), (0,), 128)
    assert (entry["key_group_first"], entry["key_group_last"]) == (groups.min(), groups.max())
    messages = {
        int(epoch): base64.b64decode(message)
        for epoch, message in newest["slots"][1]["subtasks"][1]["pending_messages"].items()
        if int(epoch) > reader.committed
    }
    assert messages == {requested: b"g1 c3 s1"}
    assert SINK in reader.query["operators"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["data", "log", "query.json", "snapshots"]


def test_a_stranger_can_read_a_table_that_is_a_chain(tmp_path: Path) -> None:
    store = open_location(str(tmp_path))
    player = Driver(store, Target())
    claim_identity(store, identity_of(player.graph, "query-1"))
    player.start()
    slot = SlotWriter(store, player.graph, 1, 0, whole_bytes=0)
    table = CountTable(STATE, 128)
    table.update(((key,), 0) for key in range(600))
    for round_ in range(1, 12):
        for key in range(round_, 600, 7 + round_):
            table[key,] = round_
        table.pop((round_,), None)
        before = len(player.others)
        checkpoint = player.trigger()
        trigger = next(o for o in player.others[before:] if isinstance(o, TriggerCheckpoint))
        slot.write(capture(0, 0, checkpoint))
        slot.begin(checkpoint, trigger.base)
        slot.write(capture(1, 0, checkpoint, operators={COUNT: OperatorState({"counts": table.capture()})}))
        manifest = slot.finish(checkpoint)
        slot.confirm(checkpoint)
        player.feed(FromSlot(1, AcknowledgeCheckpoint(checkpoint, manifest)))
        player.work()
        reader = ForeignReader(tmp_path)
        newest = reader.newest()
        found = {row["key"]: row["count"] for row in reader.table(newest, COUNT, "counts", 1, 0)}
        assert found == {key: count for (key,), count in table.items()}
    (state,) = [s["states"] for s in newest["slots"][0]["subtasks"] if s["vertex"] == 1]
    kinds = [entry["kind"] for entry in state]
    assert kinds.count("delta") > 1
    assert len({entry["section"]["path"] for entry in state}) > 3


def test_a_stranger_can_read_a_fork(tmp_path: Path) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    player = Driver(open_location(str(there)), Target())
    claim_identity(player.effects._store, identity_of(player.graph, "query-1"))
    player.start()
    checkpoint = player.checkpoint()
    store = open_location(str(here))
    identity = claim_identity(store, identity_of(player.graph, "query-2", "query-1"))
    begins_with = start_fork(Origin(str(there)), store, identity, player.graph)
    Driver(store, Target(), query_id="query-2", forked=begins_with).start()
    reader = ForeignReader(here)
    assert (reader.query["query_id"], reader.query["origin"]) == ("query-2", "query-1")
    assert (reader.owner, reader.committed) == (2, checkpoint)
    newest = reader.newest()
    assert newest["query_id"] == "query-1"
    ((batch, _),) = reader.section(newest["slots"][0]["subtasks"][1]["states"][0]["section"])
    assert batch.num_rows == 2


def test_a_stranger_can_read_a_compacted_log(tmp_path: Path) -> None:
    driver = Driver(open_location(str(tmp_path)), Target(), retained=2, summary_every=4)
    claim_identity(driver.store, identity_of(driver.graph, "query-1"))
    driver.start()
    for _ in range(10):
        driver.checkpoint()
    reader = ForeignReader(tmp_path)
    assert not (tmp_path / "log" / "00000000000000000003.json").exists()
    assert sorted(reader.snapshots) == [9, 10]
    assert reader.newest()["id"] == "chk-10"


def test_a_stranger_can_read_an_archive_a_rollback_and_a_move(tmp_path: Path) -> None:
    there, archive, here = (open_location(str(tmp_path / name)) for name in ("there", "archive", "here"))
    player = Driver(there, Target(), retained=100)
    claim_identity(there, identity_of(player.graph, "query-1"))
    player.start()
    for _ in range(3):
        player.checkpoint()
    coordinator = player.core.coordinator
    player.effects.close(coordinator.committed_epoch, coordinator.next_checkpoint)
    copy_snapshots(there, archive, ["chk-1", "chk-3"])
    reader = ForeignReader(tmp_path / "archive")
    assert (reader.query["query_id"], reader.query["archive"], sorted(reader.snapshots)) == ("query-1", True, [1, 3])
    assert not any(snapshot["in_lineage"] for snapshot in reader.snapshots.values())
    ((batch, _),) = reader.section(reader.metadata(3)["slots"][0]["subtasks"][1]["states"][0]["section"])
    assert batch.num_rows == 2

    roll_back(there, "chk-2", output=Output.RETRACT)
    entry = ForeignReader(tmp_path / "there").envelope("log/00000000000000000007.json")["entry"]
    assert (entry["type"], entry["restored"]) == ("generation-opened", 2)
    assert entry["retract"] == {"above": 2, "below": entry["first_checkpoint"], "sinks": {SINK: []}}
    assert ForeignReader(tmp_path / "there").newest()["id"] == "chk-2"

    move_query(there, here)
    assert ForeignReader(tmp_path / "there").snapshots == {}
    assert ForeignReader(tmp_path / "here").newest()["id"] == "chk-2"
