"""A location on disk with real snapshots, and tables that change between them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from penstock.coordinator.machines.checkpoint_events import SnapshotRequested
from penstock.model.elements import Alignment, Side
from penstock.model.ids import ChannelId
from penstock.model.key_groups import owned_range
from penstock.model.messages import AcknowledgeCheckpoint, FromSlot, TriggerCheckpoint
from penstock.model.splits import Split
from penstock.operators.base import OperatorState
from penstock.snapshots.location import claim_identity, identity_of, open_location
from penstock.snapshots.writing.slot_writer import SlotWriter
from simulator.jobs.count_table import CountTable
from simulator.jobs.rows import group_of
from tests.support.snapshots.snapshot_kit import COUNT, STATE, Driver, Target, capture, captured, rows

GROUPS = 128


class Kept:
    """A query of ``parallelism`` slots at a location; what each snapshot holds is said by the test."""

    def __init__(self, location: Path, parallelism: int = 1, **options: object) -> None:
        self.location = location
        self.store = open_location(str(location))
        self.player = Driver(self.store, Target(), parallelism=parallelism, **{"retained": 100, **options})  # type: ignore[arg-type]
        claim_identity(self.store, identity_of(self.player.graph, "query-1"))
        generation = self.player.start().opened.generation
        self.tables = [CountTable(STATE, GROUPS) for _ in range(parallelism)]
        self.slots = [
            SlotWriter(self.store, self.player.graph, generation, slot, whole_bytes=0) for slot in range(parallelism)
        ]
        self.content: dict[int, int] = {}

    def put(self, content: Mapping[int, int], removed: tuple[int, ...] = ()) -> None:
        """Write to the table, wherever a key is, then remove."""
        self.content.update(content)
        for key, value in content.items():
            self.table(key)[key,] = value
        for key in removed:
            self.table(key).pop((key,), None)
            self.content.pop(key, None)

    def table(self, key: int) -> CountTable:
        group = group_of(key, GROUPS)
        ranges = [owned_range(index, len(self.tables), GROUPS) for index in range(len(self.tables))]
        return next(t for t, (first, last) in zip(self.tables, ranges, strict=True) if first <= group <= last)

    def snapshot(
        self,
        label: str = "",
        *,
        in_flight: int = 0,
        watermark: int | None = None,
        splits: list[Split] | None = None,
    ) -> int:
        """Take one; ``in_flight``: rows on every channel to subtask 0."""
        before = len(self.player.others)
        if label:
            self.player.feed(SnapshotRequested(Alignment.UNALIGNED, label, ticket=1))
            checkpoint = self.player.core.coordinator.in_flight[-1]
        else:
            checkpoint = self.player.trigger()
        trigger = next(o for o in self.player.others[before:] if isinstance(o, TriggerCheckpoint))
        for index, slot in enumerate(self.slots):
            channels = [ChannelId(0, producer, index) for producer in range(len(self.slots))]
            waiting = [
                captured(channel, Side.CONSUMER, 1, rows(*range(in_flight))) for channel in channels if index == 0
            ]
            slot.begin(checkpoint, trigger.base)
            slot.write(capture(0, index, checkpoint, splits=splits if index == 0 else None))
            slot.write(
                capture(
                    1,
                    index,
                    checkpoint,
                    operators={COUNT: OperatorState({"counts": self.tables[index].capture()})},
                    inflight=waiting if in_flight else [],
                    watermarks={} if watermark is None else dict.fromkeys(channels, watermark),
                )
            )
            manifest = slot.finish(checkpoint)
            slot.confirm(checkpoint)
            self.player.feed(FromSlot(self.player.core.generation, AcknowledgeCheckpoint(checkpoint, manifest)))
        self.player.work()
        return checkpoint


def contents(location: Path) -> dict[str, tuple[bytes, int]]:
    """Every file with its bytes and time of change: what a command that only reads leaves as it is."""
    return {
        str(path.relative_to(location)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(location.rglob("*"))
        if path.is_file()
    }


def flip(path: Path, at: int | None = None) -> None:
    """Change one bit."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2 if at is None else at] ^= 4
    path.write_bytes(bytes(data))
