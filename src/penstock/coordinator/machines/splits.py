"""The split assigner: who reads what, and when a source has nothing more to give.

One machine per source vertex. It owns the discovery state and the splits that were found but not yet handed out; a
split is handed out in answer to one request, to one reader, and is that reader's from then on. Everything is in
discovery order, so a restored assigner hands out the same splits.

*Quiescence*: a reader is idle when its request reports no unread split, counting those on their way to it; a split
whose rows are still held by user functions counts as unread. When all
readers are idle, nothing is pending and a discovery that *started after that* found nothing, the source is dry: event
time may rise to the largest watermark any reader has generated. Dry is said once; only a new split makes it possible
again, so further looks that find nothing send nothing.

*End*: a discovery may say that it is finished. Then nobody looks any more, and the source is dry as soon as everything
was handed out and all readers are idle; with that it has ended, which is said once. Readers end behind the watermark
that dryness lets them rise to: else the windows that are open at the end would depend on who read what. A source that
ends without a row ends at the start of event time, so that nobody goes ahead of what a later run may find there.

*Freezing* brings the end about: the source is told that what is there now is all, and so are the readers, once all of
them run. What a reader asked for before it was told is void: it may call itself idle in front of rows that are there.
So it asks anew, and only that counts. A source that is *drained* is frozen, and ends with event time: at its end the
watermark is the largest there is. Whatever it would read after that would be late, so a restored one ends without
another look.

A reader without event time rises to the watermark of other readers in a round (``event_time_rounds``).

*Pausing*: while what is in flight is drained, readers read nothing and nothing is discovered. All else goes on: a split
that was found is handed out, and a look that is under way is answered.

*Holding*: a location that begins with a planned batch reads the splits of that batch first. There is no discovery until
``ReleaseDiscovery``, because the rows of the batch are an epoch of their own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from penstock.coordinator.machines.checkpoint_events import AllSlotsRunning, Tick
from penstock.errors import ProtocolViolation
from penstock.model.elements import END_OF_TIME_US, START_OF_TIME_US
from penstock.model.ids import GenerationId
from penstock.model.manifest import SourceManifest
from penstock.model.messages import (
    AssignSplits,
    FreezeReaders,
    FromReader,
    NoMoreSplits,
    PauseReaders,
    ReaderProgressed,
    ReaderStatus,
    RequestSplit,
    SourceIdle,
    ToReader,
)
from penstock.model.plain import Plain
from penstock.model.splits import Discovery, Split

PENDING_PER_READER = 2
"""Look for more splits only while fewer are pending: what is found early is stored in every snapshot."""
EMPTY_DISCOVERY_PAUSE_MS = 100
"""Pause after a look that found nothing: the latency of an idle source against the cost of listing."""
FOUND_DISCOVERY_PAUSE_MS = 10
"""Pause after a look that found something, so that a source that always finds a little cannot spin."""


# -- events -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SplitsFound:
    """The discovery that ``Discover`` commanded has ended."""

    generation: GenerationId
    vertex: int
    discovery: Discovery


@dataclass(frozen=True)
class ReleaseDiscovery:
    """The planned batch is complete: discovery begins."""


@dataclass(frozen=True)
class Freeze:
    """Read what is there now, and end; once per Generation. ``drain``: event time ends, too; may follow later."""

    drain: bool = False


@dataclass(frozen=True)
class Pause:
    """Read and discover nothing, or (``paused`` is False) go on. Only while all readers run."""

    paused: bool


SplitEvent = Tick | SplitsFound | FromReader | AllSlotsRunning | ReleaseDiscovery | Freeze | Pause

# -- commands ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Discover:
    """Call ``Source.discover(state, parallelism)``, off this thread; one at a time."""

    generation: GenerationId
    vertex: int
    state: Plain


@dataclass(frozen=True)
class FreezeSource:
    """Call ``Source.freeze()``, on the thread of ``Discover`` and in order with it."""

    generation: GenerationId
    vertex: int


SplitCommand = Discover | FreezeSource | ToReader


@dataclass
class Reader:
    """State of one reader as the assigner knows it.

    Attributes:
        assigned: number of splits that it was given in this Generation.
        requests: it has an open request.
        status: the newest one; None: no valid one yet.
        watermark_us: the largest watermark that it has reported as sent.
        still: it is idle, or its watermark is the same as in the report before.
        told_us: the watermark to which it was last told to rise.
    """

    assigned: int = 0
    requests: bool = False
    status: ReaderStatus | None = None
    watermark_us: int | None = None
    still: bool = False
    told_us: int | None = None

    @property
    def idle(self) -> bool:
        return self.status is not None and self.unread == 0

    @property
    def unread(self) -> int:
        """Number of unread splits, including those on their way to the reader."""
        on_the_way = self.assigned - (0 if self.status is None else self.status.received)
        return on_the_way + (0 if self.status is None else self.status.unread)


@dataclass(frozen=True)
class DiscoveredSplits:
    """One look that found something: the state after it, and the ids of what it found."""

    serial: int
    state: Plain
    split_ids: frozenset[str]


@dataclass(frozen=True)
class SourceCapture:
    """The driver's side of a source at a trigger. ``looks``: those whose splits were not all known to be read."""

    manifest: SourceManifest
    looks: tuple[DiscoveredSplits, ...]


def last_fully_read(capture: SourceCapture, unread: Collection[str]) -> DiscoveredSplits | None:
    """The newest look of a complete snapshot before which everything was read: ``Source.committed`` gets its state.

    Args:
        capture: the driver's side in that snapshot.
        unread: ids of the splits in the snapshot's readers.
    """
    open_ids = {split.split_id for split in capture.manifest.pending} | set(unread)
    settled = None
    for look in capture.looks:
        if not look.split_ids.isdisjoint(open_ids):
            break
        settled = look
    return settled


@dataclass
class SplitAssigner:
    """The pure machine of one source vertex in one Generation.

    Args:
        generation: the Generation.
        operator_id: the source operator.
        vertex: its vertex.
        parallelism: how many readers there are.
        restored: its manifest in the restored snapshot, or None at the first start.
        restored_unread: ids of the splits that the snapshot gives to readers.
        looks_ahead: as the source says (``Source.looks_ahead``).
        held: there is no discovery before ``ReleaseDiscovery``.
        paused: readers begin paused, and there is no discovery before ``Pause(False)``.
    """

    generation: GenerationId
    operator_id: str
    vertex: int
    parallelism: int
    restored: SourceManifest | None = None
    restored_unread: Collection[str] = ()
    looks_ahead: bool = True
    held: bool = False
    paused: bool = False
    _state: Plain = field(init=False, default=None)
    _pending: deque[Split] = field(init=False, default_factory=deque)
    _readers: list[Reader] = field(init=False)
    _looking: bool = field(init=False, default=False)
    _look_counts: bool = field(init=False, default=False)
    _next_look_ms: float = field(init=False, default=0.0)
    _dry: bool = field(init=False, default=False)
    _dry_at_us: int | None = field(init=False, default=None)
    _running: bool = field(init=False, default=False)
    _frozen: bool = field(init=False, default=False)
    _drain: bool = field(init=False, default=False)
    _drained: bool = field(init=False, default=False)
    _finished: bool = field(init=False, default=False)
    _ended: bool = field(init=False, default=False)
    _looks: list[DiscoveredSplits] = field(init=False, default_factory=list)
    _serial: int = field(init=False, default=0)
    _settled: int = field(init=False, default=-1)
    _watermark_us: int | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self._readers = [Reader() for _ in range(self.parallelism)]
        if self.restored is not None:
            self._state = self.restored.state
            self._drained = self._drain = self._finished = self.restored.drained
            self._pending.extend(self.restored.pending)
            ids = [split.split_id for split in self._pending] + list(self.restored_unread)
            self._looks.append(DiscoveredSplits(0, self._state, frozenset(ids)))

    @property
    def dry(self) -> bool:
        """SourceIdle was said and nothing was found since."""
        return self._dry

    @property
    def finished(self) -> bool:
        """Nothing new will be found in this run. What was found may not be handed out or read yet."""
        return self._finished

    @property
    def may_drain(self) -> bool:
        """``Freeze(drain=True)`` still has a say: readers that have ended do not let event time rise any more."""
        return self._drain or not self._ended

    @property
    def pending(self) -> int:
        return len(self._pending)

    @property
    def readers(self) -> Sequence[Reader]:
        """By index."""
        return self._readers

    @property
    def pending_ids(self) -> set[str]:
        """Ids of the splits that were found but not assigned."""
        return {split.split_id for split in self._pending}

    @property
    def all_idle(self) -> bool:
        """Every reader has asked for more and holds nothing, and there is nothing to give."""
        return not self._pending and all(reader.idle for reader in self._readers)

    def next_wake_ms(self) -> float | None:
        """When ``Tick`` has something to do; None while a look is out, enough is pending or no look is needed."""
        return None if self._looking or not self._looks_on or self._is_stocked() else self._next_look_ms

    @property
    def _looks_on(self) -> bool:
        return not (self.held or self.paused or self._finished)

    def handle(self, event: SplitEvent, now_ms: float) -> list[SplitCommand]:
        """Take one event; the commands are to be executed in order."""
        commands: list[SplitCommand] = []
        if isinstance(event, RequestSplit):
            commands = self._on_requested(event)
        elif isinstance(event, ReaderStatus):
            self._on_status(event)
        elif isinstance(event, SplitsFound):
            commands = self._on_found(event, now_ms)
        elif isinstance(event, ReaderProgressed):
            self._on_progressed(event)
        elif isinstance(event, AllSlotsRunning):
            self._running = True
            commands = [FreezeReaders(self.vertex)] if self._frozen else []
        elif isinstance(event, ReleaseDiscovery):
            self.held = False
        elif isinstance(event, Freeze):
            commands = self._on_freeze(event, now_ms)
        elif isinstance(event, Pause):
            self.paused = event.paused
            commands = [PauseReaders(self.vertex, event.paused)]
        return commands + self._end() + self._look(now_ms)

    def capture(self) -> SourceCapture:
        """The discovery state and what is pending, now. Triggers to all slots must follow before any other event."""
        manifest = SourceManifest(self.operator_id, self.vertex, self._state, list(self._pending), self._drained)
        return SourceCapture(manifest, tuple(self._looks))

    def settled(self, look: DiscoveredSplits) -> bool:
        """Everything up to this look is read: it and older ones need not be remembered. False if that is no news: an
        older snapshot may complete after a newer one."""
        news = look.serial > self._settled
        self._settled = max(self._settled, look.serial)
        self._looks = [known for known in self._looks if known.serial > self._settled]
        return news

    def _on_requested(self, event: RequestSplit) -> list[SplitCommand]:
        if self._frozen and not event.frozen:
            return []
        self._reader(event).requests = True
        return self._assign()

    def _on_status(self, event: ReaderStatus) -> None:
        if self._frozen and not event.frozen:
            return
        reader = self._reader(event)
        reader.status = event
        reader.still = reader.idle
        self._announced(reader, event.watermark_us)
        if event.seen_us is not None and (self._watermark_us is None or event.seen_us > self._watermark_us):
            self._watermark_us = event.seen_us
            self._dry = False
        if event.unread:
            self._dry = False

    def _reader(self, event: RequestSplit | ReaderStatus) -> Reader:
        if not 0 <= event.index < self.parallelism:
            raise ProtocolViolation(f"splits(vertex={self.vertex})", f"{self.parallelism} readers", repr(event))
        return self._readers[event.index]

    def _on_progressed(self, event: ReaderProgressed) -> None:
        reader = self._readers[event.index]
        reader.still = reader.idle or event.watermark_us == reader.watermark_us
        self._announced(reader, event.watermark_us)

    @staticmethod
    def _announced(reader: Reader, watermark_us: int | None) -> None:
        if watermark_us is not None:
            reader.watermark_us = max(watermark_us, reader.watermark_us or watermark_us)

    def _on_freeze(self, event: Freeze, now_ms: float) -> list[SplitCommand]:
        self._drain = self._drain or event.drain
        if self._frozen:
            return []
        self._frozen = True
        self._dry = False
        for reader in self._readers:
            reader.requests, reader.status = False, None
        self._next_look_ms = now_ms
        source: list[SplitCommand] = [] if self._finished else [FreezeSource(self.generation, self.vertex)]
        return source + ([FreezeReaders(self.vertex)] if self._running else [])

    def _on_found(self, event: SplitsFound, now_ms: float) -> list[SplitCommand]:
        if not self._looking:
            raise ProtocolViolation(f"splits(vertex={self.vertex})", "no look is out", repr(event)[:200])
        self._looking = False
        found = event.discovery
        self._state = found.state
        self._finished = found.finished
        if found.splits:
            self._serial += 1
            self._looks.append(DiscoveredSplits(self._serial, found.state, frozenset(s.split_id for s in found.splits)))
            self._pending.extend(found.splits)
            self._dry = False
            self._next_look_ms = now_ms + FOUND_DISCOVERY_PAUSE_MS
            return self._assign()
        self._next_look_ms = now_ms + EMPTY_DISCOVERY_PAUSE_MS
        if self._finished or not self._look_counts or not self.all_idle:
            return []
        return self._say_dry(self._watermark_us)

    def _say_dry(self, watermark_us: int | None) -> list[SplitCommand]:
        if self._dry and self._dry_at_us == watermark_us:
            return []
        self._dry, self._dry_at_us = True, watermark_us
        return [SourceIdle(self.vertex, watermark_us)]

    def _assign(self) -> list[SplitCommand]:
        """Hand pending splits to waiting readers: to their homes, else to who has the least to read, then by index."""
        commands: list[SplitCommand] = []
        kept: list[Split] = []
        while self._pending and any(reader.requests for reader in self._readers):
            split = self._pending.popleft()
            waiting = [
                (reader.unread, index)
                for index, reader in enumerate(self._readers)
                if reader.requests and self._may_read(index, split)
            ]
            if not waiting:
                kept.append(split)
                continue
            _, index = min(waiting)
            self._readers[index].assigned += 1
            self._readers[index].requests = False
            self._dry = False
            commands.append(AssignSplits(self.vertex, index, (split,)))
        self._pending.extendleft(reversed(kept))
        return commands

    def _may_read(self, index: int, split: Split) -> bool:
        return split.home is None or split.home % self.parallelism == index

    def _end(self) -> list[SplitCommand]:
        if not self._finished or not self.all_idle:
            return []
        self._drained = self._drain
        reached_us = START_OF_TIME_US if self._watermark_us is None else self._watermark_us
        commands = self._say_dry(END_OF_TIME_US if self._drain else reached_us)
        if not self._ended:
            self._ended = True
            commands.append(NoMoreSplits(self.vertex))
        return commands

    def _look(self, now_ms: float) -> list[SplitCommand]:
        if self._looking or not self._looks_on or now_ms < self._next_look_ms or self._is_stocked():
            return []
        self._looking = True
        self._look_counts = self.all_idle
        return [Discover(self.generation, self.vertex, self._state)]

    def _is_stocked(self) -> bool:
        if self.looks_ahead or self._frozen:  # what is there when a source is frozen is not to be found much later
            return len(self._pending) >= PENDING_PER_READER * self.parallelism
        return not any(reader.requests for reader in self._readers)  # to who waits, nothing is left to give

    def check_invariants(self) -> None:
        ids = [split.split_id for split in self._pending]
        assert len(ids) == len(set(ids)), "a split is pending once"
        waiting = [index for index, reader in enumerate(self._readers) if reader.requests]
        missed = [index for index in waiting if any(self._may_read(index, split) for split in self._pending)]
        assert not missed, "no reader waits while a split for it is pending"
        assert not (self._dry and not self.all_idle), "a dry source has idle readers only"
        assert not self._ended or (self._finished and not self._pending), "an ended source has given everything away"
        assert not (self._finished and self.all_idle and not self._dry), "a finished source is dry when it is read"
        assert not self._drained or (self._drain and self._finished), "event time ends when nothing more is found"
