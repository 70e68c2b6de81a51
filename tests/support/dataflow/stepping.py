"""A compiled graph whose subtasks this thread steps one after the other, and the user CPU time of each step.

Between two steps a subtask answers its control messages: barriers, credit, a stop. So the longest step is what a
barrier waits for. Channels carry everything at once, and checkpoints are triggered all the time.
"""

from __future__ import annotations

import resource
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from penstock.config import Options
from penstock.connectors.base import SinkContext
from penstock.model.elements import END_OF_TIME_US, Alignment, Captured, Element
from penstock.model.ids import ChannelId, CheckpointId, SubtaskId
from penstock.model.job_graph import JobGraph
from penstock.model.manifest import InflightEntry
from penstock.model.messages import (
    AssignSplits,
    NoMoreSplits,
    PollCompleted,
    ReaderStatus,
    RequestSplit,
    SourceIdle,
    TriggerCheckpoint,
)
from penstock.operators.base import OperatorState
from penstock.worker.host import Arrived, Granted, InboxEvent, SubtaskCapture, SubtaskRestore, Triggered
from penstock.worker.subtask import Subtask

WITHIN_S = 120.0


def user_time_s() -> float:
    """Return this thread's CPU time outside the kernel. The kernel spends most of its time on pages of memory that the
    machine has to provide, and how long that takes says nothing about a step."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_utime


def piece_of_work_s() -> float:
    """Return the user CPU time of the same work each time: 50 ms on the machine where steps were measured."""
    began_s = user_time_s()
    for _ in range(15):
        sum(number % 7 for number in range(100_000))
    return user_time_s() - began_s


@dataclass
class Stepping:
    """Parallelism 1.

    Attributes:
        longest_s: the most user CPU time of this thread between two polls of control messages, by vertex.
        checkpoints: how many were captured by all subtasks.
    """

    graph: JobGraph
    options: Options = field(default_factory=Options)
    checkpoint_every: int = 20
    close_event_time: bool = True
    longest_s: dict[int, float] = field(default_factory=dict)
    checkpoints: int = 0

    def __post_init__(self) -> None:
        assert self.graph.parallelism == 1
        self._mail: deque[tuple[SubtaskId, InboxEvent]] = deque()
        self._captured: dict[CheckpointId, list[SubtaskCapture]] = {}
        self._asked: set[int] = set()
        self._ended: set[SubtaskId] = set()
        self.subtasks = [
            Subtask(
                vertex,
                self.graph,
                SubtaskId(vertex.id, 0),
                1,
                self.options,
                self,
                SubtaskRestore({}, (), (), {}, {}, 0),
                SinkContext("q", 1, 0, 1, "aa"),
            )
            for vertex in self.graph.vertices
        ]

    # -- SubtaskHost ----------------------------------------------------------------------------------------------

    def send(self, channel: ChannelId, element: Element) -> None:
        consumer = SubtaskId(self.graph.edge(channel.edge).consumer, 0)
        self._mail.append((consumer, Arrived(channel, element)))

    def grant(self, channel: ChannelId, credit: int) -> None:
        producer = SubtaskId(self.graph.edge(channel.edge).producer, 0)
        self._mail.append((producer, Granted(channel, credit)))

    def allow_capture(self, checkpoint: CheckpointId, captured_bytes: int) -> bool:
        return True

    def recorded(self, subtask: SubtaskId, checkpoint: CheckpointId, inflight: Sequence[Captured]) -> None:
        """Nothing is written."""

    def captured(self, capture: SubtaskCapture) -> None:
        for state in capture.operators.values():
            state.release()
        captures = self._captured.setdefault(capture.checkpoint, [])
        captures.append(capture)
        if len(captures) == len(self.subtasks):
            del self._captured[capture.checkpoint]
            self.checkpoints += 1

    def finished(self, subtask: SubtaskId) -> None:
        self._ended.add(subtask)

    def dropped(self, states: Sequence[OperatorState]) -> None:
        """Nothing is aborted."""

    def declined(self, subtask: SubtaskId, checkpoint: CheckpointId, reason: str) -> None:
        raise AssertionError(reason)

    def load(self, subtask: SubtaskId, entry: InflightEntry) -> None:
        raise AssertionError("nothing is recovered")

    def tell_assigner(self, message: RequestSplit | ReaderStatus | PollCompleted) -> None:
        """Assign all splits at once. When they are read, event time and the source end."""
        vertex = message.vertex
        subtask = SubtaskId(vertex, 0)
        if isinstance(message, RequestSplit) and vertex not in self._asked:
            self._asked.add(vertex)
            source = self.graph.vertex(vertex).source
            assert source is not None
            splits = list(source.source.discover(None, 1).splits)
            self._mail.append((subtask, AssignSplits(vertex, 0, tuple(splits))))
        elif isinstance(message, ReaderStatus) and not message.unread and vertex in self._asked - self._read:
            self._read.add(vertex)
            if self.close_event_time:
                self._mail.append((subtask, SourceIdle(vertex, END_OF_TIME_US)))
            self._mail.append((subtask, NoMoreSplits(vertex)))

    # -- driving --------------------------------------------------------------------------------------------------

    @property
    def _read(self) -> set[int]:
        return self.__dict__.setdefault("_read_vertices", set())

    def run(self) -> None:
        """Until all input is processed and a last checkpoint is captured."""
        deadline, triggered = time.monotonic() + WITHIN_S, 0
        for turn in self._turns():
            assert time.monotonic() < deadline, f"{self.longest_s}, {self.subtasks[-1].report}"
            is_over = len(self._ended) == len(self.subtasks)
            if is_over and self.checkpoints == triggered:
                return
            if not is_over and turn % self.checkpoint_every == 0 and self.checkpoints == triggered:
                triggered += 1
                for vertex in self.graph.vertices:
                    if vertex.source is not None:
                        self._mail.append(
                            (SubtaskId(vertex.id, 0), Triggered(TriggerCheckpoint(triggered, Alignment.UNALIGNED)))
                        )

    def _turns(self) -> Iterator[int]:
        turn = 0
        while True:
            worked = False
            for subtask in self.subtasks:
                worked |= self._step(subtask)
            if not worked and not self._mail:
                time.sleep(0.001)
            yield turn
            turn += 1

    def _step(self, subtask: Subtask) -> bool:
        self._deliver()
        began_s = user_time_s()
        worked = subtask.step(time.time() * 1000).worked
        took_s = user_time_s() - began_s
        vertex = subtask.subtask.vertex
        self.longest_s[vertex] = max(took_s, self.longest_s.get(vertex, 0.0))
        return worked

    def _deliver(self) -> None:
        by_id = {subtask.subtask: subtask for subtask in self.subtasks}
        while self._mail:
            to, event = self._mail.popleft()
            by_id[to].inbox.append(event)

    def close(self) -> None:
        for subtask in self.subtasks:
            subtask.close()
