"""Split assigner: assigns the splits of a source to its readers, and detects that the source is idle or finished.

There is one state machine per source vertex. It owns the discovery state and the splits that were discovered but not
yet assigned. A split is assigned in answer to one request, to one reader, and belongs to that reader from then on.
Everything is in discovery order, so a restored assigner assigns the same splits.

*Idle*: a reader is idle when its status reports no unread split and none is in flight to it. A split whose rows are
still held by user functions counts as unread. The source is idle when all readers are idle, nothing is pending, and a
discovery that began after that found nothing. Then event time may rise to the largest watermark that a reader has seen.
``SourceIdle`` is sent once; only a new split, or a higher watermark, makes it possible again.

*Finished*: a discovery may report that it is the last one. After that nothing is discovered any more. The source has
ended when everything is assigned and all readers are idle; ``NoMoreSplits`` is sent once. Readers end after the
watermark of ``SourceIdle``. Otherwise the windows that are open at the end would depend on which reader read which
split. A source that ends without a row ends at the start of event time, so that no other source gets ahead of rows that
a later run may find in this one.

*Freezing* ends an endless source: the source and, once all of them run, its readers read the input that exists now and
end. Requests and statuses from before ``FreezeReaders`` are void, because the reader may have reported that it was idle
while rows existed. A *drained* source is frozen and ends with event time: its last watermark is the largest one. All
rows that it would read after that would be late, so a restored one ends without another discovery.

A reader without event time follows the watermark of other readers in a round (``event_time_rounds``).

*Pausing*: while in-flight data is drained, readers read nothing and nothing is discovered. Splits that were discovered
before are still assigned, and a running discovery is still completed.

*Planned batch*: a location that begins with a planned batch reads the splits of that batch first. There is no discovery
until ``ReleaseDiscovery``, because the rows of the batch must form one epoch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import assert_never

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
"""Number of pending splits per reader below which more are discovered. Every snapshot stores the pending splits."""
EMPTY_DISCOVERY_PAUSE_MS = 100
"""Pause after a discovery that found nothing. It trades the latency of an idle source against the cost of listing."""
FOUND_DISCOVERY_PAUSE_MS = 10
"""Pause after a discovery that found splits, so that a source that always finds a few does not cause a busy loop."""


# -- events -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SplitsFound:
    """Reports the result of the discovery that ``Discover`` commanded."""

    generation: GenerationId
    vertex: int
    discovery: Discovery


@dataclass(frozen=True)
class ReleaseDiscovery:
    """Begin to discover, because the planned batch is complete."""


@dataclass(frozen=True)
class Freeze:
    """Read the input that exists now, and end. Takes effect once per generation.

    ``drain``: event time ends, too. A second event may set it later.
    """

    drain: bool = False


@dataclass(frozen=True)
class Pause:
    """Pause reading and discovery, or (``paused`` is False) resume. Allowed only while all readers run."""

    paused: bool


SplitEvent = Tick | SplitsFound | FromReader | AllSlotsRunning | ReleaseDiscovery | Freeze | Pause

# -- commands ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Discover:
    """Call ``Source.discover(state, parallelism)``; one call at a time."""

    generation: GenerationId
    vertex: int
    state: Plain


@dataclass(frozen=True)
class FreezeSource:
    """Call ``Source.freeze()``, in order with ``Discover``."""

    generation: GenerationId
    vertex: int


SplitCommand = Discover | FreezeSource | ToReader


@dataclass
class Reader:
    """The assigner's view of one reader.

    Attributes:
        assigned: number of splits assigned to it in this generation.
        requests: True while its request is open.
        status: the newest status; None: there is no valid one yet.
        watermark_us: the largest watermark that it has reported as sent.
        is_stalled: True if it is idle, or its watermark is the same as in the previous report.
        target_us: the watermark of the last ``AdvanceWatermark`` to it.
    """

    assigned: int = 0
    requests: bool = False
    status: ReaderStatus | None = None
    watermark_us: int | None = None
    is_stalled: bool = False
    target_us: int | None = None

    @property
    def idle(self) -> bool:
        return self.status is not None and self.unread == 0

    @property
    def unread(self) -> int:
        """Number of unread splits, including those in flight to the reader."""
        on_the_way = self.assigned - (0 if self.status is None else self.status.received)
        return on_the_way + (0 if self.status is None else self.status.unread)


@dataclass(frozen=True)
class DiscoveredSplits:
    """Splits that one discovery found, by id, and the discovery state after it."""

    serial: int
    state: Plain
    split_ids: frozenset[str]


@dataclass(frozen=True)
class SourceCapture:
    """The driver's part of a source in a checkpoint. ``discoveries``: those whose splits may not all be read."""

    manifest: SourceManifest
    discoveries: tuple[DiscoveredSplits, ...]


def last_fully_read(capture: SourceCapture, unread: Collection[str]) -> DiscoveredSplits | None:
    """Return the newest discovery of a complete snapshot whose splits, and all before them, were read.

    ``Source.committed`` is called with its state. Return None if no discovery was read to its end.

    Args:
        unread: ids of the splits that readers hold in the snapshot.
    """
    open_ids = {split.split_id for split in capture.manifest.pending}.union(unread)
    newest = None
    for discovery in capture.discoveries:
        if not discovery.split_ids.isdisjoint(open_ids):
            break
        newest = discovery
    return newest


@dataclass
class SplitAssigner:
    """Pure state machine of one source vertex in one generation.

    Args:
        generation: number of the generation.
        operator_id: the source operator.
        vertex: its vertex.
        parallelism: number of readers.
        restored: its manifest in the restored snapshot, or None at the first start.
        restored_unread: ids of the splits that the snapshot assigns to readers.
        discovers_ahead: see ``Source.discovers_ahead``.
        discovery_held: True if there is no discovery before ``ReleaseDiscovery``.
        paused: True if readers begin paused, and there is no discovery before ``Pause(False)``.
    """

    generation: GenerationId
    operator_id: str
    vertex: int
    parallelism: int
    restored: SourceManifest | None = None
    restored_unread: Collection[str] = ()
    discovers_ahead: bool = True
    discovery_held: bool = False
    paused: bool = False
    _state: Plain = field(init=False, default=None)
    _pending: deque[Split] = field(init=False, default_factory=deque)
    _readers: list[Reader] = field(init=False)
    _discovering: bool = field(init=False, default=False)
    _began_idle: bool = field(init=False, default=False)
    _next_discovery_ms: float = field(init=False, default=0.0)
    _idle: bool = field(init=False, default=False)
    _idle_at_us: int | None = field(init=False, default=None)
    _running: bool = field(init=False, default=False)
    _frozen: bool = field(init=False, default=False)
    _drain: bool = field(init=False, default=False)
    _drained: bool = field(init=False, default=False)
    _finished: bool = field(init=False, default=False)
    _end_sent: bool = field(init=False, default=False)
    _discoveries: list[DiscoveredSplits] = field(init=False, default_factory=list)
    _serial: int = field(init=False, default=0)
    _newest_read: int = field(init=False, default=-1)
    _watermark_us: int | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self._readers = [Reader() for _ in range(self.parallelism)]
        if self.restored is not None:
            self._state = self.restored.state
            self._drained = self._drain = self._finished = self.restored.drained
            self._pending.extend(self.restored.pending)
            ids = [split.split_id for split in self._pending] + list(self.restored_unread)
            self._discoveries.append(DiscoveredSplits(0, self._state, frozenset(ids)))

    @property
    def is_idle(self) -> bool:
        """True if ``SourceIdle`` was sent and nothing was found since."""
        return self._idle

    @property
    def finished(self) -> bool:
        """True after the last discovery of this run. Its splits may not be assigned or read yet."""
        return self._finished

    @property
    def can_drain(self) -> bool:
        """True while ``Freeze(drain=True)`` has an effect: readers that have ended do not advance event time."""
        return self._drain or not self._end_sent

    @property
    def pending(self) -> int:
        return len(self._pending)

    @property
    def readers(self) -> Sequence[Reader]:
        """Readers by index."""
        return self._readers

    @property
    def pending_ids(self) -> set[str]:
        """Ids of the splits that were discovered but not assigned."""
        return {split.split_id for split in self._pending}

    @property
    def readers_idle(self) -> bool:
        """True if every reader is idle and no split is pending."""
        return not self._pending and all(reader.idle for reader in self._readers)

    def next_wake_ms(self) -> float | None:
        """Return the time of the next discovery; None while one runs, enough splits are pending, or none is needed."""
        if self._discovering or not self._may_discover or self._has_enough_pending():
            return None
        return self._next_discovery_ms

    @property
    def _may_discover(self) -> bool:
        return not (self.discovery_held or self.paused or self._finished)

    def handle(self, event: SplitEvent, now_ms: float) -> list[SplitCommand]:
        """Handle one event. Execute the returned commands in order."""
        commands: list[SplitCommand] = []
        match event:
            case RequestSplit():
                commands = self._on_requested(event)
            case ReaderStatus():
                self._on_status(event)
            case ReaderProgressed():
                self._on_progressed(event)
            case SplitsFound():
                commands = self._on_found(event, now_ms)
            case AllSlotsRunning():
                self._running = True
                commands = [FreezeReaders(self.vertex)] if self._frozen else []
            case ReleaseDiscovery():
                self.discovery_held = False
            case Freeze():
                commands = self._on_freeze(event, now_ms)
            case Pause(paused):
                self.paused = paused
                commands = [PauseReaders(self.vertex, paused)]
            case Tick():
                pass
            case _:
                assert_never(event)
        return commands + self._end() + self._discover_if_due(now_ms)

    def capture(self) -> SourceCapture:
        """Return the discovery state and the pending splits.

        The checkpoint must be triggered before any other event is handled.
        """
        manifest = SourceManifest(self.operator_id, self.vertex, self._state, list(self._pending), self._drained)
        return SourceCapture(manifest, tuple(self._discoveries))

    def mark_read(self, discovery: DiscoveredSplits) -> bool:
        """Forget a discovery whose splits are read, and those before it.

        Returns:
            False if it was marked before, because an older snapshot may complete after a newer one.
        """
        is_newer = discovery.serial > self._newest_read
        self._newest_read = max(self._newest_read, discovery.serial)
        self._discoveries = [known for known in self._discoveries if known.serial > self._newest_read]
        return is_newer

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
        reader.is_stalled = reader.idle
        self._record_sent(reader, event.watermark_us)
        if event.seen_us is not None and (self._watermark_us is None or event.seen_us > self._watermark_us):
            self._watermark_us = event.seen_us
            self._idle = False
        if event.unread:
            self._idle = False

    def _reader(self, event: RequestSplit | ReaderStatus) -> Reader:
        if not 0 <= event.index < self.parallelism:
            raise ProtocolViolation(f"splits(vertex={self.vertex})", f"{self.parallelism} readers", repr(event))
        return self._readers[event.index]

    def _on_progressed(self, event: ReaderProgressed) -> None:
        reader = self._readers[event.index]
        reader.is_stalled = reader.idle or event.watermark_us == reader.watermark_us
        self._record_sent(reader, event.watermark_us)

    @staticmethod
    def _record_sent(reader: Reader, watermark_us: int | None) -> None:
        if watermark_us is not None:
            reader.watermark_us = max(watermark_us, reader.watermark_us or watermark_us)

    def _on_freeze(self, event: Freeze, now_ms: float) -> list[SplitCommand]:
        self._drain = self._drain or event.drain
        if self._frozen:
            return []
        self._frozen = True
        self._idle = False
        for reader in self._readers:
            reader.requests, reader.status = False, None
        self._next_discovery_ms = now_ms
        source: list[SplitCommand] = [] if self._finished else [FreezeSource(self.generation, self.vertex)]
        return source + ([FreezeReaders(self.vertex)] if self._running else [])

    def _on_found(self, event: SplitsFound, now_ms: float) -> list[SplitCommand]:
        if not self._discovering:
            raise ProtocolViolation(f"splits(vertex={self.vertex})", "no discovery runs", repr(event)[:200])
        self._discovering = False
        found = event.discovery
        self._state = found.state
        self._finished = found.finished
        if found.splits:
            self._serial += 1
            ids = frozenset(split.split_id for split in found.splits)
            self._discoveries.append(DiscoveredSplits(self._serial, found.state, ids))
            self._pending.extend(found.splits)
            self._idle = False
            self._next_discovery_ms = now_ms + FOUND_DISCOVERY_PAUSE_MS
            return self._assign()
        self._next_discovery_ms = now_ms + EMPTY_DISCOVERY_PAUSE_MS
        if self._finished or not self._began_idle or not self.readers_idle:
            return []
        return self._report_idle(self._watermark_us)

    def _report_idle(self, watermark_us: int | None) -> list[SplitCommand]:
        if self._idle and self._idle_at_us == watermark_us:
            return []
        self._idle, self._idle_at_us = True, watermark_us
        return [SourceIdle(self.vertex, watermark_us)]

    def _assign(self) -> list[SplitCommand]:
        """Assign pending splits to readers with an open request.

        A split goes to its home, or without one to the reader with the fewest unread splits, then the lowest index.
        """
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
            self._idle = False
            commands.append(AssignSplits(self.vertex, index, (split,)))
        self._pending.extendleft(reversed(kept))
        return commands

    def _may_read(self, index: int, split: Split) -> bool:
        return split.home is None or split.home % self.parallelism == index

    def _end(self) -> list[SplitCommand]:
        if not self._finished or not self.readers_idle:
            return []
        self._drained = self._drain
        reached_us = START_OF_TIME_US if self._watermark_us is None else self._watermark_us
        commands = self._report_idle(END_OF_TIME_US if self._drain else reached_us)
        if not self._end_sent:
            self._end_sent = True
            commands.append(NoMoreSplits(self.vertex))
        return commands

    def _discover_if_due(self, now_ms: float) -> list[SplitCommand]:
        if (
            self._discovering
            or not self._may_discover
            or now_ms < self._next_discovery_ms
            or self._has_enough_pending()
        ):
            return []
        self._discovering = True
        self._began_idle = self.readers_idle
        return [Discover(self.generation, self.vertex, self._state)]

    def _has_enough_pending(self) -> bool:
        if self.discovers_ahead or self._frozen:  # input that exists at the freeze must not be found much later
            return len(self._pending) >= PENDING_PER_READER * self.parallelism
        # readers with an open request have no pending split
        return not any(reader.requests for reader in self._readers)

    def check_invariants(self) -> None:
        ids = [split.split_id for split in self._pending]
        assert len(ids) == len(set(ids)), "a split is pending once"
        waiting = [index for index, reader in enumerate(self._readers) if reader.requests]
        missed = [index for index in waiting if any(self._may_read(index, split) for split in self._pending)]
        assert not missed, "no reader waits while a split for it is pending"
        assert not (self._idle and not self.readers_idle), "an idle source has idle readers only"
        assert not self._end_sent or (self._finished and not self._pending), "an ended source has assigned everything"
        assert not (self._finished and self.readers_idle and not self._idle), "a finished source is idle at its end"
        assert not self._drained or (self._drain and self._finished), "event time ends when nothing more is found"
