"""Checkpoint messages between a slot and its subtasks."""

from __future__ import annotations

import math
import time
from typing import Any, cast

from penstock.model.elements import Alignment, Barrier
from penstock.model.ids import ChannelId, SubtaskId
from penstock.model.messages import AbortCheckpoint, TriggerCheckpoint
from penstock.worker.host import Inbox, InboxEvent
from penstock.worker.slot_host import SlotHost
from tests.support.protocol.hand_driven import graph_of


def host() -> SlotHost:
    graph = graph_of()
    made = SlotHost(graph, 0, cast(Any, None))
    for vertex in graph.vertices:
        inbox: Inbox[InboxEvent] = Inbox()
        made.add(SubtaskId(vertex.id, 0), inbox)
    return made


def trigger(checkpoint: int, alignment: Alignment, remaining_ms: int | None = None) -> TriggerCheckpoint:
    return TriggerCheckpoint(checkpoint, alignment, remaining_ms)


def test_a_trigger_says_when_barriers_overtake() -> None:
    slot, began_s = host(), time.monotonic()
    slot.from_driver(trigger(1, Alignment.ALIGNED))
    assert slot.pending_checkpoints.due_s(0, 0.0) == math.inf, "never"
    slot.from_driver(trigger(2, Alignment.ALIGNED, 60_000))
    assert began_s + 60 <= slot.pending_checkpoints.due_s(0, 0.0) <= time.monotonic() + 60
    slot.from_driver(trigger(3, Alignment.UNALIGNED))
    assert began_s <= slot.pending_checkpoints.due_s(0, 0.0) <= time.monotonic()


def test_a_barrier_that_overtook_says_it_too_and_a_dead_checkpoint_nothing() -> None:
    slot = host()
    slot.from_driver(trigger(1, Alignment.ALIGNED, 60_000))
    slot.send(ChannelId(0, 0, 0), Barrier(1, Alignment.ALIGNED, 59_000))
    assert slot.pending_checkpoints.due_s(0, 0.0) > time.monotonic()
    slot.send(ChannelId(0, 0, 0), Barrier(1, Alignment.UNALIGNED))
    assert slot.pending_checkpoints.due_s(0, 0.0) <= time.monotonic()
    slot.from_driver(AbortCheckpoint(1))
    assert slot.pending_checkpoints.due_s(0, 0.0) == math.inf
