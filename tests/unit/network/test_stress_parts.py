"""The small classes that threads meet at, thousands of times over: nothing is lost, nothing comes twice, and nobody
sleeps through what is meant for him (a hang is a failure).

Senders wait for the answer to each message before they send the next: a lost wake-up would otherwise be healed by it.
"""

from __future__ import annotations

import inspect
import math
import queue
import random
import socket
import threading
import time
from collections.abc import Iterator, Sequence

import pytest

from penstock.connectors.python import prefetch_thread
from penstock.connectors.python.prefetch_thread import PrefetchThread
from penstock.errors import PenstockError
from penstock.model.ids import SubtaskId
from penstock.network import transport
from penstock.network.frames import Message, MessageKind
from penstock.network.handshake import ClientHandshake, Identity, ServerHandshake
from penstock.network.secret import Secret, nonce
from penstock.network.transport import IoLoop, Link, Listener, connect
from penstock.worker import barrier_yield
from penstock.worker import host as host_module
from penstock.worker import subtask_thread as subtask_thread_module
from penstock.worker.barrier_yield import PendingCheckpoints
from penstock.worker.host import Inbox, StepResult
from penstock.worker.subtask_thread import SubtaskThread
from tests.support.interrupted import ANYWHERE, OFTEN, Times, switching, together

pytestmark = pytest.mark.slow

INTERRUPTED_FILES = {
    inspect.getfile(module)
    for module in (barrier_yield, host_module, prefetch_thread, subtask_thread_module, transport)
}
ANSWER_S = 10.0
"""What is not answered by then never will be."""
SECRET = Secret.generate()


@pytest.fixture(params=[OFTEN, ANYWHERE], autouse=True)
def times(request: pytest.FixtureRequest) -> Iterator[Times]:
    with switching(request.param, INTERRUPTED_FILES) as made:
        yield made


class Answering:
    """Stands for a subtask: answers every event to its sender, and then has nothing to do until it is woken.

    Attributes:
        inputs: steps that were allowed to take input.
    """

    def __init__(self, senders: int) -> None:
        self.inbox: Inbox[tuple[int, int]] = Inbox()
        self.answers: list[queue.SimpleQueue[int]] = [queue.SimpleQueue() for _ in range(senders)]
        self.inputs = self.captured = 0
        self.worked = False
        self.closed = 0

    def step(self, now_ms: float, take_input: bool, within_ms: float) -> StepResult:
        self.inputs += take_input
        while (event := self.inbox.pop()) is not None:
            sender, number = event
            self.answers[sender].put(number)
        return StepResult(self.worked)

    def close(self) -> None:
        self.closed += 1

    def ask(self, sender: int, count: int) -> None:
        for number in range(count):
            self.inbox.append((sender, number))
            try:
                assert self.answers[sender].get(timeout=ANSWER_S) == number
            except queue.Empty:
                pytest.fail(f"event {number} of sender {sender} lies in the inbox and nobody was woken")


def start(subtask: Answering, underway: PendingCheckpoints, failures: list[BaseException]) -> SubtaskThread:
    built = threading.Event()
    thread = SubtaskThread(
        SubtaskId(0, 0),
        lambda: subtask,  # type: ignore[arg-type,return-value]
        lambda made: built.set(),
        lambda identity, problem: failures.append(problem),
        underway,
    )
    thread.start()
    assert built.wait(ANSWER_S)
    return thread


def stop(thread: SubtaskThread) -> None:
    thread.stop()
    thread.thread.join(ANSWER_S)
    assert not thread.thread.is_alive(), "a subtask that was stopped sleeps on"


def test_no_append_to_an_inbox_is_slept_through(times: Times) -> None:
    senders, failures = 3, list[BaseException]()
    subtask = Answering(senders)
    thread = start(subtask, PendingCheckpoints(), failures)
    thread.go()
    together(*(lambda sender=sender: subtask.ask(sender, times(3_000)) for sender in range(senders)))  # type: ignore[misc]
    stop(thread)
    assert (failures, subtask.closed) == ([], 1)


def test_a_resting_subtask_still_answers(times: Times, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step is taken for a long one, while checkpoints begin and end on other threads."""
    monkeypatch.setattr(barrier_yield, "LONG_STEP_S", -1.0)
    monkeypatch.setattr(barrier_yield, "MOMENT_S", 0.0002)
    subtask, underway, failures = Answering(2), PendingCheckpoints(), list[BaseException]()
    subtask.worked = True
    thread = start(subtask, underway, failures)
    thread.go()

    def checkpoints(first: int) -> None:
        for checkpoint in range(first, times(20_000), 2):
            underway.began(checkpoint, time.monotonic())
            underway.ended(checkpoint)

    together(
        lambda: checkpoints(1),
        lambda: checkpoints(2),
        lambda: subtask.ask(0, times(1_000)),
        lambda: subtask.ask(1, times(1_000)),
    )
    assert underway.newest(math.inf) is None
    before = subtask.inputs
    together(lambda: subtask.ask(0, 100))
    deadline = time.monotonic() + ANSWER_S
    while subtask.inputs == before:
        assert time.monotonic() < deadline, "with no checkpoint under way it rests for ever"
        time.sleep(0.001)
    stop(thread)
    assert failures == []


def test_no_checkpoint_is_under_way_for_ever(times: Times) -> None:
    """Subtasks hear of a checkpoint while another thread ends it: the last word is that it ended."""
    underway, count = PendingCheckpoints(), times(5_000)

    def hear() -> None:
        for checkpoint in range(1, count):
            underway.began(checkpoint, time.monotonic())

    def end() -> None:
        for checkpoint in range(1, count):
            underway.ended(checkpoint)

    for _ in range(10):
        together(hear, hear, end)
        assert underway.newest(math.inf) is None
        underway = PendingCheckpoints()


def test_subtask_threads_end_whenever_they_are_stopped(times: Times) -> None:
    chance = random.Random(3)
    for _ in range(times(3_000)):
        failures: list[BaseException] = []
        subtask = Answering(1)
        thread = start(subtask, PendingCheckpoints(), failures)
        if chance.random() < 0.8:
            thread.go()
        for number in range(chance.randrange(3)):
            subtask.inbox.append((0, number))
        stop(thread)
        assert (failures, subtask.closed) == ([], 1)


@pytest.mark.parametrize("capacity", [1, 2, 7, 100])
def test_a_pump_hands_over_every_item_once_and_in_order(times: Times, capacity: int) -> None:
    items = times(6_000)

    def weight(item: int) -> int:
        return item % 3 + 1

    def read(seed: int) -> None:
        chance = random.Random(seed)
        prefetch = PrefetchThread("stress", lambda stop: iter(range(items)), capacity, weight)
        taken: list[int] = []
        progress_at = time.monotonic()
        while not prefetch.finished:
            some = prefetch.take(chance.choice((1, 5, 1_000)))
            assert sum(map(weight, some[:-1])) < 1_000
            taken += some
            if some:
                progress_at = time.monotonic()
            assert time.monotonic() - progress_at < ANSWER_S, f"nothing comes behind {len(taken)} items"
        assert taken == list(range(items))
        prefetch.close()

    together(lambda: read(capacity), lambda: read(capacity + 1))


def test_pumps_end_whenever_they_are_closed(times: Times) -> None:
    """Full and waiting for room, in the middle of an item, failed, or at the end."""
    chance = random.Random(5)

    def produce(count: int, fails: bool) -> Iterator[int]:
        yield from range(count)
        if fails:
            raise ValueError("the user's")

    for _ in range(times(2_000)):
        count, fails = chance.randrange(40), chance.random() < 0.3
        prefetch = PrefetchThread(
            "stress", lambda stop, c=count, f=fails: produce(c, f), chance.randrange(1, 20), lambda item: 1
        )  # type: ignore[misc]
        try:
            for _ in range(chance.randrange(4)):
                prefetch.take(chance.randrange(1, 30))
        except ValueError:
            assert fails
        prefetch.close()
        assert not prefetch._thread.is_alive(), "close came, and the producer sleeps on"


class End:
    """One side of a link. ``answer``: sends every message back."""

    def __init__(self, answer: bool) -> None:
        self.opened = threading.Event()
        self.closed: queue.SimpleQueue[PenstockError | None] = queue.SimpleQueue()
        self.by_stream: dict[int, queue.SimpleQueue[bytes]] = {}
        self._answer = answer
        self.link: Link | None = None

    def make(self, loop: IoLoop, sock: socket.socket, handshake: ServerHandshake | ClientHandshake) -> Link:
        self.link = Link(
            loop,
            sock,
            handshake,
            on_open=lambda link, peer: self.opened.set(),
            on_message=self._receive,
            on_close=lambda link, error: self.closed.put(error),
        )
        return self.link

    def _receive(self, message: Message) -> None:
        if self._answer:
            assert self.link is not None
            self.link.send(message.kind, message.stream, [message.body])
        else:
            self.by_stream[message.stream].put(message.body.to_pybytes())


class Net:
    """Two processes' ends in one: each with its own I/O thread."""

    def __init__(self) -> None:
        self.crashes: list[BaseException] = []
        self.loops = [IoLoop(f"stress-io-{side}", self.crashes.append) for side in "ab"]
        for loop in self.loops:
            loop.start()
        self.servers: queue.SimpleQueue[End] = queue.SimpleQueue()
        self.listener = Listener(self.loops[0], "127.0.0.1")
        self.listener.accept(self._accept)

    def _accept(self, sock: socket.socket) -> Link:
        end = End(answer=True)
        link = end.make(self.loops[0], sock, ServerHandshake(SECRET, "data", 1, nonce()))
        self.servers.put(end)
        return link

    def connect(self) -> tuple[End, End]:
        client = End(answer=False)
        sock = connect("127.0.0.1", self.listener.port, 5)
        client.make(self.loops[1], sock, ClientHandshake(SECRET, Identity("data", 1, 2), nonce()))
        server = self.servers.get(timeout=ANSWER_S)
        assert client.opened.wait(ANSWER_S)
        assert server.opened.wait(ANSWER_S)
        return client, server

    def close(self) -> None:
        self.listener.close()
        for loop in self.loops:
            loop.stop(ANSWER_S)
            assert not loop.thread.is_alive()


@pytest.fixture
def net() -> Iterator[Net]:
    made = Net()
    yield made
    made.close()
    assert not made.crashes


def test_no_message_waits_in_a_link_for_the_next_one(times: Times, net: Net) -> None:
    client, _ = net.connect()
    link = client.link
    assert link is not None

    def converse(stream: int, bursts: int) -> None:
        chance = random.Random(stream)
        sent = 0
        for _ in range(bursts):
            burst = [b"%d" % (sent + n) + b"." * chance.randrange(200) for n in range(chance.choice((1, 1, 1, 6)))]
            for body in burst:
                link.send(MessageKind.ELEMENT, stream, [body])
            for body in burst:
                try:
                    assert client.by_stream[stream].get(timeout=ANSWER_S) == body
                except queue.Empty:
                    pytest.fail(f"message {sent} of stream {stream} was never sent or never answered")
                sent += 1

    for stream in range(4):
        client.by_stream[stream] = queue.SimpleQueue()
    together(*(lambda stream=stream: converse(stream, times(1_000)) for stream in range(4)))  # type: ignore[misc]


def test_links_close_once_while_others_send(times: Times, net: Net) -> None:
    chance = random.Random(11)
    ends: list[End] = []
    for _ in range(times(250)):
        client, server = net.connect()
        link = client.link
        assert link is not None
        assert server.link is not None
        client.by_stream = {stream: queue.SimpleQueue() for stream in range(2)}

        def send(stream: int, link: Link = link) -> None:
            for number in range(60):
                link.send(MessageKind.ELEMENT, stream, [b"%d" % number])

        together(
            lambda: send(0),
            lambda: send(1),
            chance.choice([link.close, link.abort]),
            chance.choice([server.link.close, server.link.abort]),
        )
        for side in (client, server):
            side.closed.get(timeout=ANSWER_S)
            ends.append(side)
        for stream in range(2):
            answers = [int(client.by_stream[stream].get()) for _ in range(client.by_stream[stream].qsize())]
            assert answers == list(range(len(answers))), "a gap, or one twice"
    net.close()  # what was called before it is executed
    assert all(end.closed.empty() for end in ends), "closed twice"


def test_no_call_of_a_loop_is_slept_through_and_none_is_dropped_at_its_end(times: Times) -> None:
    crashes: list[BaseException] = []
    loop = IoLoop("stress-calls", crashes.append)
    loop.start()
    seen: list[tuple[int, int]] = []

    def ask(sender: int) -> None:
        for number in range(times(3_000)):
            answer = threading.Event()

            def call(number: int = number, answer: threading.Event = answer) -> None:
                seen.append((sender, number))
                answer.set()

            loop.call(call)
            assert answer.wait(ANSWER_S), f"call {number} of sender {sender} was slept through"

    together(*(lambda sender=sender: ask(sender) for sender in range(3)))  # type: ignore[misc]
    assert in_order(seen, 3) == [times(3_000)] * 3
    late: list[int] = []
    for number in range(100):
        loop.call(lambda number=number: late.append(number))  # type: ignore[misc]
    loop.stop(ANSWER_S)
    assert not loop.thread.is_alive()
    assert (late, crashes) == (list(range(100)), [])


def in_order(seen: Sequence[tuple[int, int]], senders: int) -> list[int]:
    """Return the number of messages of each sender; fail unless they are 0, 1, 2, ..."""
    counts = []
    for sender in range(senders):
        numbers = [number for one, number in seen if one == sender]
        assert numbers == list(range(len(numbers)))
        counts.append(len(numbers))
    return counts
