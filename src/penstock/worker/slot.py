"""One slot: the worker process inside a Spark task. It runs one subtask of every vertex until the driver stops it.

::

    connect to the driver -> register -> Deploy -> build subtasks -> open links -> Running -> Stop
                                                                                 \\-> failure, lost link

Threads: this one (waits and reports), one per subtask, one for all sockets, one for uploads, one for loads. All of them
have ended and every port is closed when ``slot_main`` returns, because Spark reuses the Python worker.
"""

from __future__ import annotations

import gc
import os
import queue
import secrets
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import pyarrow as pa

from penstock.config import CONF_PREFIX
from penstock.connectors.base import SinkContext
from penstock.connectors.python.prefetch_thread import blocked_threads
from penstock.errors import DataError, FunctionError, GenerationFailed, PenstockError
from penstock.logs import SparingLog, about, get_logger, log_to_stderr, now_about
from penstock.model.ids import SubtaskId
from penstock.model.job_graph import Vertex
from penstock.model.manifest import SubtaskManifest
from penstock.model.messages import AcknowledgeCheckpoint, DeclineCheckpoint, PauseReaders, SlotRunning
from penstock.network.control_link import read_from_driver, send
from penstock.network.frames import PROTOCOL_VERSION, Message
from penstock.network.handshake import ClientHandshake, Identity, ServerHandshake
from penstock.network.messages import Deploy, Register, SlotFailed, SlotMetrics, Stop, Stopped
from penstock.network.secret import nonce
from penstock.network.transport import IoLoop, Link, Listener, connect
from penstock.snapshots.restoring.local_state import LocalStateRestore, LocalStateStore
from penstock.snapshots.restoring.restore import load_restore
from penstock.snapshots.store.store import Store
from penstock.snapshots.store.stores import store_at
from penstock.snapshots.writing.capture_queue import CaptureLimits
from penstock.snapshots.writing.state_index import TableId
from penstock.state.table import RestorePoint
from penstock.worker import local_state_reuse
from penstock.worker.checkpoint_uploader import CheckpointUploader
from penstock.worker.inflight_loader import InflightLoader
from penstock.worker.log_relay import LogRelay
from penstock.worker.slot_host import SlotHost
from penstock.worker.slot_task import SlotTask
from penstock.worker.subtask import Subtask
from penstock.worker.subtask_thread import SubtaskThread

log = get_logger(__name__)

SWITCH_INTERVAL_S = 0.0005
"""GIL switch interval in seconds (default: 5 ms), so that the I/O thread soon runs although subtasks compute."""
GARBAGE_AFTER = 20_000
"""Number of new objects before the garbage collector searches for cycles among them (default: 700).

The rows and frames of a step live until its end and are not garbage. Searching every 700 objects took a fifth of the
time of pandas code.
"""
METRICS_EVERY_S = 0.5
CONNECT_TIMEOUT_S = 10.0
DEPLOY_TIMEOUT_S = 60.0
"""Minimum time for which a slot waits for the driver's deployment, and again for its subtasks and peers.

It is longer than the default of ``slot.startTimeout``, so that the driver is the first to give up.
"""
JOIN_TIMEOUT_S = 1.0
"""Time for threads to end.

A thread that takes longer hangs in user code or on a failed disk, and the process is given up.
"""
FAREWELL_TIMEOUT_S = 2.0
"""Time for which a slot keeps its links open after its last message, unless the driver closes its link earlier.

Otherwise peers would report the links as lost.
"""


@dataclass(frozen=True)
class _Opened:
    """A link was authenticated. ``peer`` is None for the link to the driver."""

    peer: int | None


@dataclass(frozen=True)
class _Lost:
    """A link broke. ``peer`` is None for the link to the driver."""

    peer: int | None
    reason: str


@dataclass(frozen=True)
class _Built:
    subtask: Subtask


@dataclass(frozen=True)
class _Failed:
    failure: SlotFailed


_Event = _Opened | _Lost | _Built | _Failed | Deploy | Stop
_E = TypeVar("_E")


class _Ended(Exception):
    """Ends the slot. ``farewell`` is the last message to the driver, None if the driver is gone."""

    def __init__(self, farewell: SlotFailed | Stopped | None) -> None:
        super().__init__(farewell)
        self.farewell = farewell


def slot_main(task_number: int, task: SlotTask, *, own_process: bool, host: str | None = None) -> None:
    """Run a slot until the driver stops it, its links break or a subtask fails.

    Failures are reported to the driver, not raised.

    Args:
        task_number: index of the Spark task, from 0; the driver assigns the slot later.
        own_process: True if threads that do not stop end the process by ``os._exit``; otherwise they are only logged.
        host: address at which other slots reach this one; by default the local address of the connection to the driver.

    Raises:
        GenerationFailed: the driver cannot be reached. If it refuses the connection, the generation has ended, and the
            function only returns.
    """
    if own_process:
        log_to_stderr(task.log_level, task.options.log_format)
    with about(query=task.name or task.query_id, generation=task.generation, slot=task_number):
        _run_slot(task_number, task, own_process, host)


def _run_slot(task_number: int, task: SlotTask, own_process: bool, host: str | None) -> None:
    try:
        sock = connect(task.control_host, task.control_port, CONNECT_TIMEOUT_S)
    except GenerationFailed as problem:
        if not isinstance(problem.__cause__, ConnectionRefusedError):
            raise
        # The port is open only while the generation runs, and Spark may start a task after that.
        log.info("the Generation ended before this slot began")
        return
    relay = LogRelay()
    with _tuned_interpreter(), relay.listening() if own_process else nullcontext():
        Slot(task_number, task, own_process, relay).run(sock, host or sock.getsockname()[0])
    gc.collect()  # a reused worker must not keep the objects of the subtasks
    pa.default_memory_pool().release_unused()


@contextmanager
def _tuned_interpreter() -> Iterator[None]:
    interval, thresholds = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.set_threshold(GARBAGE_AFTER, *thresholds[1:])
    try:
        yield
    finally:
        sys.setswitchinterval(interval)
        gc.set_threshold(*thresholds)


class Slot:
    """One slot, from its registration to its end."""

    def __init__(self, task_number: int, task: SlotTask, own_process: bool, relay: LogRelay) -> None:
        self._task_number = task_number
        self._index = task_number  # until ``Deploy`` assigns the slot
        self._task = task
        self._tls = None if task.tls is None else task.tls.contexts()
        self._own_process = own_process
        self._relay = relay
        self._token = secrets.token_hex(8)
        self._events: queue.SimpleQueue[_Event] = queue.SimpleQueue()
        self._loop = IoLoop(f"penstock-io-{task_number}", self._crashed)
        self._local_state = LocalStateStore()
        self._remembered = local_state_reuse.recall(task.query_id)
        self._is_deployed = False
        self._store: Store  # from ``Deploy`` on, which carries the access to the store; likewise the next three
        self._host: SlotHost
        self._uploader: CheckpointUploader
        self._loader: InflightLoader
        self._subtasks: list[Subtask] = []
        self._subtask_threads: list[SubtaskThread] = []
        self._links: list[Link] = []
        self._refusals = SparingLog(log)
        self._metrics_at = 0.0
        self._patience_s = max(DEPLOY_TIMEOUT_S, task.options.slot_start_timeout_ms / 1000 + CONNECT_TIMEOUT_S)

    def run(self, sock: socket.socket, host: str) -> None:
        """Run the slot until it ends.

        Args:
            sock: connection to the driver.
            host: address at which peers reach this slot.
        """
        listener = Listener(self._loop, host, self._task.options.slot_ports)
        self._loop.start()
        self._control = self._open_control(sock)
        farewell: SlotFailed | Stopped | None = None
        try:
            self._live(listener, host)
        except _Ended as end:
            farewell = end.farewell
        except PenstockError as problem:
            farewell = _failure(self._index, "", problem)
        finally:
            self._end(listener, farewell)

    # -- life -----------------------------------------------------------------------------------------------------

    def _live(self, listener: Listener, host: str) -> None:
        deadline = time.monotonic() + self._patience_s
        self._await(_Opened, deadline, "the driver's answer")
        remembered = [one.slot for one in self._remembered]
        generation = self._task.generation
        send(
            self._control,
            Register(self._task_number, generation, PROTOCOL_VERSION, os.getpid(), host, listener.port, remembered),
        )
        deploy = self._await(Deploy, deadline, "the deployment")
        now_about(slot=self._index)
        deadline = time.monotonic() + self._patience_s
        inflight_rows = self._build(deploy, deadline)
        listener.accept(self._accept)
        self._connect(deploy)
        for _ in self._host.peers:
            self._await(_Opened, deadline, "its peers")
        for thread in self._subtask_threads:
            thread.go()
        send(self._control, SlotRunning(self._index, inflight_rows, self._local.reused_tables))
        del self._local
        while True:
            self._next_event(time.monotonic() + METRICS_EVERY_S)
            self._report()

    def _await(self, kind: type[_E], deadline: float, what: str) -> _E:
        while time.monotonic() < deadline:
            event = self._next_event(deadline)
            if isinstance(event, kind):
                return event
        raise GenerationFailed(
            f"slot {self._index} waited {self._patience_s:g} s in vain for {what}; if that can take longer, give it "
            f"more time with {CONF_PREFIX}slot.startTimeout"
        )

    def _next_event(self, deadline: float) -> _Event | None:
        """Return the next event that does not end the slot, or None at the deadline."""
        try:
            event = self._events.get(timeout=max(0.001, deadline - time.monotonic()))
        except queue.Empty:
            return None
        match event:
            case Stop():
                raise _Ended(Stopped(self._index))
            case _Failed(failure):
                raise _Ended(failure)
            case _Lost(None, reason):
                log.info("the slot ends: the link to the driver: %s", reason)
                raise _Ended(None)
            case _Lost(peer, reason):
                text = f"the link between slots {self._index} and {peer} broke: {reason}"
                raise _Ended(SlotFailed(self._index, "link", "", text, "", ""))
        return event

    # -- building -------------------------------------------------------------------------------------------------

    def _become(self, deploy: Deploy) -> None:
        """Become the deployed slot.

        Runs on the I/O thread, because the driver's next message may be for the subtasks.
        """
        self._index = deploy.slot
        self._store = store_at(self._task.location, deploy.access)
        self._host = SlotHost(self._task.graph, self._index, self._control)
        options = self._task.options
        limits = CaptureLimits(options.checkpoint_max_inflight_bytes, options.checkpoint_capture_memory)
        self._uploader = CheckpointUploader(
            self._store,
            self._task.graph,
            self._task.generation,
            self._index,
            limits,
            self._answer,
            self._crashed,
            self._local_state,
        )
        self._loader = InflightLoader(self._store, self._task.graph, self._index, self._host.loaded, self._crashed)
        self._host.uploader, self._host.loader = self._uploader, self._loader
        self._is_deployed = True

    def _local_tables(self, deploy: Deploy) -> LocalStateRestore:
        """Return the tables in memory that belong to the restored snapshot. Release all others before reading."""
        points: dict[TableId, RestorePoint] = {}
        for one in self._remembered:
            if one.slot == self._index:
                points = one.tables.take_matching(deploy.restored, deploy.subtasks)
            else:
                one.tables.release()
        self._remembered = []
        return LocalStateRestore(deploy.restored, points, self._local_state)

    def _build(self, deploy: Deploy, deadline: float) -> int:
        self._local = self._local_tables(deploy)
        self._uploader.restored(deploy.restored, deploy.subtasks)
        self._uploader.thread.start()
        self._loader.thread.start()
        manifests = {(m.vertex, m.index): m for m in deploy.subtasks}
        for vertex in self._task.graph.vertices:
            manifest = manifests.get((vertex.id, self._index))
            thread = self._subtask_thread(vertex, manifest)
            self._subtask_threads.append(thread)
            thread.start()
        for _ in self._subtask_threads:
            built = self._await(_Built, deadline, "its subtasks")
            self._subtasks.append(built.subtask)
            self._host.add(built.subtask.subtask, built.subtask.inbox)
            source = built.subtask.subtask.vertex
            if deploy.paused and self._task.graph.vertex(source).source is not None:
                built.subtask.inbox.append(PauseReaders(source, True))
        return sum(entry.rows for m in deploy.subtasks for entry in m.inflight)

    def _subtask_thread(self, vertex: Vertex, manifest: SubtaskManifest | None) -> SubtaskThread:
        subtask_id = SubtaskId(vertex.id, self._index)
        task = self._task

        def build() -> Subtask:
            restore = None if manifest is None else load_restore(manifest, self._store, vertex.operators, self._local)
            sink = "" if vertex.sink is None else vertex.sink.operator_id
            context = SinkContext(
                task.query_id,
                task.generation,
                self._index,
                task.graph.parallelism,
                self._token,
                task.first_epoch,
                task.fences.get(sink, ""),
                sink,
            )
            return Subtask(vertex, task.graph, subtask_id, task.generation, task.options, self._host, restore, context)

        return SubtaskThread(
            subtask_id,
            build,
            lambda subtask: self._events.put(_Built(subtask)),
            self._subtask_failed,
            self._host.pending_checkpoints,
        )

    # -- links ----------------------------------------------------------------------------------------------------

    def _open_control(self, sock: socket.socket) -> Link:
        identity = Identity("control", self._task.generation, self._index)
        link = Link(
            self._loop,
            sock,
            ClientHandshake(self._task.secret, identity, nonce()),
            on_open=lambda link, peer: self._events.put(_Opened(None)),
            on_message=self._from_driver,
            on_close=lambda link, error: self._events.put(_Lost(None, str(error))),
            tls=self._tls,
        )
        self._links.append(link)
        return link

    def _connect(self, deploy: Deploy) -> None:
        """Connect to all slots with a lower number."""
        for peer in range(self._index):
            sock = connect(*deploy.peers[peer], CONNECT_TIMEOUT_S)
            identity = Identity("data", self._task.generation, self._index)
            self._data_link(sock, ClientHandshake(self._task.secret, identity, nonce()), peer)

    def _accept(self, sock: socket.socket) -> Link:
        handshake = ServerHandshake(self._task.secret, "data", self._task.generation, nonce())
        return self._data_link(sock, handshake, None)

    def _data_link(self, sock: socket.socket, handshake: ServerHandshake | ClientHandshake, peer: int | None) -> Link:
        """Open a data link. ``peer`` is None for an accepted connection; the handshake then identifies it."""

        def opened(link: Link, identity: Identity) -> None:
            slot = identity.slot if peer is None else peer
            known = self._host.peers.get(slot)
            if known is None or known.link is not None:
                raise GenerationFailed(f"slot {slot} has a link already, or does not exist")
            known.link = link
            link.on_message = partial(self._host.from_peer, slot)
            self._events.put(_Opened(slot))

        def closed(link: Link, error: PenstockError | None) -> None:
            slot = next((s for s, known in self._host.peers.items() if known.link is link), peer)
            if slot is None:
                self._links.remove(link)
                self._refusals.warning("a connection was refused: %s", error)
            else:
                self._events.put(_Lost(slot, str(error)))

        link = Link(self._loop, sock, handshake, opened, lambda message: None, closed, self._tls)
        self._links.append(link)
        return link

    def _from_driver(self, message: Message) -> None:
        decoded = read_from_driver(message)
        if isinstance(decoded, Deploy):
            try:
                self._become(decoded)
            # the location's store failed: raised here, the error would only end the link
            except PenstockError as problem:
                self._crashed(problem)
                return
        if isinstance(decoded, Deploy | Stop):
            self._events.put(decoded)
        else:
            self._host.from_driver(decoded)

    def _answer(self, answer: AcknowledgeCheckpoint | DeclineCheckpoint) -> None:
        """Answer a checkpoint, on any thread.

        The metrics are sent first, so that the epoch is reported with its own.
        """
        self._send_metrics()
        send(self._control, answer)
        self._host.pending_checkpoints.ended(answer.checkpoint)

    # -- reports --------------------------------------------------------------------------------------------------

    def _report(self) -> None:
        now = time.monotonic()
        if now - self._metrics_at >= METRICS_EVERY_S * 0.9:
            self._metrics_at = now
            self._send_metrics()
            self._send_logged()

    def _send_metrics(self) -> None:
        send(self._control, SlotMetrics(self._index, [subtask.report for subtask in self._subtasks]))

    def _send_logged(self) -> None:
        logged = self._relay.take(self._index)
        if logged is not None:
            send(self._control, logged)

    def _subtask_failed(self, subtask: SubtaskId, problem: BaseException) -> None:
        vertex = self._task.graph.vertex(subtask.vertex)
        self._events.put(_Failed(_failure(self._index, vertex.name, problem)))

    def _crashed(self, problem: BaseException) -> None:
        self._events.put(_Failed(_failure(self._index, "", problem)))

    # -- the end --------------------------------------------------------------------------------------------------

    def _end(self, listener: Listener, farewell: SlotFailed | Stopped | None) -> None:
        """Release everything.

        ``Stopped`` is sent when all threads have ended; a failure is sent at once.
        """
        self._send_logged()
        if isinstance(farewell, SlotFailed):
            send(self._control, farewell)
        stuck = self._stop_threads()
        if isinstance(farewell, Stopped):
            send(self._control, farewell)
        if farewell is not None:
            self._await_farewell()
        listener.close()
        for link in list(self._links):
            link.abort()
        self._loop.stop()
        if stuck:
            for thread in stuck:
                log.error("%s did not stop within %.0f s; it is at\n%s", *self._whereabouts(thread))
            if self._own_process:
                os._exit(1)
        is_from_outside = farewell is None or (isinstance(farewell, SlotFailed) and farewell.kind == "link")
        self._remember(is_from_outside and not stuck)

    def _remember(self, is_worth_it: bool) -> None:
        """Keep the tables for the next slot in this worker if nothing went wrong here."""
        if is_worth_it and self._is_deployed and not any(thread.failed for thread in self._subtask_threads):
            self._remembered.append(local_state_reuse.Remembered(self._task.query_id, self._index, self._local_state))
        else:
            self._local_state.release()
        for one in self._remembered:
            if is_worth_it:
                local_state_reuse.remember(one)
            else:
                one.tables.release()

    def _whereabouts(self, thread: threading.Thread) -> tuple[str, float, str]:
        frame = sys._current_frames().get(thread.ident or 0)
        where = "".join(traceback.format_stack(frame)) if frame is not None else "its end"
        return thread.name, JOIN_TIMEOUT_S, where

    def _stop_threads(self) -> list[threading.Thread]:
        for subtask in self._subtask_threads:
            subtask.stop()
        threads = [subtask.thread for subtask in self._subtask_threads]
        if self._is_deployed:
            self._uploader.stop()
            self._loader.stop()
            threads += [t for t in (self._uploader.thread, self._loader.thread) if t.ident is not None]
        deadline = time.monotonic() + JOIN_TIMEOUT_S
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return [thread for thread in threads if thread.is_alive()] + blocked_threads()

    def _await_farewell(self) -> None:
        deadline = time.monotonic() + FAREWELL_TIMEOUT_S
        while not self._control.closed and time.monotonic() < deadline:
            try:
                self._events.get(timeout=max(0.001, deadline - time.monotonic()))
            except queue.Empty:
                return


def _failure(slot: int, operator: str, problem: BaseException) -> SlotFailed:
    trace = "".join(traceback.format_exception(problem))
    if isinstance(problem, FunctionError):
        return SlotFailed(slot, "function", problem.operator, problem.message, problem.user_traceback, problem.position)
    kind = "data" if isinstance(problem, DataError) else "internal"
    return SlotFailed(slot, kind, operator, f"{type(problem).__name__}: {problem}", trace, "")
