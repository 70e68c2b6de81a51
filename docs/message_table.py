"""Table of all control messages.

A page marks its place with ``<!-- messages -->`` ... ``<!-- end -->``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import get_args

from penstock.model.messages import (
    AbortCheckpoint,
    AcknowledgeCheckpoint,
    AdvanceWatermark,
    AssignSplits,
    DeclineCheckpoint,
    FreezeReaders,
    NoMoreSplits,
    NotifyCheckpointComplete,
    PauseReaders,
    PollAgain,
    PollCompleted,
    ReaderStatus,
    RequestSplit,
    SlotRunning,
    SourceIdle,
    SubtaskFinished,
    TriggerCheckpoint,
)
from penstock.network.messages import (
    Deploy,
    Register,
    SlotFailed,
    SlotLogged,
    SlotMetrics,
    Stop,
    Stopped,
    ToDriver,
    ToSlot,
)

_PLACE = re.compile(r"<!-- messages -->\n.*?<!-- end -->", re.DOTALL)


@dataclass(frozen=True)
class _Route:
    """``end``: who gets it, or who says it. ``answers``: messages that it is answered by."""

    end: str
    when: str
    answers: tuple[type, ...] = ()


_EVERY_READER = "every reader of a source"
_TO_SLOT = {
    Deploy: _Route("each slot", "all slots have registered", (SlotRunning, SlotFailed)),
    TriggerCheckpoint: _Route(
        "every slot, for its sources",
        "an interval is over, or a snapshot is requested",
        (AcknowledgeCheckpoint, DeclineCheckpoint),
    ),
    NotifyCheckpointComplete: _Route("every subtask", "the snapshot is in the log"),
    AbortCheckpoint: _Route("every subtask", "the checkpoint was given up"),
    AssignSplits: _Route("one reader", "it has asked, and there is a split for it"),
    SourceIdle: _Route(_EVERY_READER, "all readers are idle and a discovery found nothing"),
    AdvanceWatermark: _Route("one reader", "other readers have reached a higher watermark"),
    FreezeReaders: _Route(_EVERY_READER, 'a drain or an "available now" run begins', (ReaderStatus, RequestSplit)),
    PauseReaders: _Route(_EVERY_READER, "a drain of in-flight data begins, ends or fails"),
    PollAgain: _Route(_EVERY_READER, "`processAllAvailable` waits", (PollCompleted,)),
    NoMoreSplits: _Route(_EVERY_READER, "the source has finished and is idle", (SubtaskFinished,)),
    Stop: _Route("every slot", "the query ends orderly", (Stopped,)),
}
_TO_DRIVER = {
    Register: _Route("a slot", "its task has started", (Deploy,)),
    SlotRunning: _Route("a slot", "its state is restored"),
    AcknowledgeCheckpoint: _Route("a slot", "all that it captured is durable", (NotifyCheckpointComplete,)),
    DeclineCheckpoint: _Route("a slot", "it cannot take part in a checkpoint", (AbortCheckpoint,)),
    RequestSplit: _Route("a reader", "it has nothing to read, or reads several splits at a time", (AssignSplits,)),
    ReaderStatus: _Route("a reader", "before each request; it becomes idle or busy", (SourceIdle,)),
    PollCompleted: _Route("a reader", "it has processed the input that existed at `PollAgain`"),
    SubtaskFinished: _Route("a subtask", "all of its input has ended"),
    SlotMetrics: _Route("a slot", "twice a second; it is the heartbeat, too"),
    SlotLogged: _Route("a slot", "lines were logged"),
    SlotFailed: _Route("a slot", "user code, data or the slot itself failed; it ends"),
    Stopped: _Route("a slot", "all of its threads have ended"),
}


def with_messages(page: str) -> str:
    """Return the page with the table as the code has it now."""
    assert set(_TO_SLOT) == set(get_args(ToSlot)), "a message to slots lacks its line, or has one too many"
    assert set(_TO_DRIVER) == set(get_args(ToDriver)), "a message to the driver lacks its line, or has one too many"
    rows = [_row(kind, "driver", route.end, route) for kind, route in _TO_SLOT.items()]
    rows += [_row(kind, route.end, "driver", route) for kind, route in _TO_DRIVER.items()]
    table = "\n".join(["| message | from | to | when | answered by |", "|---|---|---|---|---|", *rows])
    return _PLACE.sub(lambda _: f"<!-- messages -->\n{table}\n<!-- end -->", page)


def _row(kind: type, sender: str, receiver: str, route: _Route) -> str:
    answers = ", ".join(f"`{answer.__name__}`" for answer in route.answers)
    return f"| `{kind.__name__}` | {sender} | {receiver} | {route.when} | {answers} |"
