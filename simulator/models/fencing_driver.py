"""One driver of the model of copies (``fencing``): what ``CommandExecutor`` does with a location's log and its sinks.

An epoch's rows are those of the interval since the epoch before. The label of a snapshot is the name of its epoch's
rows, and its note is the epoch's batch id; an epoch without rows has none.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec

from penstock.connectors.base import FenceOpener
from penstock.errors import Fenced, LocationError, SinkError, SinkFenced
from penstock.model.commits import LogPosition
from penstock.model.manifest import LARGEST
from penstock.snapshots.log.entries import GenerationOpened, LogView, MetadataRef, SnapshotComplete, SnapshotRecord
from penstock.snapshots.log.snapshot_log import SnapshotLog
from penstock.snapshots.store.store import MemoryStore
from penstock.testing.failure import SimulationFailure
from simulator.engine.coroutine import suspend
from simulator.models.fencing_outputs import Epoch, SinkModel

PENDING = "roll back to an older snapshot"
_DIGITS = 32
_IDS = 4
"""Checkpoint ids that a Generation reserves."""
_SUMMARY_EVERY = 3


class SteppedStore(MemoryStore):
    """A location. Every write is a step, and every look for a file that does not follow an empty listing."""

    _found_nothing = False

    def create_if_absent(self, path: str, data: bytes) -> bool:
        suspend()
        created = super().create_if_absent(path, data)
        suspend()
        return created

    def list(self, folder: str, after: str = "") -> list[str]:
        found = super().list(folder, after)
        self._found_nothing = not found
        return found

    def exists(self, path: str) -> bool:
        if not self._found_nothing:
            suspend()
        self._found_nothing = False
        return super().exists(path)


@dataclass
class Location:
    """Location, or a copy of one.

    Attributes:
        given: by output, what a reader saw there when the user last decided to continue at this location.
        committed_then: epoch up to which all were committed then. Another copy may have retracted them since.
        before: the location before a decision that is not carried out yet.
        decided_by: Generation of that decision in the log.
        named_positions: positions that refused starts have named.
        rolled_back: True if it was ever rolled back.
        too_new: True if a start was refused because the snapshot has output that is not committed.
    """

    store: SteppedStore = field(default_factory=SteppedStore)
    given: dict[int, list[str]] = field(default_factory=dict)
    committed_then: int = 0
    before: Location | None = None
    decided_by: int = 0
    named_positions: set[str] = field(default_factory=set)
    rolled_back: bool = False
    too_new: bool = False

    def copied(self) -> Location:
        copy = Location(
            given=dict(self.given),
            committed_then=self.committed_then,
            before=self.before,
            decided_by=self.decided_by,
            named_positions=set(self.named_positions),
            too_new=self.too_new,
            rolled_back=self.rolled_back,
        )
        copy.store.files = dict(self.store.files)
        return copy

    @property
    def lineage(self) -> tuple[SnapshotRecord, ...]:
        return SnapshotLog(self.store).refresh().lineage


@dataclass
class Input:
    """Input of the query. ``cleaned``: names of epochs whose rows were removed."""

    cleans: bool
    cleaned: list[str] = field(default_factory=list)


class Driver:
    """Driver at a location; ``run`` is its whole life.

    Args:
        number: number of the driver.
        sinks: one per output; ``shown`` is the content of the output.
        lazy: True if it only opens the fence and has no rows.
        compacts: True if it removes covered entries of its log.
    """

    def __init__(
        self,
        number: int,
        location: Location,
        sinks: Sequence[SinkModel],
        shown: Sequence[Callable[[], list[str]]],
        source: Input,
        chance: random.Random,
        lazy: bool,
        compacts: bool,
    ) -> None:
        self._number = number
        self.location = location
        self._sinks = sinks
        self._outputs = shown
        self._source = source
        self._chance = chance
        self._lazy = lazy
        self._compacts = compacts
        self._log = SnapshotLog(location.store, self._token, summary_every=_SUMMARY_EVERY)
        self._generation = self._adopted = self._committed = 0
        self._ids_from, self._batches_from = 1, 0
        self._pending: list[Epoch] = []
        self._kept: dict[int, list[str]] = {}
        self.outcome, self.refusal = "killed", ""

    def _token(self) -> str:
        return f"{self._chance.getrandbits(4 * _DIGITS):0{_DIGITS}x}"

    def run(self) -> None:
        """Generations, until it is fenced or refused, or has no more to do."""
        try:
            for _ in range(4):
                with suppress(SinkFenced):
                    self._one_generation()
                    self.outcome = "ended"
                    return
        except Fenced:
            self.outcome = "fenced"
        except (SinkError, LocationError) as refusal:
            self.outcome, self.refusal = "refused", str(refusal)

    # -- a Generation -------------------------------------------------------------------------------------------------

    def _one_generation(self) -> None:
        while not self._opened():
            """The log has changed, or a rollback was carried out."""
        self._pending = [
            epoch
            for epoch in map(self._epoch, self._log.view.lineage)
            if epoch is not None and epoch.number > self._log.view.committed_epoch
        ]
        self._commit()
        for _ in range(0 if self._lazy else 3):
            self._one_epoch()

    def _opened(self) -> bool:
        view = self._log.refresh()
        if self._generation and view.owner != self._generation:
            raise Fenced("another driver has the location")
        foreign = not self._check_fences()
        if (view.over or view.retract is not None) and self._adopted != view.owner:
            self._adopt(view, foreign)
            return False
        restored = view.lineage[-1].checkpoint if view.lineage else 0
        first = max(view.next_checkpoint, self._ids_from)
        entry = GenerationOpened(
            view.next_generation, restored, first, first + _IDS, view.committed_epoch, next_batch=self._batches_from
        )
        self._log.append(entry)
        self._generation, self._committed = entry.generation, view.committed_epoch
        self._open_fences()
        if self._compacts:
            self._log.summarise()
        if self._carries_out:
            self.location.before = None
        return True

    def _check_fences(self) -> bool:
        known = [sink.check(self._opener(self._log.view.over)) for sink in self._sinks]
        return all(known)

    def _open_fences(self, over: Collection[str] = ()) -> None:
        opener = self._opener(over)
        for number, sink in enumerate(self._sinks):
            sink.open(opener)
            self._give(number)

    @property
    def _carries_out(self) -> bool:
        """There is a decision of the user, and it is in the log that this driver owns."""
        return self.location.before is not None and self._log.view.owner > self.location.decided_by

    def _give(self, number: int) -> None:
        """No other driver adds to this output from now on: what is there is what the user has decided about."""
        if self._carries_out:
            self.location.given[number] = list(self._outputs[number]())
            self.location.committed_then = self._log.view.committed_epoch

    def _adopt(self, view: LogView, foreign: bool) -> None:
        restored = view.lineage[-1].checkpoint if view.lineage else 0
        if foreign and self._is_pending(view, restored):
            raise LocationError(PENDING)
        retract = view.retract
        if retract is not None and foreign:
            retract = msgspec.structs.replace(retract, below=LARGEST)
        self._kept = {} if self.location.before is None else self.location.before.given
        first = view.next_checkpoint
        entry = GenerationOpened(
            view.next_generation,
            restored,
            first,
            first,
            view.committed_epoch,
            retract=retract,
            over=list(view.over),
        )
        self._log.append(entry)
        self._open_fences(self._over(view, foreign))
        if retract is not None:
            for number, sink in enumerate(self._sinks):
                sink.retract(retract.above, retract.below)
                sink.check_held()
                self._check_taken_back(number)
                self._give(number)
        self._ids_from = 1 + max(sink.newest_epoch() for sink in self._sinks)
        self._batches_from = max(sink.next_batch() for sink in self._sinks)
        self._adopted = entry.generation

    def _check_taken_back(self, number: int) -> None:
        kept = {*self._kept.get(number, []), *(record.label for record in self._log.view.lineage)}
        if left := [name for name in self._outputs[number]() if name not in kept]:
            raise SimulationFailure(f"{left} were to be taken back", "retraction")

    def _is_pending(self, view: LogView, restored: int) -> bool:
        return restored > view.committed_epoch

    # -- epochs -------------------------------------------------------------------------------------------------------

    def _one_epoch(self) -> None:
        view = self._log.view
        checkpoint = max((view.lineage[-1].checkpoint if view.lineage else 0) + 1, view.first_checkpoint)
        name, batch = self._token()[:6], self._chance.random() < 0.8
        for sink in self._sinks if batch else ():
            sink.stage(name)
        for sink in self._sinks:
            sink.check_held()
        entry = SnapshotComplete(
            self._generation,
            checkpoint,
            False,
            MetadataRef("m", 1, "0"),
            self._committed,
            view.reserved_until + 1,
            name,
            note=str(view.next_batch) if batch else "",
            next_batch=view.next_batch + bool(batch),
        )
        self._log.append(entry)
        epoch = self._epoch(self._log.view.lineage[-1])
        self._pending += [] if epoch is None else [epoch]
        if self._source.cleans and self._chance.random() < 0.5:
            self._clean()
        if self._chance.random() < 0.6:
            self._commit()
        if self._compacts:
            self._log.summarise()
            self._log.remove_covered()

    def _epoch(self, record: SnapshotRecord) -> Epoch | None:
        if not record.note:
            return None
        return Epoch(record.checkpoint, record.label, int(record.note), self._log.position_of(record.checkpoint))

    def _commit(self) -> None:
        """All that are pending, in order, at each output."""
        for epoch in list(self._pending):
            needed = {waiting.name for waiting in self._pending}
            for sink in self._sinks:
                self._hold(sink, epoch.position, epoch.batch + 1)
                sink.commit(epoch, needed)
            self._pending.remove(epoch)
            self._committed = epoch.number

    def _hold(self, committing: SinkModel, position: LogPosition, next_batch: int) -> None:
        for sink in self._sinks:
            sink.hold(position, next_batch)

    def _clean(self) -> None:
        """Remove the input that the newest snapshot covers."""
        newest = self._log.view.lineage[-1]
        for sink in self._sinks:
            sink.check_held()
        self._hold_input(self._log.position_of(newest.checkpoint))
        suspend()
        self._source.cleaned += [
            record.label for record in self._log.view.lineage if record.label not in self._source.cleaned
        ]

    def _hold_input(self, position: LogPosition) -> None:
        for sink in self._sinks:
            sink.hold(position)

    def _over(self, view: LogView, foreign: bool) -> Collection[str]:
        return view.over if foreign else ()

    def _contains(self, position: LogPosition) -> bool:
        suspend()
        return self._log.contains(position)

    def _check_owned(self) -> None:
        suspend()
        self._log.check_owned()

    def _opener(self, over: Collection[str] = ()) -> FenceOpener:
        view = self._log.view
        return FenceOpener(
            "query",
            self._log.position,
            f"driver {self._number}",
            self._contains,
            self._check_owned,
            self._token,
            over,
            bool(view.lineage),
            max(view.left_at, view.recent_from),
        )
