"""Routing of the requests of a slot's subtasks: to a subtask of the same slot, a peer, the driver or the disk."""

from __future__ import annotations

import time
from collections.abc import Sequence

from penstock.errors import GenerationFailed
from penstock.model.elements import Alignment, Barrier, Captured, Element
from penstock.model.ids import ChannelId, CheckpointId, SubtaskId
from penstock.model.job_graph import JobGraph
from penstock.model.manifest import InflightEntry
from penstock.model.messages import (
    AbortCheckpoint,
    NotifyCheckpointComplete,
    PollCompleted,
    ReaderStatus,
    RequestSplit,
    SubtaskFinished,
    ToSubtask,
    TriggerCheckpoint,
)
from penstock.network.control_link import send
from penstock.network.element_codec import DataDecoder, DataEncoder, ReceivedElement, ReceivedGrant
from penstock.network.frames import Message
from penstock.network.transport import Link
from penstock.operators.base import OperatorState
from penstock.worker.barrier_yield import PendingCheckpoints
from penstock.worker.checkpoint_uploader import CheckpointUploader
from penstock.worker.host import Arrived, Granted, Inbox, InboxEvent, RecoveredLoaded, SubtaskCapture, Triggered
from penstock.worker.inflight_loader import InflightLoader


class Peer:
    """Data link to another slot. Each edge is sent by one thread only: that of its producing subtask."""

    def __init__(self, me: int, peer: int) -> None:
        self.link: Link | None = None
        self.encoder = DataEncoder()
        self.decoder = DataDecoder(me, peer)

    def element(self, edge: int, element: Element) -> None:
        assert self.link is not None
        for kind, parts in self.encoder.element(edge, element):
            self.link.send(kind, edge, parts)

    def grant(self, edge: int, credit: int) -> None:
        assert self.link is not None
        kind, parts = self.encoder.grant(credit)
        self.link.send(kind, edge, parts)


class SlotHost:
    """``SubtaskHost`` of all subtasks of one slot, and the receiver of messages from peers and the driver.

    Before the first subtask is stepped, every subtask's inbox must be added with ``add``, and every peer's link must be
    open.
    """

    def __init__(self, graph: JobGraph, slot: int, control: Link) -> None:
        self._slot = slot
        self._control = control
        self._consumers = {edge.id: SubtaskId(edge.consumer, slot) for edge in graph.edges}
        self._producers = {edge.id: SubtaskId(edge.producer, slot) for edge in graph.edges}
        self._sources = [SubtaskId(v.id, slot) for v in graph.vertices if v.source is not None]
        self._inboxes: dict[SubtaskId, Inbox[InboxEvent]] = {}
        self.peers = {peer: Peer(slot, peer) for peer in range(graph.parallelism) if peer != slot}
        self.pending_checkpoints = PendingCheckpoints()
        self.uploader: CheckpointUploader | None = None
        self.loader: InflightLoader | None = None

    def add(self, subtask: SubtaskId, inbox: Inbox[InboxEvent]) -> None:
        self._inboxes[subtask] = inbox

    # -- SubtaskHost: called by subtasks, each on its thread ------------------------------------------------------

    def send(self, channel: ChannelId, element: Element) -> None:
        if channel.consumer == self._slot:
            self._inboxes[self._consumers[channel.edge]].append(self._arrived(channel, element))
        else:
            self.peers[channel.consumer].element(channel.edge, element)

    def grant(self, channel: ChannelId, credit: int) -> None:
        if channel.producer == self._slot:
            self._inboxes[self._producers[channel.edge]].append(Granted(channel, credit))
        else:
            self.peers[channel.producer].grant(channel.edge, credit)

    def allow_capture(self, checkpoint: CheckpointId, captured_bytes: int) -> bool:
        assert self.uploader is not None
        return self.uploader.allow(checkpoint, captured_bytes)

    def recorded(self, subtask: SubtaskId, checkpoint: CheckpointId, inflight: Sequence[Captured]) -> None:
        assert self.uploader is not None
        self.uploader.recorded(subtask, checkpoint, inflight)

    def captured(self, capture: SubtaskCapture) -> None:
        assert self.uploader is not None
        self.uploader.captured(capture)

    def dropped(self, states: Sequence[OperatorState]) -> None:
        assert self.uploader is not None
        self.uploader.dropped(states)

    def declined(self, subtask: SubtaskId, checkpoint: CheckpointId, reason: str) -> None:
        assert self.uploader is not None
        self.uploader.declined(checkpoint, f"{subtask}: {reason}")

    def tell_assigner(self, message: RequestSplit | ReaderStatus | PollCompleted) -> None:
        send(self._control, message)

    def finished(self, subtask: SubtaskId) -> None:
        send(self._control, SubtaskFinished(subtask.vertex, subtask.index))

    def load(self, subtask: SubtaskId, entry: InflightEntry) -> None:
        assert self.loader is not None
        self.loader.load(subtask, entry)

    # -- incoming events: called on the I/O thread and the load thread --------------------------------------------

    def loaded(self, subtask: SubtaskId, event: RecoveredLoaded) -> None:
        self._inboxes[subtask].append(event)

    def from_peer(self, peer: int, message: Message) -> None:
        """Handle a message of a peer. Raises GenerationFailed if it is damaged or for an edge that does not exist."""
        received = self.peers[peer].decoder.decode(message)
        if message.stream not in self._consumers:
            raise GenerationFailed(f"slot {peer} sent something on edge {message.stream}, which does not exist")
        if isinstance(received, ReceivedElement):
            arrived = self._arrived(received.channel, received.element)
            self._inboxes[self._consumers[received.channel.edge]].append(arrived)
        elif isinstance(received, ReceivedGrant):
            self._inboxes[self._producers[received.channel.edge]].append(Granted(received.channel, received.credit))

    def from_driver(self, message: ToSubtask) -> None:
        """Pass a message to the subtasks for which it is meant."""
        match message:
            case TriggerCheckpoint(checkpoint, alignment, remaining_ms, base):
                if self.uploader is not None:
                    self.uploader.triggered(checkpoint, base)
                now_s = time.monotonic()
                if alignment is Alignment.UNALIGNED:
                    self.pending_checkpoints.began(checkpoint, now_s)
                elif remaining_ms is not None:
                    self.pending_checkpoints.began(checkpoint, now_s + remaining_ms / 1000)
                for source in self._sources:
                    self._inboxes[source].append(Triggered(message, now_s))
            case NotifyCheckpointComplete(checkpoint):
                if self.uploader is not None:
                    self.uploader.completed(checkpoint)
                self._to_all(message)
            case AbortCheckpoint(checkpoint):
                self.pending_checkpoints.ended(checkpoint)
                self._to_all(message)
                if self.uploader is not None:
                    self.uploader.aborted(checkpoint)
            case _:
                self._inboxes[SubtaskId(message.vertex, self._slot)].append(message)

    def _to_all(self, event: InboxEvent) -> None:
        for inbox in self._inboxes.values():
            inbox.append(event)

    def _arrived(self, channel: ChannelId, element: Element) -> Arrived:
        """Return the event of an arrived element.

        Barriers get a time stamp, because they may wait for a step. A barrier that overtook makes its checkpoint
        unaligned in this slot, no matter how it was triggered.
        """
        if not isinstance(element, Barrier):
            return Arrived(channel, element)
        now_s = time.monotonic()
        if element.alignment is Alignment.UNALIGNED:
            self.pending_checkpoints.began(element.checkpoint, now_s)
        return Arrived(channel, element, now_s)
