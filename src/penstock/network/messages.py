"""The control link between a slot and the driver: tagged msgspec structs as MessagePack frames, FIFO both ways."""

from __future__ import annotations

import msgspec

from penstock.model.manifest import SubtaskManifest
from penstock.model.messages import (
    AcknowledgeCheckpoint,
    DeclineCheckpoint,
    PollCompleted,
    ReaderStatus,
    RequestSplit,
    SlotRunning,
    SubtaskFinished,
    ToSubtask,
)
from penstock.model.metrics import SubtaskReport
from penstock.snapshots.store.store_access import StoreAccess


class Register(msgspec.Struct, frozen=True, tag=True):
    """Slot -> driver, first message: ready to be deployed. The link was authenticated before.

    ``task_number``: index of the Spark task; ``Deploy`` assigns the slot. ``remembers``: the slots whose tables are
    still in its memory.
    """

    task_number: int
    generation: int
    version: str
    pid: int
    data_host: str
    data_port: int
    remembers: list[int] = []


class SlotFailed(msgspec.Struct, frozen=True, tag=True):
    """``kind``: ``function`` (user code), ``data`` or ``internal``. The slot ends after sending it."""

    slot: int
    kind: str
    operator: str
    message: str
    traceback: str
    position: str


class SlotMetrics(msgspec.Struct, frozen=True, tag=True):
    """Sent about twice a second; also the heartbeat."""

    slot: int
    subtasks: list[SubtaskReport]


class LoggedLine(msgspec.Struct, frozen=True):
    """``at_s``: since 1970. ``level``: of ``logging``. ``exception``: the end of a traceback, or empty."""

    at_s: float
    level: int
    logger: str
    message: str
    exception: str


class SlotLogged(msgspec.Struct, frozen=True, tag=True):
    """Log lines of a slot: at least one, the oldest first. ``left_out``: number of lines that followed them."""

    slot: int
    lines: list[LoggedLine]
    left_out: int


class Stopped(msgspec.Struct, frozen=True, tag=True):
    """All threads of the slot ended in answer to ``Stop``."""

    slot: int


class Deploy(msgspec.Struct, frozen=True, tag=True):
    """Driver to slot, after all slots have registered: number of the slot, its peers and what to restore.

    ``peers``: host and port by slot. Without a snapshot (0) the slot starts empty. ``access``: access to the location
    if that is on an object store. ``paused``: sources read nothing before ``PauseReaders``.
    """

    slot: int
    peers: list[tuple[str, int]]
    subtasks: list[SubtaskManifest]
    restored: int = 0
    access: StoreAccess | None = None
    paused: bool = False


class Stop(msgspec.Struct, frozen=True, tag=True):
    """End orderly: threads, sockets, temporary files."""


ToDriver = (
    Register
    | SlotRunning
    | AcknowledgeCheckpoint
    | DeclineCheckpoint
    | RequestSplit
    | ReaderStatus
    | PollCompleted
    | SubtaskFinished
    | SlotFailed
    | SlotMetrics
    | SlotLogged
    | Stopped
)
ToSlot = Deploy | ToSubtask | Stop
